"""JoinGroup, and what ends a join phase: InitialDelayedJoin, DelayedJoin, the leader's election, the protocol's vote.

Kafka parks a join in a purgatory; here it is parked in its member, and the group's one join timer stands for the
delayed operation. `try_complete_join` is tryComplete, `complete_join` onComplete, `on_join_timer` onExpiration.
"""

from typing import Any

from kohort.coordinator import causes, events
from kohort.coordinator.causes import Cause, CauseKind, Who
from kohort.coordinator.classic import states
from kohort.coordinator.classic.group import UNKNOWN_MEMBER_ID, Group, Member, Protocols, protocols_of
from kohort.coordinator.classic.states import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
)
from kohort.coordinator.context import Context
from kohort.coordinator.effects import GroupCreated, GroupEmptied, GroupRequest, StaticMemberStored
from kohort.coordinator.records import GroupMetadata, StoredGroup
from kohort.coordinator.subscriptions import gave_back
from kohort.coordinator.timers import Deadline, TimerKind
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import JoinGroupResponse, SyncGroupResponse

NONE = ErrorCode.NONE


# ---- the request


def join(context: Context, request: GroupRequest, partition: int) -> None:
    """The group's partition is led and loaded, the group id and the session timeout are in order."""
    message = request.message
    if request.version == 0:
        message.rebalance_timeout_ms = message.session_timeout_ms  # v0 has no rebalance timeout
    group = context.groups.get(message.group_id)
    is_new_group = group is None
    if group is None:
        if message.member_id != UNKNOWN_MEMBER_ID:
            return refuse(context, None, request, ErrorCode.UNKNOWN_MEMBER_ID, message.member_id)
        group = context.groups[message.group_id] = Group(message.group_id, partition, context.now_ms)
    appended = len(context.effects.appends)
    if group.deleting:
        refuse(context, group, request, ErrorCode.COORDINATOR_NOT_AVAILABLE, message.member_id)
    elif not accepts(context, group, message.member_id):
        _turn_away(context, group, request)
    elif message.member_id == UNKNOWN_MEMBER_ID:
        _join_new(context, group, request)
    else:
        _join_existing(context, group, request)
    if is_new_group and len(context.effects.appends) == appended:
        _store_new_group(context, group)


def accepts(context: Context, group: Group, member_id: str) -> bool:
    """group.max.size: always while the group is empty; by those waiting while it prepares; by its members otherwise."""
    limit = context.config.group_max_size
    if group.state is EMPTY or group.state is DEAD:
        return True
    member = group.members.get(member_id)
    if group.state is PREPARING_REBALANCE:
        return (member is not None and member.parked_join is not None) or group.awaiting_join < limit
    return member is not None or len(group.members) < limit


def _turn_away(context: Context, group: Group, request: GroupRequest) -> None:
    member = group.members.get(request.message.member_id)
    if member is not None:
        answer_parked(context, group, member, ErrorCode.UNKNOWN_MEMBER_ID)
        group.remove(member.member_id)
        cause = Cause(CauseKind.OVER_MAX_SIZE, (member.who,), limit=context.config.group_max_size)
        context.member_event(group, events.MemberEvicted, member, cause)
    else:
        group.remove(request.message.member_id)
    size, limit = len(group.members), context.config.group_max_size
    refuse(context, group, request, ErrorCode.GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID, size=size, limit=limit)


def _store_new_group(context: Context, group: Group) -> None:
    stored = StoredGroup(None, 0, None, None, group.state_timestamp_ms, ())
    context.append(group.partition, [GroupMetadata(group.group_id, stored)], GroupCreated(group.group_id))


