"""How members go: they leave, for good or for a while, or are put out when their session or their time is over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kohort.coordinator import events
from kohort.coordinator.causes import Cause, CauseKind
from kohort.coordinator.context import Context
from kohort.coordinator.effects import Decision, Request
from kohort.coordinator.group import Group
from kohort.coordinator.modern import migration, regexes, target
from kohort.coordinator.modern.group import ModernGroup
from kohort.coordinator.modern.member import Member
from kohort.coordinator.modern.refusing import Refused
from kohort.coordinator.modern.steps import Steps
from kohort.coordinator.modern_records import NOTHING, Kind, MemberState
from kohort.coordinator.timers import Deadline, TimerKind
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import ConsumerGroupHeartbeatResponse

LEAVES, LEAVES_FOR_A_WHILE = -1, -2


def leave(context: Context, group: Group | None, request: Request) -> Decision | None:
    message = request.message
    if not isinstance(group, ModernGroup):
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, "There is no such group of the consumer protocol.")
    if message.instance_id is not None:
        member = static_member(group, message)
    else:
        found = group.members.get(message.member_id)
        if found is None:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"The group has no member {message.member_id}.")
        member = found
    response = ConsumerGroupHeartbeatResponse(member_id=member.member_id, member_epoch=message.member_epoch)
    context.reply(request, response)
    if message.member_epoch == LEAVES_FOR_A_WHILE and message.instance_id is not None:
        return _leave_for_a_while(context, group, member)
    return remove(context, group, [member], Cause(CauseKind.LEFT, (member.who,)))


def static_member(group: ModernGroup, message: Any) -> Member:
    holder = group.holder(message.instance_id)
    if holder is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"The group has no instance id {message.instance_id}.")
    if holder.member_id != message.member_id:
        raise Refused(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Instance id {message.instance_id} has been taken over by member {holder.member_id}.",
            by=holder.who,
        )
    return holder


def _leave_for_a_while(context: Context, group: ModernGroup, member: Member) -> Decision | None:
    """Nothing of it goes to others until its session is over; its partitions count as assigned from the start."""
    steps = Steps(context, group)
    current = member.current
    assigned = {topic_id: dict.fromkeys(numbers, 0) for topic_id, numbers in current.assigned.items()}
    left = current._replace(member_epoch=LEAVES_FOR_A_WHILE, assigned=assigned, pending=NOTHING)
    steps.put(Kind.CURRENT_MEMBER, left, member.member_id)
    cause = Cause(CauseKind.LEFT_FOR_A_WHILE, (member.who,))
    context.member_event(group, events.MemberLeft, member.who, cause)
    return steps.decision(cause)


def remove(context: Context, group: ModernGroup, members: Sequence[Member], cause: Cause) -> Decision | None:
    """They go, and the group has a new epoch; where only classic members are left it becomes a classic group."""
    kind = events.MemberLeft if cause.kind in (CauseKind.LEFT, CauseKind.REMOVED) else events.MemberEvicted
    for member in members:
        context.member_event(group, kind, member.who, cause._replace(members=(member.who,)))
    if migration.may_downgrade(context, group, members):
        return migration.downgrade(context, group, members)
    steps = Steps(context, group)
    for member in members:
        steps.remove_member(member)
    steps.bump(cause)
    return steps.decision(cause)


def due(context: Context, group: ModernGroup, deadline: Deadline) -> Decision | None:
    if deadline is group.resolve:
        regexes.resolve(context, group)
        return None
    if deadline is group.assigned_by:
        target.gave_up(context, group)
        return None
    member = group.members.get(deadline.member_id)
    if member is None or deadline not in (member.heartbeat, member.rebalance, member.sync):
        return None
    who = (member.who,)
    if deadline.kind is TimerKind.MEMBER_REBALANCE:
        if member.current.state is not MemberState.UNREVOKED_PARTITIONS:
            return None
        cause = Cause(CauseKind.DID_NOT_REVOKE, who, timeout_ms=member.metadata.rebalance_timeout_ms)
    elif deadline.kind is TimerKind.MEMBER_JOIN:
        cause = Cause(CauseKind.DID_NOT_REJOIN, who, timeout_ms=member.metadata.rebalance_timeout_ms)
    elif deadline.kind is TimerKind.MEMBER_SYNC:
        cause = Cause(CauseKind.DID_NOT_SYNC, who, timeout_ms=member.metadata.rebalance_timeout_ms)
    else:
        cause = Cause(CauseKind.TIMED_OUT, who, timeout_ms=member.session_timeout_ms)
    return remove(context, group, [member], cause)


def loaded(context: Context, group: ModernGroup) -> None:
    """Members have a whole session to be heard of, and what they are to give up a whole rebalance timeout. Topics may
    have come that no coordinator has held against the group's expressions."""
    group.topics_came = bool(group.regexes)
    for member in group.members.values():
        classic = member.metadata.classic
        own_ms = context.config.session_timeout_ms(group.group_id)
        member.session_timeout_ms = own_ms if classic is None else classic.session_timeout_ms
        context.reset_heartbeat(member)
        if member.current.state is MemberState.UNREVOKED_PARTITIONS and classic is None:
            context.timers.set(member.rebalance, context.now_ms + member.metadata.rebalance_timeout_ms)
    context.event(
        group,
        events.GroupLoaded,
        state=group.state_name,
        members=len(group.members),
        offsets=sum(map(len, group.offsets.values())),
        cause=Cause(CauseKind.LOADED),
    )


def close(context: Context, group: ModernGroup, error: ErrorCode, cause: Cause) -> None:
    """Nobody is parked in it, and the shard's timers go as a whole."""
