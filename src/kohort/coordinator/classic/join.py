"""JoinGroup, and what ends a join phase: InitialDelayedJoin, DelayedJoin, the leader's election, the protocol's vote.

Kafka parks a join in a purgatory; here it is parked in its member, and the group's one join timer stands for the
delayed operation. `try_complete_join` is tryComplete, `complete_join` onComplete, `on_join_timer` onExpiration.
"""

from typing import Any, NamedTuple

from kohort.coordinator import causes, events
from kohort.coordinator.causes import Cause, CauseKind, Who
from kohort.coordinator.classic import states
from kohort.coordinator.classic.group import ClassicGroup
from kohort.coordinator.classic.member import UNKNOWN_MEMBER_ID, Member, Protocols, protocols_of
from kohort.coordinator.classic.states import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
)
from kohort.coordinator.context import Context
from kohort.coordinator.effects import Decision, Request
from kohort.coordinator.group import Group
from kohort.coordinator.records import GroupMetadata, StoredGroup
from kohort.coordinator.subscriptions import deals_out, gave_back
from kohort.coordinator.timers import Deadline, TimerKind
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import JoinGroupResponse, SyncGroupResponse

NONE = ErrorCode.NONE


# ---- the request


def join(context: Context, request: Request) -> Decision | None:
    """The group's partition is led and loaded, the group id and the session timeout are in order."""
    message = request.message
    if request.version == 0:
        message.rebalance_timeout_ms = message.session_timeout_ms  # v0 has no rebalance timeout
    group = context.groups.get(message.group_id)
    if group is None:
        if message.member_id != UNKNOWN_MEMBER_ID:
            return refuse(context, None, request, states.JOIN[DEAD], message.member_id)
        if context.turns_away():
            return refuse(context, None, request, ErrorCode.GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID)
        return _join_new_group(context, request)
    if not isinstance(group, ClassicGroup):
        if message.member_id != UNKNOWN_MEMBER_ID:
            return refuse(context, None, request, states.JOIN[DEAD], message.member_id)
        return _join_instead(context, request, group)
    if not accepts(context, group, message.member_id):
        return _turn_away(context, group, request)
    if message.member_id == UNKNOWN_MEMBER_ID:
        return _join_new(context, group, request)
    return _join_existing(context, group, request)


def _join_new_group(context: Context, request: Request) -> Decision:
    """Whatever becomes of the member, the group is in the log from here on; its answer waits for that."""
    group_id = request.message.group_id
    stored = StoredGroup(None, 0, None, None, context.now_ms, ())
    decision = context.decide([GroupMetadata(group_id, stored)])
    group = context.groups[group_id] = ClassicGroup(group_id, context.now_ms)
    nothing = _join_new(context, group, request)
    assert nothing is None, "a group without members has nothing else to store"
    return decision


def _join_instead(context: Context, request: Request, old: Group) -> Decision:
    """A new group in place of an empty one of the other protocol, whose commits it takes."""
    group_id = request.message.group_id
    gone = old.own_tombstones()
    group = ClassicGroup(group_id, context.now_ms)
    group.offsets, group.open_transactions, group.story = old.offsets, old.open_transactions, old.story
    context.groups[group_id] = group
    nothing = _join_new(context, group, request)
    assert nothing is None, "a group without members has nothing else to store"
    stored = StoredGroup(None, 0, None, None, context.now_ms, ())
    return context.decide([*gone, GroupMetadata(group_id, stored)])


def accepts(context: Context, group: ClassicGroup, member_id: str) -> bool:
    """group.max.size: always while the group is empty; by those waiting while it prepares; by its members otherwise."""
    limit = context.config.group_max_size
    if group.state is EMPTY:
        return True
    member = group.members.get(member_id)
    if group.state is PREPARING_REBALANCE:
        return (member is not None and member.parked_join is not None) or group.awaiting_join < limit
    return member is not None or len(group.members) < limit


def _turn_away(context: Context, group: ClassicGroup, request: Request) -> Decision | None:
    """The others need not wait for it: where everybody else has joined, the join phase is over."""
    member = group.members.get(request.message.member_id)
    if member is not None:
        answer_parked(context, group, member, ErrorCode.UNKNOWN_MEMBER_ID)
        group.remove(member.member_id)
        cause = Cause(CauseKind.OVER_MAX_SIZE, (member.who,), limit=context.config.group_max_size)
        context.member_event(group, events.MemberEvicted, member.who, cause)
    else:
        group.remove(request.message.member_id)
    size, limit = len(group.members), context.config.group_max_size
    refuse(context, group, request, ErrorCode.GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID, size=size, limit=limit)
    return try_complete_join(context, group)