def _join_new(context: Context, group: Group, request: GroupRequest) -> None:
    message = request.message
    if error := states.JOIN_NEW[group.state]:
        return refuse(context, group, request, error, UNKNOWN_MEMBER_ID)
    protocols = protocols_of(message)
    if not group.supports(message.protocol_type, protocols):
        return refuse(context, group, request, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, UNKNOWN_MEMBER_ID)
    instance_id = message.group_instance_id
    member_id = f"{request.client_id if instance_id is None else instance_id}-{context.new_uuid()}"
    if instance_id is not None and instance_id in group.static_members:
        _replace_static(context, group, request, protocols, member_id)
    elif instance_id is not None or request.version < 4:
        _add_member(context, group, request, protocols, member_id)
    else:
        _assign_member_id(context, group, request, member_id)


def _assign_member_id(context: Context, group: Group, request: GroupRequest, member_id: str) -> None:
    """KIP-394: the id first, so that a client that gives up and retries does not leave ghosts behind."""
    expiry = Deadline(TimerKind.DELAYED_HEARTBEAT, group.group_id, member_id)
    group.pending_members[member_id] = expiry
    context.timers.set(expiry, context.now_ms + request.message.session_timeout_ms)
    context.event(
        group,
        events.MemberIdAssigned,
        member_id=member_id,
        client_id=request.client_id,
        client_host=request.client_host,
    )
    context.reply(request, join_response(request, ErrorCode.MEMBER_ID_REQUIRED, member_id))


