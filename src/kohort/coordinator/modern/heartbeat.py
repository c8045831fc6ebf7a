"""ConsumerGroupHeartbeat: a member joins, lives, changes what it reads, acknowledges what it gave up, and leaves.

A heartbeat is checked first; then come the steps: the member's record, the group's epoch where what it reads has
changed, the target where the group has a new epoch, and the member's own step towards its target.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from kohort.coordinator import events
from kohort.coordinator.causes import Cause, CauseKind, Who, refusal
from kohort.coordinator.classic.group import ClassicGroup
from kohort.coordinator.context import Context
from kohort.coordinator.effects import Decision, Request, SharedResponse
from kohort.coordinator.group import Group
from kohort.coordinator.modern import leaving, migration, regexes
from kohort.coordinator.modern.group import NO_PARTITIONS, ModernGroup, owned_partitions
from kohort.coordinator.modern.member import UNSAID, Member
from kohort.coordinator.modern.reconcile import Owned, step
from kohort.coordinator.modern.refusing import Refused, check_epoch, check_state
from kohort.coordinator.modern.steps import Steps
from kohort.coordinator.modern.target import update_target
from kohort.coordinator.modern.topics import metadata_hash
from kohort.coordinator.modern_records import CurrentAssignment, Kind, MemberMetadata, MemberState, shared_topics
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import ConsumerGroupHeartbeatResponse

_Response = ConsumerGroupHeartbeatResponse
JOINS = 0
SOON_MS = 200
"""How soon members are to come again while an assignor of one's own is at work."""


def heartbeat(context: Context, request: Request) -> Decision | None:
    group = context.groups.get(request.message.group_id)
    if isinstance(group, ModernGroup) and (member := _says_nothing(group, request)) is not None:
        return _go_on(context, group, member, request)
    try:
        if request.message.member_epoch in (leaving.LEAVES, leaving.LEAVES_FOR_A_WHILE):
            return leaving.leave(context, group, request)
        return _heartbeat(context, group, request)
    except Refused as refused:
        _refuse(context, group, request, refused)
        return None


# ---- a heartbeat that says nothing: most of them


def _says_nothing(group: ModernGroup, request: Request) -> Member | None:
    """The member, where all that it says is known, and the group has the target of its epoch."""
    message = request.message
    member = group.members.get(message.member_id)
    if (
        member is None
        or message.member_epoch <= JOINS
        or message.member_epoch != member.current.member_epoch
        or group.is_stale
        or group.epoch != group.assignment_epoch
        or message.topic_partitions is not None
        or message.subscribed_topic_names is not None
        or message.rebalance_timeout_ms != -1
        or message.subscribed_topic_regex is not None
        or message.server_assignor is not None
        or message.rack_id is not None
        or group.regexes
        or member.current.state is MemberState.UNKNOWN
    ):
        return None
    said = member.metadata
    if message.instance_id not in (None, said.instance_id) or request.client_id != said.client_id:
        return None
    if request.client_host != said.client_host or said.classic is not None:
        return None
    return member


def _go_on(context: Context, group: ModernGroup, member: Member, request: Request) -> Decision | None:
    """It lives, and where it is on its way it makes its next step."""
    decision = None
    had = member.current.assigned
    if not member.is_reconciled_to(group.epoch):
        steps = Steps(context, group)
        reconcile(steps, member.member_id, None, resubscribed=False)
        decision = steps.decision(
            Cause(CauseKind.JOINED, (member.who,)) if group.state is not group.told_state else None
        )
    member.session_timeout_ms = context.config.session_timeout_ms(group.group_id)
    context.reset_heartbeat(member)
    if member.current.assigned is had:
        context.reply(request, _alive(context, group, member))
    else:
        _answer(context, group, member, request, had)
    return decision


# ---- a heartbeat with news


class _Known(NamedTuple):
    """The member that a heartbeat is from, as the group has it; a static one that comes back is `replaced`."""

    member: Member | None
    replaced: Member | None = None


def _heartbeat(context: Context, known_group: Group | None, request: Request) -> Decision | None:
    message = request.message
    joins = message.member_epoch == JOINS
    group = _find_group(context, known_group, joins)
    member_id = message.member_id or context.new_uuid()
    if group is None:
        if known_group is None and context.turns_away():
            most = context.config.max_groups
            raise Refused(
                ErrorCode.GROUP_MAX_SIZE_REACHED, f"The broker has {most} groups, and kohort.max.groups is that."
            )
        migration.check_upgrade(context, known_group, member_id)
    known = _Known(None) if group is None else _find_member(context, group, request, member_id)
    check_state(known.member, owned_partitions(message.topic_partitions))
    regexes.check(context, group, message.subscribed_topic_regex)
    cause = Cause(CauseKind.JOINED, (_who(request, member_id),))
    steps = migration.begin(context, message.group_id, known_group, cause) if group is None else Steps(context, group)
    if group is None and isinstance(known_group, ClassicGroup):
        known = _find_member(context, steps.group, request, member_id)
    _step(steps, known, request, member_id)
    return steps.decision(cause)


