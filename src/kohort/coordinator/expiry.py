"""How offsets end by themselves: by age (KIP-211), with their topic, with their group. Makes tombstones."""

from kohort.coordinator import events
from kohort.coordinator.causes import Cause, CauseKind
from kohort.coordinator.classic.group import Group
from kohort.coordinator.classic.states import EMPTY, STABLE
from kohort.coordinator.context import Context
from kohort.coordinator.records import Change, OffsetCommit
from kohort.protocol.uuids import ZERO_UUID


def tombstones(group: Group) -> list[Change]:
    """For everything the group has, committed or in an open transaction."""
    gone: dict[tuple[str, int], Change] = {
        (topic, index): OffsetCommit(group.group_id, topic, index, None)
        for topic, committed in group.offsets.items()
        for index in committed
    }
    for topic, index in group.open_transactions or ():
        gone.setdefault((topic, index), OffsetCommit(group.group_id, topic, index, None))
    return list(gone.values())


def of_deleted_topics(context: Context, group: Group, deleted: dict[str, bytes]) -> list[Change]:
    """Not the offsets of a topic of the same name that has been created since."""
    changes: list[Change] = [
        OffsetCommit(group.group_id, topic, index, None)
        for topic, topic_id in deleted.items()
        for index, value in group.offsets.get(topic, {}).items()
        if value.topic_id in (ZERO_UUID, topic_id)
    ]
    removed(context, group, changes, CauseKind.TOPIC_DELETED)
    return changes


def expired(context: Context, group: Group) -> tuple[list[Change], bool]:
    """Tombstones for what has expired, and whether nothing is left.

    KIP-211: an empty group keeps its offsets for the retention since it became empty; a stable group of consumers loses
    those of topics it no longer subscribes to, by the age of the commit; a simple group likewise by age. KAFKA-13636:
    nothing expires in the middle of a rebalance.
    """
    if not group.offsets:
        return [], not group.open_transactions
    since_empty = group.protocol_type is not None and group.state is EMPTY and group.state_timestamp_ms != -1
    by_age = (
        group.protocol_type is None
        or group.state is EMPTY
        or (group.state is STABLE and group.uses_consumer_protocol and group.subscribed_topics is not None)
    )
    if not by_age:
        return [], False
    now_ms, retention_ms = context.now_ms, context.config.offsets_retention_ms
    changes: list[Change] = []
    kept = False
    for topic, committed in group.offsets.items():
        if group.is_subscribed(topic):
            kept = True
            continue
        for index, value in committed.items():
            base_ms = group.state_timestamp_ms if since_empty else value.commit_timestamp_ms
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
