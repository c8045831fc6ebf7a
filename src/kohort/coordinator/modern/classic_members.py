"""Classic members of a KIP-848 group: their joins, syncs, heartbeats and leaves, answered from the new state.

Nobody leads and nobody assigns among them: a join is a step of the member towards its target, a sync fetches what it
has, and a heartbeat tells it to join again when the next step is due. Requests at a classic group go on to classic/.
"""

from __future__ import annotations

from typing import Any

from kohort.assignors import ConsumerProtocolError, Subscription, decode_subscription
from kohort.coordinator import causes, events
from kohort.coordinator.causes import Cause, CauseKind, Who
from kohort.coordinator.classic import join as classic_join
from kohort.coordinator.classic import session as classic_session
from kohort.coordinator.classic.group import ClassicGroup
from kohort.coordinator.classic.member import Protocols, protocols_of
from kohort.coordinator.context import Context, MigrationPolicy, who_asks
from kohort.coordinator.effects import Decision, Request
from kohort.coordinator.modern import leaving, migration
from kohort.coordinator.modern.group import ModernGroup, ModernState
from kohort.coordinator.modern.heartbeat import reconcile, replace_member, update_subscription
from kohort.coordinator.modern.member import UNSAID, Member
from kohort.coordinator.modern.refusing import Refused, check_state
from kohort.coordinator.modern.steps import Steps
from kohort.coordinator.modern.target import update_target
from kohort.coordinator.modern_records import ClassicMetadata, Kind, MemberMetadata, MemberState, shared_topics
from kohort.coordinator.timers import Deadline, TimerKind
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import HeartbeatResponse, JoinGroupResponse, LeaveGroupResponse, SyncGroupResponse

REBALANCING = ErrorCode.REBALANCE_IN_PROGRESS
_KNOWN_MEMBER_ID_VERSION = 4
_LEADER_KEEPS_VERSION = 9


# ---- JoinGroup


def join(context: Context, request: Request) -> Decision | None:
    group = context.groups.get(request.message.group_id)
    if type(group) is not ModernGroup or not group.members:
        return classic_join.join(context, request)
    try:
        return _join(context, group, request)
    except Refused as refused:
        context.refused(group, request, events.JoinRefused, refused.error, **refused.data)
        context.reply(request, classic_join.join_response(request, refused.error, request.message.member_id))
        return None


def _join(context: Context, group: ModernGroup, request: Request) -> Decision | None:
    message = request.message
    protocols = protocols_of(message)
    _check_join(context, group, message, protocols)
    is_unknown = not message.member_id
    member_id = message.member_id or f"{request.client_id}-{context.new_uuid()}"
    if is_unknown and message.group_instance_id is None and request.version >= _KNOWN_MEMBER_ID_VERSION:
        context.reply(request, classic_join.join_response(request, ErrorCode.MEMBER_ID_REQUIRED, member_id))
        return None
    replaced = _static(group, message, is_unknown)
    subscription = _subscription(protocols)
    owned = migration.to_ids(context.topics, subscription.owned_partitions)
    check_state(replaced or group.members.get(member_id), owned)
    steps = Steps(context, group)
    if replaced is not None:
        replace_member(steps, replaced, member_id)
    elif member_id not in group.members:
        who = who_asks(request)._replace(member_id=member_id)
        context.member_event(group, events.MemberJoined, who, Cause(CauseKind.JOINED, (who,)))
    return _step(steps, request, member_id, protocols, subscription)


def _check_join(context: Context, group: ModernGroup, message: Any, protocols: Protocols) -> None:
    if context.config.consumer_migration_policy is MigrationPolicy.DISABLED:
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
    limit = context.config.consumer_max_size
    if len(group.members) >= limit and message.member_id not in group.members:
        raise Refused(ErrorCode.GROUP_MAX_SIZE_REACHED, "", size=len(group.members), limit=limit)
    classic = [member.metadata.classic for member in group.members.values() if member.metadata.classic is not None]
    known = [{name for name, _ in metadata.protocols} for metadata in classic]
    if message.protocol_type != migration.CONSUMER or not any(
        all(name in names for names in known) for name, _ in protocols
    ):
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")