def _find_group(context: Context, group: Group | None, joins: bool) -> ModernGroup | None:
    """None where one is to be made, of nothing or of a classic one."""
    if isinstance(group, ModernGroup):
        return group
    if not joins:
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, "There is no such group of the consumer protocol; join it first.")
    return None


def _find_member(context: Context, group: ModernGroup, request: Request, member_id: str) -> _Known:
    message = request.message
    limit = context.config.consumer_max_size
    if len(group.members) >= limit and message.member_id not in group.members:
        raise Refused(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The group has {len(group.members)} members, and group.consumer.max.size is {limit}.",
            size=len(group.members),
            limit=limit,
        )
    if message.instance_id is not None:
        return _find_static(group, request, member_id)
    member = group.members.get(member_id)
    if member is None and message.member_epoch != JOINS:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"The group has no member {member_id}; join it with epoch 0.")
    if member is not None:
        check_epoch(member, message)
    return _Known(member)


def _find_static(group: ModernGroup, request: Request, member_id: str) -> _Known:
    message = request.message
    holder = group.holder(message.instance_id)
    if message.member_epoch != JOINS:
        holder = leaving.static_member(group, message)
        check_epoch(holder, message)
        return _Known(holder)
    if holder is None:
        return _Known(group.members.get(member_id))
    if not holder.is_classic and holder.current.member_epoch != leaving.LEAVES_FOR_A_WHILE:
        raise Refused(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Instance id {message.instance_id} is in use by member {holder.member_id}, which has not left.",
            by=holder.who,
        )
    return _Known(holder, replaced=holder)


def _who(request: Request, member_id: str) -> Who:
    return Who(member_id, request.message.instance_id, request.client_id, request.client_host)


# ---- the steps


def _step(steps: Steps, known: _Known, request: Request, member_id: str) -> None:
    context, group, message = steps.context, steps.group, request.message
    if known.replaced is not None:
        replace_member(steps, known.replaced, member_id)
    elif message.member_epoch == JOINS:
        kind = events.MemberJoined if known.member is None else events.MemberRejoined
        who = _who(request, member_id)
        context.member_event(group, kind, who, Cause(CauseKind.JOINED, (who,)))
    before = group.members.get(member_id)
    old = UNSAID if before is None else before.metadata
    had = {} if before is None else before.current.assigned
    new = _said(old, request)
    if new != old or before is None:
        steps.put(Kind.MEMBER, new, member_id)
    resubscribed = update_subscription(steps, member_id, old, new)
    update_target(steps)
    owned = owned_partitions(message.topic_partitions)
    reconcile(steps, member_id, owned, resubscribed=resubscribed)
    member = group.members[member_id]
    member.session_timeout_ms = context.config.session_timeout_ms(group.group_id)
    context.reset_heartbeat(member)
    _answer(context, group, member, request, had)


def _said(old: MemberMetadata, request: Request) -> MemberMetadata:
    """What the heartbeat leaves out stays as it was."""
    message = request.message
    names, regex = message.subscribed_topic_names, message.subscribed_topic_regex
    return MemberMetadata(
        old.instance_id if message.instance_id is None else message.instance_id,
        old.rack_id if message.rack_id is None else message.rack_id,
        request.client_id,
        request.client_host,
        old.topics if names is None else shared_topics(frozenset(names)),
        old.regex if regex is None else regex,
        old.rebalance_timeout_ms if message.rebalance_timeout_ms == -1 else message.rebalance_timeout_ms,
        old.server_assignor if message.server_assignor is None else message.server_assignor,
    )


def update_subscription(steps: Steps, member_id: str, old: MemberMetadata, new: MemberMetadata) -> bool:
    """A new epoch where the group reads something else now; whether the member does."""
    context, group = steps.context, steps.group
    renamed = new.topics != old.topics
    regex = regexes.update(steps, old.regex or "", new.regex or "")
    if renamed or regex.is_resolved or group.is_stale:
        new_hash = metadata_hash(context.topics, group.subscribed_names())
        who = group.members[member_id].who
        if renamed or regex.is_resolved:
            kind = CauseKind.JOINED if old is UNSAID else CauseKind.METADATA_CHANGED
            steps.bump(Cause(kind, (who,), state=group.state_name))
        elif new_hash != group.metadata_hash:
            steps.bump(Cause(CauseKind.TOPICS_CHANGED))
        group.is_stale = False
        if group.has_partition_metadata:
            steps.put(Kind.PARTITION_METADATA, None)
    return renamed or regex.is_changed