def _join_new(context: Context, group: ClassicGroup, request: Request) -> Decision | None:
    message = request.message
    if error := states.JOIN_NEW[group.state]:
        return refuse(context, group, request, error, UNKNOWN_MEMBER_ID)
    protocols = protocols_of(message)
    if not group.supports(message.protocol_type, protocols):
        return refuse(context, group, request, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, UNKNOWN_MEMBER_ID)
    instance_id = message.group_instance_id
    member_id = f"{request.client_id if instance_id is None else instance_id}-{context.new_uuid()}"
    if instance_id is not None and instance_id in group.static_members:
        return _replace_static(context, group, request, protocols, member_id)
    if instance_id is not None or request.version < 4:
        return _add_member(context, group, request, protocols, member_id)
    size, limit = len(group.pending_members), context.config.max_pending_members
    if size >= limit:
        full = ErrorCode.GROUP_MAX_SIZE_REACHED
        return refuse(context, group, request, full, UNKNOWN_MEMBER_ID, size=size, limit=limit)
    _assign_member_id(context, group, request, member_id)
    return None


def _assign_member_id(context: Context, group: ClassicGroup, request: Request, member_id: str) -> None:
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


def _join_existing(context: Context, group: ClassicGroup, request: Request) -> Decision | None:
    message = request.message
    member_id = message.member_id
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
        return _rejoin(context, group, request, member, protocols, CauseKind.REJOINED)
    if group.state is STABLE and group.leader_id == member_id:
        # It sees what the metadata of the members does not show, such as a topic that has grown.
        return _rejoin(context, group, request, member, protocols, CauseKind.LEADER_REJOINED)
    if member.protocols != protocols:
        return _rejoin(context, group, request, member, protocols, CauseKind.METADATA_CHANGED)
    # It lost our answer, or has nothing new to say: the generation stands as it is.
    leads = group.state is COMPLETING_REBALANCE and group.leader_id == member_id
    context.tell(request, joined_response(group, request, member_id, with_members=leads))
    return None


def _rejoin(
    context: Context, group: ClassicGroup, request: Request, member: Member, protocols: Protocols, kind: CauseKind
) -> Decision | None:
    if kind is not CauseKind.REJOINED and group.uses_consumer_protocol and _hands_over(group, member, protocols):
        kind = CauseKind.HANDED_OVER
    cause = Cause(kind, (member.who,), said=causes.said(request.message.reason), state=group.state.value)
    context.member_event(group, events.MemberRejoined, member.who, cause)
    group.update(member, protocols, request.message.rebalance_timeout_ms, request.message.session_timeout_ms)
    park_join(context, group, member, request)
    return rebalance_or_complete_join(context, group, cause)


def _hands_over(group: ClassicGroup, member: Member, protocols: Protocols) -> bool:
    before, now = dict(member.protocols).get(group.protocol or ""), dict(protocols).get(group.protocol or "")
    return before is not None and now is not None and before != now and gave_back(before, now)


def _add_member(
    context: Context, group: ClassicGroup, request: Request, protocols: Protocols, member_id: str
) -> Decision | None:
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
    context.member_event(group, events.MemberJoined, member.who, cause)
    return rebalance_or_complete_join(context, group, cause)


# ---- static members (KIP-345)


def _replace_static(
    context: Context, group: ClassicGroup, request: Request, protocols: Protocols, new_member_id: str
) -> Decision | None:
    message = request.message
    old_id, old_leader_id = group.static_members[message.group_instance_id], group.leader_id
    answer_parked(context, group, group.members[old_id], ErrorCode.FENCED_INSTANCE_ID, old_id)
    member = group.replace_static(message.group_instance_id, old_id, new_member_id)
    context.reset_heartbeat(member)
    group.update(member, protocols, message.rebalance_timeout_ms, message.session_timeout_ms)
    cause = Cause(CauseKind.REPLACED, (member.who,), said=causes.said(message.reason))
    context.member_event(group, events.MemberReplaced, member.who, cause, replaced_member_id=old_id)
    keeps = group.state is STABLE and group.select_protocol() == group.protocol
    if keeps and _leaves_out(context, group, new_member_id):
        cause, keeps = Cause(CauseKind.TOPICS_CHANGED), False  # while it was away; no leader would ever know
    if keeps:
        assignment = {m.member_id: m.assignment for m in group.members.values()}
        decision = context.decide([GroupMetadata(group.group_id, group.to_stored(assignment))])
        if context.fits(decision):
            context.reply(request, _replaced_response(group, request, new_member_id, old_leader_id))
            return decision
    park_join(context, group, member, request)
    if group.state is STABLE or group.state is COMPLETING_REBALANCE:
        # Either the vote changes, or the leader may have been told the old id already.
        return prepare_rebalance(context, group, cause)
    return try_complete_join(context, group)


