"""The target assignment: when it is made, with which assignor, and what of it is new.

A custom assignor is contained: where it fails, or its answer is none, the last target stands and the reason is told.
"""

from __future__ import annotations

from kohort.assignors import AssignmentError, GroupSpec, MemberSpec, TopicSpec, is_builtin
from kohort.assignors.server import checked
from kohort.coordinator import events
from kohort.coordinator.causes import Cause, CauseKind
from kohort.coordinator.context import Context
from kohort.coordinator.modern.group import NO_PARTITIONS, ModernGroup
from kohort.coordinator.modern.steps import Steps
from kohort.coordinator.modern_records import Kind, MemberMetadata, TargetEpoch


def update_target(steps: Steps) -> None:
    """Where the group has an epoch without a target, and the last one is old enough."""
    context, group = steps.context, steps.group
    if group.assignment_epoch >= group.epoch or not _is_time(context, group):
        return
    name = group.preferred_assignor(context.config.assignors)
    spec = group_spec(context, group)
    assignor = context.config.assignors[name]
    try:
        answer = assignor.assign(spec)
        new = answer if is_builtin(assignor) else checked(spec, answer, name)
    except Exception as error:
        _failed(context, group, name, error)
        return
    for member_id in spec.members:
        given = new.get(member_id, NO_PARTITIONS)
        if given != group.target.get(member_id):
            steps.put(Kind.TARGET_MEMBER, given, member_id)
    steps.put(Kind.TARGET, TargetEpoch(group.epoch, context.now_ms))
    context.event(group, events.TargetAssigned, assignor=name, members=len(group.members))


def _is_time(context: Context, group: ModernGroup) -> bool:
    interval_ms = context.config.assignment_interval_ms(group.group_id)
    last_ms = group.assignment_timestamp_ms
    return not last_ms or not interval_ms or context.now_ms >= last_ms + interval_ms


def _failed(context: Context, group: ModernGroup, assignor: str, error: Exception) -> None:
    why = str(error) if isinstance(error, AssignmentError) else f"{type(error).__name__}: {error}"
    cause = Cause(CauseKind.ASSIGNOR_FAILED, said=f"{assignor}: {why}"[:500])
    context.event(group, events.TargetFailed, assignor=assignor, cause=cause)


def group_spec(context: Context, group: ModernGroup) -> GroupSpec:
    topics: dict[bytes, TopicSpec] = {}
    known: dict[MemberMetadata, frozenset[bytes]] = {}
    for name in group.subscribed_names():
        found = context.topics.by_name(name)
        if found is not None:
            topics[found[0]] = TopicSpec(name, found[1])
    members: dict[str, MemberSpec] = {}
    for member_id in sorted(group.members):  # whatever the order in which they came, or were read
        member = group.members[member_id]
        said = member.metadata
        subscription = MemberMetadata(topics=said.topics, regex=said.regex)
        topic_ids = known.get(subscription)
        if topic_ids is None:
            topic_ids = known[subscription] = group.topic_ids_of(context.topics, said)
        assigned = group.target.get(member_id, NO_PARTITIONS)
        if not assigned.keys() <= topics.keys():
            assigned = {topic_id: numbers for topic_id, numbers in assigned.items() if topic_id in topics}
        members[member_id] = MemberSpec(topic_ids, assigned, said.instance_id, said.rack_id)
    return GroupSpec(members, topics, group.subscribes_alike())