def replace_member(steps: Steps, old: Member, member_id: str) -> None:
    """A static member that comes back under another id has what it had."""
    group = steps.group
    said, had, target = old.metadata, old.current, group.target.get(old.member_id, NO_PARTITIONS)
    for kind in (Kind.CURRENT_MEMBER, Kind.TARGET_MEMBER, Kind.MEMBER):
        steps.put(kind, None, old.member_id)
    steps.put(Kind.MEMBER, said, member_id)
    steps.put(Kind.TARGET_MEMBER, target, member_id)
    steps.put(Kind.CURRENT_MEMBER, had._replace(member_epoch=0, previous_epoch=0), member_id)
    member = group.members[member_id]
    steps.context.member_event(
        group,
        events.MemberReplaced,
        member.who,
        Cause(CauseKind.REPLACED, (member.who,)),
        replaced_member_id=old.member_id,
    )


def reconcile(steps: Steps, member_id: str, owned: Owned | None, *, resubscribed: bool) -> None:
    group = steps.group
    member = group.members[member_id]
    if not resubscribed and member.is_reconciled_to(group.assignment_epoch):
        return
    moved = step(
        member.current,
        group.assignment_epoch,
        group.target.get(member_id, NO_PARTITIONS),
        group.topic_ids_of(steps.context.topics, member.metadata),
        owned,
        group.is_held,
        resubscribed=resubscribed,
    )
    if moved != member.current:
        _move(steps, member, moved)


def _move(steps: Steps, member: Member, moved: CurrentAssignment) -> None:
    before = member.current
    steps.put_current(member.member_id, moved)
    is_same = moved.member_epoch == before.member_epoch and moved[2:] == before[2:]
    if not is_same:  # the epoch before it is nothing that anybody has to be told
        steps.context.member_event(
            steps.group,
            events.MemberReconciled,
            member.who,
            None,
            member_epoch=moved.member_epoch,
            state=moved.state.name,
            assigned=sum(map(len, moved.assigned.values())),
            pending=sum(map(len, moved.pending.values())),
        )


# ---- answers


def _answer(context: Context, group: ModernGroup, member: Member, request: Request, had: Any) -> None:
    message = request.message
    current = member.current
    is_full = (
        message.rebalance_timeout_ms != -1
        and (message.subscribed_topic_names is not None or message.subscribed_topic_regex is not None)
        and message.topic_partitions is not None
    )
    if message.member_epoch == JOINS or is_full or current.assigned != had:
        context.reply(request, _assignment(context, group, member))
    else:
        context.reply(request, _alive(context, group, member))


def _interval_ms(context: Context, group: ModernGroup) -> int:
    interval_ms = context.config.heartbeat_interval_ms(group.group_id)
    return interval_ms if group.assigning is None else min(interval_ms, SOON_MS)  # a target is about to come


def _assignment(context: Context, group: ModernGroup, member: Member) -> Any:
    assigned = member.current.assigned
    rows = [
        _Response.TopicPartitions(topic_id=topic_id, partitions=sorted(assigned[topic_id]))
        for topic_id in sorted(assigned)
    ]
    return _Response(
        member_id=member.member_id,
        member_epoch=member.current.member_epoch,
        heartbeat_interval_ms=_interval_ms(context, group),
        assignment=_Response.Assignment(topic_partitions=rows),
    )


def _alive(context: Context, group: ModernGroup, member: Member) -> SharedResponse:
    """There is nothing to tell the member but its epoch: kept, as it will be so for many heartbeats."""
    interval_ms = _interval_ms(context, group)
    if member.alive is not None and member.alive[0] == interval_ms:
        kept: SharedResponse = member.alive[1]
        return kept
    made = SharedResponse(
        _Response(
            member_id=member.member_id, member_epoch=member.current.member_epoch, heartbeat_interval_ms=interval_ms
        )
    )
    if not member.is_classic and group.assigning is None:
        member.alive = (interval_ms, made)
    return made


def _refuse(context: Context, group: Group | None, request: Request, refused: Refused) -> None:
    error = refused.error
    if group is not None:
        who = _who(request, request.message.member_id)
        data = {"generation": request.message.member_epoch, **refused.data}
        cause = refusal(error, who, group.state_name, **data)
        if error is ErrorCode.FENCED_INSTANCE_ID:
            operation = events.HeartbeatRefused.operation
            context.member_event(group, events.MemberFenced, who, cause, operation=operation)
        else:
            context.member_event(group, events.HeartbeatRefused, who, cause, error=error.name)
    context.reply(request, _Response(error_code=error, error_message=refused.message))