def _leaves_out(context: Context, group: ClassicGroup, returned_id: str) -> bool:
    """Whether nobody reads a partition of what consumers subscribe to: one that was added while the leader was away, or
    is of a topic that the static member did not read before."""
    names = group.compute_subscribed_topics()
    if not names or (group.leader_id != returned_id and names == group.subscribed_topics):
        return False
    found = {name: context.topics.by_name(name) for name in names}
    counts = {name: topic[1] for name, topic in found.items() if topic is not None}
    return not deals_out(counts, (member.assignment for member in group.members.values()))


def _replaced_response(
    group: ClassicGroup, request: Request, member_id: str, old_leader_id: str | None
) -> JoinGroupResponse:
    if request.version < 9:
        # Told the old leader's id, an older client does not take itself for the leader and does not assign.
        return joined_response(group, request, member_id, leader_id=old_leader_id)
    # KIP-814: a leader that comes back learns the members but keeps the assignment.
    leads = group.leader_id == member_id
    return kept_response(group, request, member_id) if leads else joined_response(group, request, member_id)


def kept_response(group: ClassicGroup, request: Request, member_id: str) -> JoinGroupResponse:
    response = joined_response(group, request, member_id, with_members=True)
    response.skip_assignment = True
    return response


# ---- the join phase


def rebalance_or_complete_join(context: Context, group: ClassicGroup, cause: Cause) -> Decision | None:
    if group.can_rebalance:
        return prepare_rebalance(context, group, cause)
    return try_complete_join(context, group)


def prepare_rebalance(context: Context, group: ClassicGroup, cause: Cause) -> Decision | None:
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
        initial_delay_ms=context.config.group_initial_rebalance_delay_ms if initial else None,
        cause=cause,
    )
    group.move(context, PREPARING_REBALANCE, cause)
    if initial:
        _start_initial_delayed_join(context, group)
    elif group.has_all_members_joined:
        return complete_join(context, group)
    else:
        _start_delayed_join(context, group)
    return None


def _start_delayed_join(context: Context, group: ClassicGroup) -> None:
    group.join_timer.kind = TimerKind.DELAYED_JOIN
    context.timers.set(group.join_timer, context.now_ms + group.rebalance_timeout_ms)


def _start_initial_delayed_join(context: Context, group: ClassicGroup) -> None:
    """Never completes early: it gives the other members of a starting application time to arrive."""
    delay_ms = context.config.group_initial_rebalance_delay_ms
    group.initial_delay_ms = delay_ms
    group.initial_remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
    group.join_timer.kind = TimerKind.INITIAL_DELAYED_JOIN
    context.timers.set(group.join_timer, context.now_ms + delay_ms)


def on_join_timer(context: Context, group: ClassicGroup, kind: TimerKind) -> Decision | None:
    if kind is TimerKind.INITIAL_DELAYED_JOIN and group.new_member_added and group.initial_remaining_ms:
        group.new_member_added = False
        delay_ms = min(context.config.group_initial_rebalance_delay_ms, group.initial_remaining_ms)
        group.initial_remaining_ms = max(group.initial_remaining_ms - group.initial_delay_ms, 0)
        group.initial_delay_ms = delay_ms
        context.timers.set(group.join_timer, context.now_ms + delay_ms)
        return None
    return complete_join(context, group)


def try_complete_join(context: Context, group: ClassicGroup) -> Decision | None:
    """Not the first rebalance of an empty group: InitialDelayedJoin never ends early."""
    if group.state is PREPARING_REBALANCE and group.previous_state is not EMPTY and group.has_all_members_joined:
        return complete_join(context, group)
    return None


