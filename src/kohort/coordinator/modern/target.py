"""The target assignment: when it is made, with which assignor, and what of it is new.

A custom assignor is contained: it runs elsewhere, and where it fails, takes too long, or its answer is none, the last
target stands and the reason is told. What it made for a group that has changed meanwhile is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from kohort.assignors import AssignmentError, GroupSpec, MemberSpec, ServerAssignor, TopicSpec, is_builtin
from kohort.assignors.server import Partitions
from kohort.coordinator import events
from kohort.coordinator.causes import Cause, CauseKind
from kohort.coordinator.context import Context
from kohort.coordinator.effects import Decision
from kohort.coordinator.modern.group import NO_PARTITIONS, ModernGroup
from kohort.coordinator.modern.steps import Steps
from kohort.coordinator.modern.work import Assigning
from kohort.coordinator.modern_records import Kind, TargetEpoch

FAILED_PAUSE_MS = 1_000
"""Before an assignor that failed is asked again."""


def update_target(steps: Steps) -> None:
    """Where the group has an epoch without a target, and the last one is old enough."""
    context, group = steps.context, steps.group
    if group.assignment_epoch >= group.epoch or not _is_time(context, group):
        return
    name = group.preferred_assignor(context.config.assignors)
    assignor = context.config.assignors[name]
    if not is_builtin(assignor):
        if not group.assignment_epoch:
            _begin_with_nothing(steps)
        _ask(context, group, name, assignor)
        return
    group.assigning = None  # of an assignor that nobody asks for any more
    spec = group_spec(context, group)
    try:
        new = assignor.assign(spec)
    except Exception as error:
        _failed(context, group, name, _sentence(error))
        return
    _put(steps, name, spec, cast("Mapping[str, Partitions]", new))


def _put(steps: Steps, name: str, spec: GroupSpec, new: Mapping[str, Partitions]) -> None:
    context, group = steps.context, steps.group
    for member_id in spec.members:
        given = new.get(member_id, NO_PARTITIONS)
        if given != group.target.get(member_id):
            steps.put(Kind.TARGET_MEMBER, given, member_id)
    steps.put(Kind.TARGET, TargetEpoch(group.epoch, context.now_ms))
    context.event(group, events.TargetAssigned, assignor=name, members=len(group.members))


def _is_time(context: Context, group: ModernGroup) -> bool:
    """A target of the future was made by a coordinator whose clock is ahead: nobody waits for that."""
    interval_ms = context.config.assignment_interval_ms(group.group_id)
    last_ms = group.assignment_timestamp_ms
    return not last_ms or not last_ms <= context.now_ms < last_ms + interval_ms


# ---- an assignor of one's own


def _begin_with_nothing(steps: Steps) -> None:
    """A member's epoch is that of a target, and 0 would be a join: until there is a target, one that gives nothing."""
    steps.put(Kind.TARGET, TargetEpoch(steps.group.epoch, 0))
    steps.bump(Cause(CauseKind.BEGAN))


def _ask(context: Context, group: ModernGroup, name: str, assignor: ServerAssignor) -> None:
    """Have it run elsewhere; the group goes on with its last target."""
    if group.assigning is not None or context.now_ms < group.ask_again_ms:
        return
    group.assigning = Assigning(group.group_id, group.epoch, name, assignor, group_spec(context, group))
    context.effects.work.append(group.assigning)
    context.timers.set(group.assigned_by, context.now_ms + context.config.assignor_timeout_ms)


def assigned(
    context: Context, group: ModernGroup, work: Assigning, made: Mapping[str, Partitions] | None, why: Exception | None
) -> Decision | None:
    """It has answered, or failed; nobody waits for it where the group was loaded again, or it was given up."""
    if group.assigning is not work:
        return None
    group.assigning = None
    group.assigned_by.cancel()
    steps = Steps(context, group)
    if made is None:
        assert why is not None
        group.ask_again_ms = context.now_ms + FAILED_PAUSE_MS
        _failed(context, group, work.name, _sentence(why))
    elif work.epoch == group.epoch and work.spec.members.keys() == group.members.keys():
        _put(steps, work.name, work.spec, made)
    elif group.members:
        update_target(steps)  # for what the group is now
    return steps.decision()


def gave_up(context: Context, group: ModernGroup) -> None:
    """It has not answered in time; whatever it says later is dropped."""
    if group.assigning is None:
        return
    name, group.assigning = group.assigning.name, None
    timeout_ms = context.config.assignor_timeout_ms
    group.ask_again_ms = context.now_ms + timeout_ms  # it may be at work still
    _failed(context, group, name, f"no answer within {timeout_ms} ms")


def _sentence(error: Exception) -> str:
    return str(error) if isinstance(error, AssignmentError) else f"{type(error).__name__}: {error}"


def _failed(context: Context, group: ModernGroup, assignor: str, why: str) -> None:
    cause = Cause(CauseKind.ASSIGNOR_FAILED, said=f"{assignor}: {why}"[:500])
    context.event(group, events.TargetFailed, assignor=assignor, cause=cause)


def group_spec(context: Context, group: ModernGroup) -> GroupSpec:
    topics: dict[bytes, TopicSpec] = {}
    known: dict[tuple[frozenset[str], str | None], frozenset[bytes]] = {}
    for name in group.subscribed_names():
        found = context.topics.by_name(name)
        if found is not None:
            topics[found[0]] = TopicSpec(name, found[1])
    members: dict[str, MemberSpec] = {}
    for member_id in sorted(group.members):  # whatever the order in which they came, or were read
        member = group.members[member_id]
        said = member.metadata
        subscription = (said.topics, said.regex)
        topic_ids = known.get(subscription)
        if topic_ids is None:
            topic_ids = known[subscription] = group.topic_ids_of(context.topics, said)
        assigned = group.target.get(member_id, NO_PARTITIONS)
        if not assigned.keys() <= topics.keys():
            assigned = {topic_id: numbers for topic_id, numbers in assigned.items() if topic_id in topics}
        members[member_id] = MemberSpec(topic_ids, assigned, said.instance_id, said.rack_id)
    return GroupSpec(members, topics, group.subscribes_alike())
