"""A member's life between joins: SyncGroup, Heartbeat, LeaveGroup, and the expiry of sessions and of missing syncs.

Kafka 4.3 decides: a sync or a repeated join does not prolong a session in a stable group (it did in older versions),
only heartbeats, commits and the end of a join or sync that was parked do.
"""

from typing import Any, NamedTuple

from kohort.coordinator import causes, events
from kohort.coordinator.causes import Cause, CauseKind, Who
from kohort.coordinator.classic import states
from kohort.coordinator.classic.group import ClassicGroup
from kohort.coordinator.classic.join import (
    answer_parked,
    prepare_rebalance,
    rebalance_duration,
    rebalance_or_complete_join,
    reset_assignment,
    try_complete_join,
)
from kohort.coordinator.classic.member import UNKNOWN_MEMBER_ID, Member
from kohort.coordinator.classic.states import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    STABLE,
)
from kohort.coordinator.context import Context
from kohort.coordinator.effects import Decision, Request, SharedResponse, append_error
from kohort.coordinator.records import GroupMetadata, StoredGroup
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import HeartbeatResponse, LeaveGroupResponse, SyncGroupResponse

NONE = ErrorCode.NONE


# ---- SyncGroup


def sync(context: Context, request: Request) -> Decision | None:
    message = request.message
    group = context.groups.get(message.group_id)
    if not isinstance(group, ClassicGroup) or group.state is EMPTY:
        context.reply(request, SyncGroupResponse(error_code=states.SYNC[EMPTY if group is not None else DEAD]))
    elif error := sync_error(group, message):
        _refuse_sync(context, group, request, error)
    elif group.state is STABLE:
        _synced(group, message.member_id)
        context.reply(request, assignment_response(group, group.members[message.member_id].assignment))
    else:
        _park_sync(context, group, request)
        if group.leader_id == message.member_id:
            return _store_assignment(context, group, message)
    return None


def sync_error(group: ClassicGroup, message: Any) -> ErrorCode:
    if error := group.member_error(message.member_id, message.group_instance_id):
        return error
    if message.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if message.protocol_type is not None and group.protocol_type not in (None, message.protocol_type):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if message.protocol_name is not None and group.protocol not in (None, message.protocol_name):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return states.SYNC[group.state]


def _refuse_sync(context: Context, group: ClassicGroup, request: Request, error: ErrorCode) -> None:
    if error is not ErrorCode.REBALANCE_IN_PROGRESS:
        context.refused(group, request, events.SyncRefused, error, generation=request.message.generation_id)
    context.reply(request, SyncGroupResponse(error_code=error))