def complete_join(context: Context, group: ClassicGroup) -> Decision | None:
    group.join_timer.cancel()
    if missing := [m for m in group.members.values() if m.parked_join is None and m.instance_id is None]:
        timeout_ms = group.rebalance_timeout_ms
        for member in missing:
            group.remove(member.member_id)
            cause = Cause(CauseKind.DID_NOT_REJOIN, (member.who,), timeout_ms=timeout_ms)
            context.member_event(group, events.MemberEvicted, member.who, cause)
    leader_id = group.leader_id
    if not group.elect_joined_leader() and group.members:
        # Only static members are left and none of them came: their sessions decide, and we look again later.
        _start_delayed_join(context, group)
        return None
    if group.leader_id is not None and group.leader_id != leader_id:
        leader = group.members[group.leader_id].who
        context.member_event(group, events.LeaderElected, leader, Cause(CauseKind.LEADER_LATE, (Who(leader_id or ""),)))
    group.new_member_added = False
    group.next_generation(context.now_ms)
    if group.state is EMPTY:
        return _store_empty_group(context, group)
    group.moved(context, causes.members_joined(len(group.members)))
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
    return None


def _answer_joins(context: Context, group: ClassicGroup) -> None:
    for member in group.members.values():
        request = member.parked_join
        if request is not None:
            leads = group.leader_id == member.member_id
            context.tell(request, joined_response(group, request, member.member_id, with_members=leads))
            unpark_join(group, member)
        context.reset_heartbeat(member)
        member.is_new = False
        group.pending_syncs[member.member_id] = None
    context.timers.set(group.sync_timer, context.now_ms + group.rebalance_timeout_ms)


def _store_empty_group(context: Context, group: ClassicGroup) -> Decision:
    group.moved(context, Cause(CauseKind.ALL_LEFT))
    group.rebalance_started_ms = group.rebalance_cause = None
    stored = group.to_stored({})
    return context.decide_when_stored(GroupMetadata(group.group_id, stored), GroupEmptied(group, stored))


class GroupEmptied(NamedTuple):
    """The record of a generation without members. Where it is lost the group is empty all the same; after a crash the
    generation before it comes back, and its members time out."""

    group: ClassicGroup
    stored_group: StoredGroup

    def stored(self, context: Context, error: ErrorCode) -> Decision | None:
        if not error and context.groups.get(self.group.group_id) is self.group:
            self.group.stored = self.stored_group
        return None


# ---- parked requests


def park_join(context: Context, group: ClassicGroup, member: Member, request: Request) -> None:
    """Kafka forgets a join that the same member repeats from another connection; here nobody waits for ever."""
    if member.parked_join is not None:
        old = member.parked_join
        context.reply(old, join_response(old, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
    else:
        group.awaiting_join += 1
    member.parked_join = request


def unpark_join(group: ClassicGroup, member: Member) -> None:
    member.parked_join = None
    group.awaiting_join -= 1


def answer_parked(
    context: Context, group: ClassicGroup, member: Member, error: ErrorCode, member_id: str = UNKNOWN_MEMBER_ID
) -> None:
    """A member that goes away gets its parked requests answered (Kafka leaves a parked sync without an answer)."""
    if member.parked_join is not None:
        context.reply(member.parked_join, join_response(member.parked_join, error, member_id))
        unpark_join(group, member)
    if member.parked_sync is not None:
        context.reply(member.parked_sync, SyncGroupResponse(error_code=error))
        member.parked_sync = None


def reset_assignment(context: Context, group: ClassicGroup, error: ErrorCode) -> None:
    """The assignment under way is void: whoever waits for it has to rejoin."""
    for member in group.members.values():
        member.assignment = b""
        if member.parked_sync is not None:
            context.reply(member.parked_sync, SyncGroupResponse(error_code=error))
            member.parked_sync = None
            context.reset_heartbeat(member)


# ---- responses


def refuse(
    context: Context, group: ClassicGroup | None, request: Request, error: ErrorCode, member_id: str, **data: Any
) -> Decision | None:
    if group is not None:
        context.refused(group, request, events.JoinRefused, error, **data)
    context.reply(request, join_response(request, error, member_id))
    return None


def join_response(request: Request, error: ErrorCode, member_id: str) -> JoinGroupResponse:
    response = JoinGroupResponse(error_code=error, member_id=member_id)
    response.protocol_name = "" if request.version < 7 else None
    return response


def joined_response(
    group: ClassicGroup,
    request: Request,
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


def rebalance_duration(context: Context, group: ClassicGroup) -> int:
    return 0 if group.rebalance_started_ms is None else context.now_ms - group.rebalance_started_ms
