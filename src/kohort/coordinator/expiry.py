"""How offsets end by themselves: by age (KIP-211), with their topic, with their group. Makes tombstones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kohort.coordinator import events
from kohort.coordinator.causes import Cause, CauseKind
from kohort.coordinator.context import Context
from kohort.coordinator.effects import Decision
from kohort.coordinator.group import BY_AGE, Group
from kohort.coordinator.records import Change, OffsetCommit
from kohort.protocol.errors import ErrorCode
from kohort.protocol.uuids import ZERO_UUID


def of_deleted_topics(context: Context, group: Group, deleted: dict[str, bytes]) -> list[Change]:
    """Not the offsets of a topic of the same name that has been created since."""
    changes: list[Change] = [
        OffsetCommit(group.group_id, topic, index, None)
        for topic, topic_id in deleted.items()
        for index, value in group.offsets.get(topic, {}).items()
        if value.topic_id in (ZERO_UUID, topic_id)
    ]
    changes += [
        OffsetCommit(group.group_id, topic, index, None)
        for topic, index in group.open_transactions or ()
        if topic in deleted and index not in group.offsets.get(topic, {})
    ]
    removed(context, group, changes, CauseKind.TOPIC_DELETED)
    return changes


def expire(context: Context) -> Decision | None:
    """The look at all groups of a shard, every offsets.retention.check.interval.ms."""
    changes: list[Change] = []
    deleted: list[Group] = []
    for group in context.groups.values():
        expired, nothing_left = _expired(context, group)
        if nothing_left and group.is_empty:
            deleted.append(group)
        else:
            changes += expired
    return delete_groups(context, deleted, Cause(CauseKind.EMPTY_AND_EXPIRED), changes)


def delete_groups(
    context: Context, groups: Sequence[Group], cause: Cause, others: Sequence[Change] = ()
) -> Decision | None:
    """All that the log knows of these groups, and `others`, go; None where there is nothing to go."""
    changes = [change for group in groups for change in group.tombstones()]
    changes += others
    if not changes:
        return None
    decision = context.decide(changes, divisible=True)
    if groups:
        decision.then = GroupsDeleted(
            [
                events.GroupDeleted(
                    at_ms=context.now_ms, group_id=group.group_id, generation=group.generation, cause=cause
                )
                for group in groups
            ]
        )
    return decision


class GroupsDeleted(NamedTuple):
    """That a group is gone is told when it is certain."""

    events: list[events.GroupDeleted]

    def stored(self, context: Context, error: ErrorCode) -> Decision | None:
        if not error:
            context.effects.events += self.events
        return None


def _expired(context: Context, group: Group) -> tuple[list[Change], bool]:
    """Tombstones for what has expired, and whether nothing is left. KIP-211; the group says from when on it counts."""
    if not group.offsets:
        return [], not group.open_transactions
    from_ms = group.expires_from()
    if from_ms is None:
        return [], False
    now_ms, retention_ms = context.now_ms, context.config.offsets_retention_ms
    changes: list[Change] = []
    kept = False
    for topic, committed in group.offsets.items():
        if group.is_subscribed(topic):
            kept = True
            continue
        for index, value in committed.items():
            base_ms = value.commit_timestamp_ms if from_ms == BY_AGE else from_ms
            over = (
                now_ms >= value.expire_timestamp_ms
                if value.expire_timestamp_ms != -1
                else now_ms - base_ms >= retention_ms
            )
            if over and not group.is_unstable(topic, index):
                changes.append(OffsetCommit(group.group_id, topic, index, None))
            else:
                kept = True
    removed(context, group, changes, CauseKind.RETENTION_OVER)
    return changes, not kept and not group.open_transactions


def removed(context: Context, group: Group, changes: list[Change], kind: CauseKind) -> None:
    if changes:
        topics = tuple(dict.fromkeys(change.topic for change in changes if isinstance(change, OffsetCommit)))
        cause = Cause(kind, size=len(changes))
        context.event(group, events.OffsetsRemoved, topics=topics, partitions=len(changes), cause=cause)
