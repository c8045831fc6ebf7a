"""What the records of a KIP-848 group do to it, live and at load. It answers nobody."""

from __future__ import annotations

from kohort.coordinator.classic.group import ClassicGroup
from kohort.coordinator.context import Context
from kohort.coordinator.group import Group
from kohort.coordinator.modern.group import ModernGroup
from kohort.coordinator.modern_records import Kind, ModernChange


def apply(context: Context, change: ModernChange) -> None:
    group = context.groups.get(change.group_id)
    if change.value is not None:
        _modern(context, change.group_id, group).put(change.kind, change.name, change.value)
    elif isinstance(group, ModernGroup):
        group.remove(change.kind, change.name)
        if change.kind is Kind.GROUP:
            _forget(context, group)


def _modern(context: Context, group_id: str, known: Group | None) -> ModernGroup:
    """One of that name; commits that were read before it are its own."""
    if isinstance(known, ModernGroup):
        return known
    group = context.groups[group_id] = ModernGroup(group_id)
    if known is not None:
        group.offsets, group.open_transactions = known.offsets, known.open_transactions
    return group


def _forget(context: Context, removed: ModernGroup) -> None:
    for member in removed.members.values():
        member.cancel_deadlines()
    del context.groups[removed.group_id]
    if removed.offsets or removed.open_transactions:  # it lives on as a simple group
        group = context.groups[removed.group_id] = ClassicGroup(removed.group_id, context.now_ms)
        group.offsets, group.open_transactions = removed.offsets, removed.open_transactions
        group.story = removed.story