def _static(group: ModernGroup, message: Any, is_unknown: bool) -> Member | None:
    """The member whose instance id this one takes over."""
    instance_id = message.group_instance_id
    if instance_id is None:
        return None
    if is_unknown:
        return group.holder(instance_id)
    _find(group, message.member_id, instance_id)
    return None


def _subscription(protocols: Protocols) -> Subscription:
    try:
        return decode_subscription(protocols[0][1])
    except ConsumerProtocolError:
        raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR, "") from None


def _step(
    steps: Steps, request: Request, member_id: str, protocols: Protocols, subscription: Subscription
) -> Decision | None:
    context, group, message = steps.context, steps.group, request.message
    before = group.members.get(member_id)
    old = UNSAID if before is None else before.metadata
    new = MemberMetadata(
        old.instance_id if message.group_instance_id is None else message.group_instance_id,
        subscription.rack_id or old.rack_id,
        request.client_id,
        request.client_host,
        shared_topics(frozenset(subscription.topics)),
        "",
        message.rebalance_timeout_ms,
        old.server_assignor,
        ClassicMetadata(message.session_timeout_ms, protocols),
    )
    if new != old or before is None:
        steps.put(Kind.MEMBER, new, member_id)
    resubscribed = update_subscription(steps, member_id, old, new)
    owned = migration.to_ids(context.topics, subscription.owned_partitions)
    moves_back = old.classic is None and old is not UNSAID and migration.may_downgrade(context, group)
    is_stale = group.assignment_epoch < group.epoch
    if not moves_back:
        update_target(steps)
    if not (moves_back and is_stale):
        reconcile(steps, member_id, owned, resubscribed=resubscribed)
    member = group.members[member_id]
    if moves_back and group.state is ModernState.STABLE and request.version >= _LEADER_KEEPS_VERSION:
        return _back(steps, request, member_id)
    _answer_join(context, member, request, protocols[0][0])
    if moves_back:
        return _back(steps, request, None)
    member.session_timeout_ms = message.session_timeout_ms
    context.reset_heartbeat(member)
    _wait_for(context, group, member, TimerKind.MEMBER_SYNC, anew=True)
    return steps.decision(Cause(CauseKind.REJOINED, (member.who,)))


def _back(steps: Steps, request: Request, leader_id: str | None) -> Decision:
    """The last member of the consumer protocol came back as a classic one. Where all have what they should it leads the
    group from now on, as a leader that comes back (KIP-814); else everybody rejoins."""
    context = steps.context
    before = steps.decision()  # told of while the group is what it was
    decision = migration.downgrade(context, steps.group, leader_id=leader_id)
    if leader_id is not None:
        made = context.groups[steps.group.group_id]
        assert isinstance(made, ClassicGroup)
        context.reply(request, classic_join.kept_response(made, request, leader_id))
    if before is not None:
        decision.records = [*before.records, *decision.records]
        decision.changes = [*before.changes, *decision.changes]
    return decision


def _answer_join(context: Context, member: Member, request: Request, protocol: str) -> None:
    response = JoinGroupResponse(
        generation_id=member.current.member_epoch,
        protocol_type=migration.CONSUMER,
        protocol_name=protocol,
        member_id=member.member_id,
    )
    context.reply(request, response)


def _wait_for(context: Context, group: ModernGroup, member: Member, kind: TimerKind, *, anew: bool = False) -> None:
    """A classic member has its rebalance timeout to join when it is told to, and again to sync."""
    if member.sync is None:
        member.sync = Deadline(kind, group.group_id, member.member_id)
    if anew or member.sync.at_ms is None:
        member.sync.kind = kind
        context.timers.set(member.sync, context.now_ms + max(member.metadata.rebalance_timeout_ms, 0))


# ---- the others


def _find(group: ModernGroup, member_id: str, instance_id: str | None) -> Member:
    member = group.members.get(member_id) if instance_id is None else group.holder(instance_id)
    if member is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, "")
    if member.member_id != member_id:
        raise Refused(ErrorCode.FENCED_INSTANCE_ID, "")
    return member