def _park_sync(context: Context, group: ClassicGroup, request: Request) -> None:
    member = group.members[request.message.member_id]
    if member.parked_sync is not None:  # repeated from another connection
        context.reply(member.parked_sync, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    member.parked_sync = request
    _synced(group, member.member_id)


def _synced(group: ClassicGroup, member_id: str) -> None:
    group.pending_syncs.pop(member_id, None)
    if not group.pending_syncs:
        group.pending_syncs.clear()
        group.sync_timer.cancel()


def _store_assignment(context: Context, group: ClassicGroup, message: Any) -> Decision | None:
    """Who is not mentioned gets nothing; what is meant for strangers is dropped."""
    given = {a.member_id: a.assignment for a in message.assignments}
    assignment = {member_id: given.get(member_id, b"") for member_id in group.members}
    stored = group.to_stored(assignment)
    decision = context.decide_when_stored(GroupMetadata(group.group_id, stored), SyncStored(group, stored))
    if not context.fits(decision):
        return _assignment_lost(context, group, message.member_id, append_error(ErrorCode.RECORD_LIST_TOO_LARGE))
    return decision


class SyncStored(NamedTuple):
    """The leader's assignment of a generation: nobody has it before it is in the log."""

    group: ClassicGroup
    stored_group: StoredGroup

    def stored(self, context: Context, error: ErrorCode) -> Decision | None:
        group = self.group
        if context.groups.get(group.group_id) is not group:
            return None
        if not error:
            group.stored = self.stored_group
        if group.state is not COMPLETING_REBALANCE or group.generation != self.stored_group.generation:
            return None  # a new rebalance began while the record was on its way
        leader_id = self.stored_group.leader_id or ""
        if error:
            return _assignment_lost(context, group, leader_id, error)
        _hand_out(context, group, self.stored_group, leader_id)
        return None


def _assignment_lost(context: Context, group: ClassicGroup, leader_id: str, error: ErrorCode) -> Decision | None:
    leader = group.members[leader_id].who if leader_id in group.members else Who(leader_id)
    cause = Cause(CauseKind.STORE_FAILED, (leader,), error=error.name)
    took_ms = rebalance_duration(context, group)
    context.event(group, events.RebalanceFailed, error=error.name, duration_ms=took_ms, cause=cause)
    reset_assignment(context, group, error)
    return prepare_rebalance(context, group, cause)


def _hand_out(context: Context, group: ClassicGroup, generation: StoredGroup, leader_id: str) -> None:
    for stored in generation.members:
        group.members[stored.member_id].assignment = stored.assignment
    for member in group.members.values():
        if member.parked_sync is not None:
            context.tell(member.parked_sync, assignment_response(group, member.assignment))
            member.parked_sync = None
            context.reset_heartbeat(member)
    group.move(context, STABLE, causes.ASSIGNMENT_STORED)
    context.event(
        group,
        events.RebalanceCompleted,
        protocol=group.protocol or "",
        leader_id=leader_id,
        members=len(group.members),
        duration_ms=rebalance_duration(context, group),
        cause=group.rebalance_cause,
    )
    group.rebalance_started_ms = group.rebalance_cause = None


def assignment_response(group: ClassicGroup, assignment: bytes) -> SyncGroupResponse:
    return SyncGroupResponse(protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=assignment)


# ---- Heartbeat

_ALIVE = SharedResponse(HeartbeatResponse())
_REBALANCING = SharedResponse(HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))


def heartbeat(context: Context, request: Request) -> None:
    """Sessions and rebalances are no business of the log: a member is told of them without waiting for it."""
    message = request.message
    group = context.groups.get(message.group_id)
    error = states.HEARTBEAT[DEAD]
    if isinstance(group, ClassicGroup):
        member = group.members.get(message.member_id)
        if member is not None and message.group_instance_id is None and message.generation_id == group.generation:
            # Kafka's reschedule, inlined: a deadline moved later is only a store (timers.py).
            deadline = member.heartbeat
            at_ms = context.now_ms + member.session_timeout_ms
            if deadline.entry_ms is None or at_ms < deadline.entry_ms:
                context.timers.set(deadline, at_ms)
            else:
                deadline.at_ms = at_ms
            error = states.HEARTBEAT[group.state]
        else:
            error = _heartbeat_error(context, group, request)
    if error is NONE:
        context.effects.replies.append((request, _ALIVE))
    elif error is ErrorCode.REBALANCE_IN_PROGRESS:
        context.effects.replies.append((request, _REBALANCING))
    else:
        context.reply(request, HeartbeatResponse(error_code=error))


def _heartbeat_error(context: Context, group: ClassicGroup, request: Request) -> ErrorCode:
    message = request.message
    if error := group.member_error(message.member_id, message.group_instance_id):
        if error is ErrorCode.FENCED_INSTANCE_ID:
            context.fenced(group, request, "Heartbeat")
        return error
    if message.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    context.reset_heartbeat(group.members[message.member_id])
    return states.HEARTBEAT[group.state]


# ---- LeaveGroup


def leave(context: Context, request: Request) -> Decision | None:
    """From v3 on several members at once, each with its own answer."""
    message = request.message
    group = context.groups.get(message.group_id)
    identity = type(message).MemberIdentity
    leaving = message.members if request.version >= 3 else [identity(member_id=message.member_id)]
    if not isinstance(group, ClassicGroup):
        group = None
    if group is not None and (error := states.LEAVE[group.state]):
        context.reply(request, LeaveGroupResponse(error_code=error))
        return None
    answers: list[Any] = []
    left: list[Cause] = []
    for who in leaving:
        error = states.LEAVE[DEAD] if group is None else _leave_one(context, group, request, who, left)
        answers.append(
            LeaveGroupResponse.MemberResponse(
                member_id=who.member_id, group_instance_id=who.group_instance_id, error_code=error
            )
        )
    if request.version >= 3:
        response = LeaveGroupResponse(members=answers)
    else:
        response = LeaveGroupResponse(error_code=answers[0].error_code)
    decision = None if group is None or not left else _rebalance_without(context, group, left)
    context.reply(request, response)  # it waits for the record of the emptied group, where they were the last
    return decision


