"""What the records of a classic group do to it: the one writer of `stored`, live and at load. It answers nobody."""

from __future__ import annotations

from kohort.coordinator.classic.group import ClassicGroup
from kohort.coordinator.context import Context
from kohort.coordinator.records import GroupMetadata


def apply(context: Context, change: GroupMetadata) -> None:
    group = context.groups.get(change.group_id)
    if change.value is not None:
        if group is None:
            group = context.groups[change.group_id] = ClassicGroup(change.group_id, context.now_ms)
        if isinstance(group, ClassicGroup):
            group.stored = change.value
        return  # of a group that has moved to the other protocol: what was cut off there is told by its records
    if not isinstance(group, ClassicGroup):
        return
    group.stored = None
    if group.offsets or group.open_transactions:
        return  # commits that came later in the log: it lives on as a simple group
    del context.groups[change.group_id]
    group.end(context.now_ms)