def _find_classic(group: ModernGroup, message: Any) -> tuple[Member, ClassicMetadata]:
    member = _find(group, message.member_id, message.group_instance_id)
    classic = member.metadata.classic
    if classic is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, "")
    if message.generation_id != member.current.member_epoch:
        raise Refused(ErrorCode.ILLEGAL_GENERATION, "")
    return member, classic


def sync(context: Context, request: Request) -> Decision | None:
    message = request.message
    group = context.groups.get(message.group_id)
    if type(group) is not ModernGroup:
        return classic_session.sync(context, request)
    try:
        member, classic = _find_classic(group, message)
        if (message.protocol_type or migration.CONSUMER) != migration.CONSUMER or (
            message.protocol_name is not None and message.protocol_name != classic.protocols[0][0]
        ):
            raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
        unrevoked = member.current.state is MemberState.UNREVOKED_PARTITIONS
        if group.assignment_epoch > member.current.member_epoch and not unrevoked:
            _wait_for(context, group, member, TimerKind.MEMBER_JOIN)
            raise Refused(REBALANCING, "")
    except Refused as refused:
        if refused.error is not REBALANCING:
            context.refused(group, request, events.SyncRefused, refused.error, generation=message.generation_id)
        context.reply(request, SyncGroupResponse(error_code=refused.error))
        return None
    if member.sync is not None:
        member.sync.cancel()
    context.reset_heartbeat(member)
    assignment = migration.classic_assignment(context.topics, member.current.assigned, classic.protocols[0][1])
    response = SyncGroupResponse(
        protocol_type=message.protocol_type, protocol_name=message.protocol_name, assignment=assignment
    )
    context.reply(request, response)
    return None


def heartbeat(context: Context, request: Request) -> None:
    group = context.groups[request.message.group_id]
    assert isinstance(group, ModernGroup)
    try:
        member, _ = _find_classic(group, request.message)
    except Refused as refused:
        if refused.error is ErrorCode.FENCED_INSTANCE_ID:
            context.fenced(group, request, "Heartbeat")
        context.reply(request, HeartbeatResponse(error_code=refused.error))
        return
    context.reset_heartbeat(member)
    current, error = member.current, ErrorCode.NONE
    if (
        current.member_epoch < group.assignment_epoch
        or current.state is MemberState.UNREVOKED_PARTITIONS
        or (current.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for(member))
    ):
        error = REBALANCING
        _wait_for(context, group, member, TimerKind.MEMBER_JOIN)
    context.reply(request, HeartbeatResponse(error_code=error))


def leave(context: Context, request: Request) -> Decision | None:
    message = request.message
    group = context.groups.get(message.group_id)
    if type(group) is not ModernGroup:
        return classic_session.leave(context, request)
    identity = type(message).MemberIdentity
    going = message.members if request.version >= 3 else [identity(member_id=message.member_id)]
    left: dict[str, Member] = {}
    answers, said = [], ""
    for who in going:
        error = ErrorCode.NONE
        try:
            member = _leaving(group, who)
            left[member.member_id] = member
            said = said or causes.said(who.reason)
        except Refused as refused:
            error = refused.error
        answers.append(
            LeaveGroupResponse.MemberResponse(
                member_id=who.member_id, group_instance_id=who.group_instance_id, error_code=error
            )
        )
    if request.version >= 3:
        context.reply(request, LeaveGroupResponse(members=answers))
    else:
        context.reply(request, LeaveGroupResponse(error_code=answers[0].error_code))
    if not left:
        return None
    members = list(left.values())
    everybody = tuple(member.who for member in members)
    if all(request.client_id == member.metadata.client_id for member in members):
        cause = Cause(CauseKind.LEFT, everybody, said=said)
    else:
        by = Who("", None, request.client_id, request.client_host)
        cause = Cause(CauseKind.REMOVED, everybody, by=by, said=said)
    return leaving.remove(context, group, members, cause)


def _leaving(group: ModernGroup, who: Any) -> Member:
    """An administrator removes a static member by its instance id alone."""
    if who.group_instance_id is not None and not who.member_id:
        holder = group.holder(who.group_instance_id)
        if holder is None:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, "")
        return holder
    return _find(group, who.member_id, who.group_instance_id)