def _rebalance_without(context: Context, group: ClassicGroup, left: list[Cause]) -> Decision | None:
    if group.state is STABLE or group.state is COMPLETING_REBALANCE:
        members = tuple(who for cause in left for who in cause.members)
        return prepare_rebalance(context, group, left[0]._replace(members=members))
    return try_complete_join(context, group)


def _leave_one(context: Context, group: ClassicGroup, request: Request, who: Any, left: list[Cause]) -> ErrorCode:
    """Adds to `left` why the member is gone."""
    member_id = who.member_id
    if member_id == UNKNOWN_MEMBER_ID:
        # An administrator removes a static member by its instance id alone.
        member_id = group.static_members.get(who.group_instance_id) if who.group_instance_id is not None else None
        if member_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
    elif member_id in group.pending_members:
        group.remove(member_id)
        pending = Who(member_id)
        left.append(Cause(CauseKind.LEFT, (pending,), said=causes.said(who.reason)))
        context.member_event(group, events.MemberLeft, pending, left[-1])
        return NONE
    elif error := group.member_error(member_id, who.group_instance_id):
        return error
    member = group.members[member_id]
    answer_parked(context, group, member, ErrorCode.UNKNOWN_MEMBER_ID)
    group.remove(member_id)
    left.append(_why_it_left(member, request, who))
    context.member_event(group, events.MemberLeft, member.who, left[-1])
    return NONE


def _why_it_left(member: Member, request: Request, who: Any) -> Cause:
    """A member leaves under its own client id and with its member id; whoever else asks removes it."""
    said = causes.said(who.reason)
    if who.member_id != UNKNOWN_MEMBER_ID and request.client_id == member.client_id:
        return Cause(CauseKind.LEFT, (member.who,), said=said)
    asker = Who("", None, request.client_id, request.client_host)
    return Cause(CauseKind.REMOVED, (member.who,), by=asker, said=said)


# ---- expiry


def on_heartbeat_expired(context: Context, group: ClassicGroup, member_id: str) -> Decision | None:
    """DelayedHeartbeat.onExpiration, for members and for pending members alike."""
    if member_id in group.pending_members:
        group.remove(member_id)
        pending = Who(member_id)
        context.member_event(group, events.MemberEvicted, pending, Cause(CauseKind.NEVER_CAME_BACK, (pending,)))
        return try_complete_join(context, group)
    member = group.members.get(member_id)
    if member is None or member.has_satisfied_heartbeat:
        return None
    if member.is_new:
        limit_ms = context.config.new_member_join_timeout_ms
        cause = Cause(CauseKind.TIMED_OUT_IN_FIRST_JOIN, (member.who,), timeout_ms=limit_ms)
    else:
        cause = Cause(CauseKind.TIMED_OUT, (member.who,), timeout_ms=member.session_timeout_ms)
    answer_parked(context, group, member, ErrorCode.UNKNOWN_MEMBER_ID)
    group.remove(member_id)
    context.member_event(group, events.MemberEvicted, member.who, cause)
    if group.state is STABLE or group.state is COMPLETING_REBALANCE:
        return rebalance_or_complete_join(context, group, cause)
    return try_complete_join(context, group)


def on_sync_timer(context: Context, group: ClassicGroup) -> Decision | None:
    """DelayedSync.onExpiration: whoever joined and then did not sync is out, the leader too."""
    if not group.pending_syncs or group.state not in (COMPLETING_REBALANCE, STABLE):
        return None
    missing = [member for member_id, member in group.members.items() if member_id in group.pending_syncs]
    timeout_ms = group.rebalance_timeout_ms
    for member in missing:
        answer_parked(context, group, member, ErrorCode.UNKNOWN_MEMBER_ID)
        group.remove(member.member_id)
        cause = Cause(CauseKind.DID_NOT_SYNC, (member.who,), timeout_ms=timeout_ms)
        context.member_event(group, events.MemberEvicted, member.who, cause)
    everybody = tuple(member.who for member in missing)
    return prepare_rebalance(context, group, Cause(CauseKind.DID_NOT_SYNC, everybody, timeout_ms=timeout_ms))