def _join_existing(context: Context, group: Group, request: GroupRequest) -> None:
    message = request.message
    member_id = message.member_id
    if group.state is DEAD:
        return refuse(context, group, request, states.JOIN[DEAD], member_id)
    protocols = protocols_of(message)
    if not group.supports(message.protocol_type, protocols):
        return refuse(context, group, request, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
    if member_id in group.pending_members:
        if message.group_instance_id is not None:  # a pending member is never static; Kafka fails on it likewise
            return refuse(context, group, request, ErrorCode.UNKNOWN_SERVER_ERROR, UNKNOWN_MEMBER_ID)
        return _add_member(context, group, request, protocols, member_id)
    if error := group.member_error(member_id, message.group_instance_id) or states.JOIN[group.state]:
        return refuse(context, group, request, error, member_id)
    member = group.members[member_id]
    if group.state is PREPARING_REBALANCE:
        _rejoin(context, group, request, member, protocols, CauseKind.REJOINED)
    elif group.state is STABLE and group.leader_id == member_id:
        # It sees what the metadata of the members does not show, such as a topic that has grown.
        _rejoin(context, group, request, member, protocols, CauseKind.LEADER_REJOINED)
    elif member.protocols != protocols:
        _rejoin(context, group, request, member, protocols, CauseKind.METADATA_CHANGED)
    else:
        # It lost our answer, or has nothing new to say: the generation stands as it is.
        leads = group.state is COMPLETING_REBALANCE and group.leader_id == member_id
        context.reply(request, joined_response(group, request, member_id, with_members=leads))


def _rejoin(
    context: Context, group: Group, request: GroupRequest, member: Member, protocols: Protocols, kind: CauseKind
) -> None:
    if kind is not CauseKind.REJOINED and group.uses_consumer_protocol and _hands_over(group, member, protocols):
        kind = CauseKind.HANDED_OVER
    cause = Cause(kind, (member.who,), said=causes.said(request.message.reason), state=group.state.value)
    context.member_event(group, events.MemberRejoined, member, cause)
    group.update(member, protocols, request.message.rebalance_timeout_ms, request.message.session_timeout_ms)
    park_join(context, group, member, request)
    rebalance_or_complete_join(context, group, cause)


def _hands_over(group: Group, member: Member, protocols: Protocols) -> bool:
    before, now = dict(member.protocols).get(group.protocol or ""), dict(protocols).get(group.protocol or "")
    return before is not None and now is not None and before != now and gave_back(before, now)


def _add_member(context: Context, group: Group, request: GroupRequest, protocols: Protocols, member_id: str) -> None:
    message = request.message
    heartbeat = group.pending_members.get(member_id) or Deadline(TimerKind.DELAYED_HEARTBEAT, group.group_id, member_id)
    member = Member(
        heartbeat.member_id,
        message.group_instance_id,
        request.client_id,
        request.client_host,
        message.rebalance_timeout_ms,
        message.session_timeout_ms,
        protocols,
        heartbeat,
    )
    member.is_new = True
    if group.state is PREPARING_REBALANCE and group.previous_state is EMPTY:
        group.new_member_added = True
    group.add(member, request, message.protocol_type)
    # Its client cannot send heartbeats yet and may be gone without our knowing, so the wait itself has a limit.
    context.reset_heartbeat(member, context.config.new_member_join_timeout_ms)
    cause = Cause(CauseKind.JOINED, (member.who,), said=causes.said(message.reason))
    context.member_event(group, events.MemberJoined, member, cause)
    rebalance_or_complete_join(context, group, cause)


# ---- static members (KIP-345)


def _replace_static(
    context: Context, group: Group, request: GroupRequest, protocols: Protocols, new_member_id: str
) -> None:
    message = request.message
    old_id = group.static_members[message.group_instance_id]
    old = group.members[old_id]
    then = StaticMemberStored(
        group.group_id,
        message.group_instance_id,
        old_id,
        new_member_id,
        group.leader_id,
        old.protocols,
        old.rebalance_timeout_ms,
        old.session_timeout_ms,
        request.version,
    )
    answer_parked(context, group, old, ErrorCode.FENCED_INSTANCE_ID, old_id)
    member = group.replace_static(message.group_instance_id, old_id, new_member_id)
    context.reset_heartbeat(member)
    group.update(member, protocols, message.rebalance_timeout_ms, message.session_timeout_ms)
    park_join(context, group, member, request)
    cause = Cause(CauseKind.REPLACED, (member.who,), said=causes.said(message.reason))
    context.member_event(group, events.MemberReplaced, member, cause, replaced_member_id=old_id)
    if group.state is STABLE and group.select_protocol() == group.protocol:
        assignment = {m.member_id: m.assignment for m in group.members.values()}
        context.append(group.partition, [GroupMetadata(group.group_id, group.to_stored(assignment))], then)
    elif group.state is STABLE or group.state is COMPLETING_REBALANCE:
        # Either the vote changes, or the leader may have been told the old id already.
        prepare_rebalance(context, group, cause)
    else:
        try_complete_join(context, group)


def static_member_stored(context: Context, then: StaticMemberStored, error: ErrorCode) -> None:
    group = context.groups.get(then.group_id)
    member = group.members.get(then.new_member_id) if group is not None else None
    if group is None or member is None or member.parked_join is None or group.state is not STABLE:
        return  # overtaken: left, replaced again, or waiting in the rebalance that began meanwhile
    request = member.parked_join
    unpark_join(group, member)
    if error:
        group.update(member, then.old_protocols, then.old_rebalance_timeout_ms, then.old_session_timeout_ms)
        restored = group.replace_static(then.instance_id, then.new_member_id, then.old_member_id)
        context.reset_heartbeat(restored)
        response = joined_response(group, request, UNKNOWN_MEMBER_ID, leader_id=then.old_leader_id)
        response.error_code = error
    elif then.version >= 9:
        # KIP-814: a leader that comes back learns the members but keeps the assignment.
        leads = group.leader_id == then.new_member_id
        response = joined_response(group, request, then.new_member_id, with_members=leads)
        response.skip_assignment = leads
    else:
        # Told the old leader's id, an older client does not take itself for the leader and does not assign.
        response = joined_response(group, request, then.new_member_id, leader_id=then.old_leader_id)
    context.reply(request, response)


# ---- the join phase


def rebalance_or_complete_join(context: Context, group: Group, cause: Cause) -> None:
    if group.can_rebalance:
        prepare_rebalance(context, group, cause)
    else:
        try_complete_join(context, group)


def prepare_rebalance(context: Context, group: Group, cause: Cause) -> None:
    if group.state is COMPLETING_REBALANCE:
        reset_assignment(context, group, ErrorCode.REBALANCE_IN_PROGRESS)
    group.pending_syncs.clear()
    group.sync_timer.cancel()
    if group.rebalance_started_ms is None:
        group.rebalance_started_ms, group.rebalance_cause = context.now_ms, cause
    initial = group.state is EMPTY
    context.event(
        group,
        events.RebalanceStarted,
        members=len(group.members),
        rebalance_timeout_ms=group.rebalance_timeout_ms,
        cause=cause,
    )
    context.transition(group, PREPARING_REBALANCE, cause)
    if initial:
        _start_initial_delayed_join(context, group)
    elif group.has_all_members_joined:
        complete_join(context, group)
    else:
        _start_delayed_join(context, group)


def _start_delayed_join(context: Context, group: Group) -> None:
    group.join_timer.kind = TimerKind.DELAYED_JOIN
    context.timers.set(group.join_timer, context.now_ms + group.rebalance_timeout_ms)


def _start_initial_delayed_join(context: Context, group: Group) -> None:
    """Never completes early: it gives the other members of a starting application time to arrive."""
    delay_ms = context.config.group_initial_rebalance_delay_ms
    group.initial_delay_ms = delay_ms
    group.initial_remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
    group.join_timer.kind = TimerKind.INITIAL_DELAYED_JOIN
    context.timers.set(group.join_timer, context.now_ms + delay_ms)


def on_join_timer(context: Context, group: Group, kind: TimerKind) -> None:
    if kind is TimerKind.INITIAL_DELAYED_JOIN and group.new_member_added and group.initial_remaining_ms:
        group.new_member_added = False
        delay_ms = min(context.config.group_initial_rebalance_delay_ms, group.initial_remaining_ms)
        group.initial_remaining_ms = max(group.initial_remaining_ms - group.initial_delay_ms, 0)
        group.initial_delay_ms = delay_ms
        context.timers.set(group.join_timer, context.now_ms + delay_ms)
    else:
        complete_join(context, group)


def try_complete_join(context: Context, group: Group) -> None:
    if group.state is PREPARING_REBALANCE and group.previous_state is not EMPTY and group.has_all_members_joined:
        complete_join(context, group)


def complete_join(context: Context, group: Group) -> None:
    group.join_timer.cancel()
    if missing := [m for m in group.members.values() if m.parked_join is None and m.instance_id is None]:
        timeout_ms = group.rebalance_timeout_ms
        for member in missing:
            group.remove(member.member_id)
            cause = Cause(CauseKind.DID_NOT_REJOIN, (member.who,), timeout_ms=timeout_ms)
            context.member_event(group, events.MemberEvicted, member, cause)
    leader_id = group.leader_id
    if not group.elect_joined_leader() and group.members:
        # Only static members are left and none of them came: their sessions decide, and we look again later.
        return _start_delayed_join(context, group)
    if group.leader_id is not None and group.leader_id != leader_id:
        leader = group.members[group.leader_id]
        context.member_event(group, events.LeaderElected, leader, Cause(CauseKind.LEADER_LATE, (Who(leader_id or ""),)))
    group.new_member_added = False
    group.next_generation(context.now_ms)
    if group.state is EMPTY:
        return _store_empty_group(context, group)
    context.state_changed(group, Cause(CauseKind.MEMBERS_JOINED, size=len(group.members)))
    context.event(
        group,
        events.GenerationStarted,
        protocol=group.protocol or "",
        leader_id=group.leader_id or "",
        members=len(group.members),
        duration_ms=rebalance_duration(context, group),
        cause=group.rebalance_cause,
    )
    _answer_joins(context, group)


def _answer_joins(context: Context, group: Group) -> None:
    for member in group.members.values():
        request = member.parked_join
        if request is not None:
            leads = group.leader_id == member.member_id
            context.reply(request, joined_response(group, request, member.member_id, with_members=leads))
            unpark_join(group, member)
        context.reset_heartbeat(member)
        member.is_new = False
        group.pending_syncs[member.member_id] = None
    context.timers.set(group.sync_timer, context.now_ms + group.rebalance_timeout_ms)


def _store_empty_group(context: Context, group: Group) -> None:
    context.state_changed(group, Cause(CauseKind.ALL_LEFT))
    group.rebalance_started_ms = group.rebalance_cause = None
    stored = group.to_stored({})
    context.append(
        group.partition, [GroupMetadata(group.group_id, stored)], GroupEmptied(group.group_id, group.generation)
    )


def group_created(context: Context, then: GroupCreated, error: ErrorCode) -> None:
    """Without its first record the group never was; those who already wait in it are told so."""
    if not error:
        return
    group = context.groups.get(then.group_id)
    if group is None or group.stored is not None:
        return
    for member in list(group.members.values()):
        answer_parked(context, group, member, error)
        group.remove(member.member_id)
    for member_id in list(group.pending_members):
        group.remove(member_id)
    group.join_timer.cancel()
    group.sync_timer.cancel()
    context.transition(group, DEAD, Cause(CauseKind.GROUP_NOT_STORED, error=error.name))
    if not group.offsets:
        del context.groups[then.group_id]


# ---- parked requests


def park_join(context: Context, group: Group, member: Member, request: GroupRequest) -> None:
    """Kafka forgets a join that the same member repeats from another connection; here nobody waits for ever."""
    if member.parked_join is not None:
        old = member.parked_join
        context.reply(old, join_response(old, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
    else:
        group.awaiting_join += 1
    member.parked_join = request


def unpark_join(group: Group, member: Member) -> None:
    member.parked_join = None
    group.awaiting_join -= 1


def answer_parked(
    context: Context, group: Group, member: Member, error: ErrorCode, member_id: str = UNKNOWN_MEMBER_ID
) -> None:
    """A member that goes away gets its parked requests answered (Kafka leaves a parked sync without an answer)."""
    if member.parked_join is not None:
        context.reply(member.parked_join, join_response(member.parked_join, error, member_id))
        unpark_join(group, member)
    if member.parked_sync is not None:
        context.reply(member.parked_sync, SyncGroupResponse(error_code=error))
        member.parked_sync = None


def reset_assignment(context: Context, group: Group, error: ErrorCode) -> None:
    """The assignment under way is void: whoever waits for it has to rejoin."""
    for member in group.members.values():
        member.assignment = b""
        if member.parked_sync is not None:
            context.reply(member.parked_sync, SyncGroupResponse(error_code=error))
            member.parked_sync = None
            context.reset_heartbeat(member)


# ---- responses


def refuse(
    context: Context, group: Group | None, request: GroupRequest, error: ErrorCode, member_id: str, **data: Any
) -> None:
    if group is not None:
        context.refused(group, request, events.JoinRefused, error, **data)
    context.reply(request, join_response(request, error, member_id))


def join_response(request: GroupRequest, error: ErrorCode, member_id: str) -> JoinGroupResponse:
    response = JoinGroupResponse(error_code=error, member_id=member_id)
    response.protocol_name = "" if request.version < 7 else None
    return response


def joined_response(
    group: Group,
    request: GroupRequest,
    member_id: str,
    *,
    with_members: bool = False,
    leader_id: str | None = None,
) -> JoinGroupResponse:
    protocol = group.protocol
    make = JoinGroupResponse.JoinGroupResponseMember
    members = (
        [
            make(member_id=m.member_id, group_instance_id=m.instance_id, metadata=m.metadata(protocol))
            for m in group.members.values()
        ]
        if with_members
        else []
    )
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=(protocol or "") if request.version < 7 else (protocol or None),
        leader=(group.leader_id if leader_id is None else leader_id) or "",
        member_id=member_id,
        members=members,
    )


def rebalance_duration(context: Context, group: Group) -> int:
    return 0 if group.rebalance_started_ms is None else context.now_ms - group.rebalance_started_ms
