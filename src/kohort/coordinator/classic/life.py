"""How a classic group comes out of a load, what its deadlines do, and how it ends when its shard does."""

from __future__ import annotations

from kohort.coordinator import events
from kohort.coordinator.causes import Cause, CauseKind
from kohort.coordinator.classic import join, session
from kohort.coordinator.classic.group import ClassicGroup
from kohort.coordinator.classic.states import DEAD
from kohort.coordinator.context import Context
from kohort.coordinator.effects import Decision
from kohort.coordinator.timers import Deadline, TimerKind
from kohort.protocol.errors import ErrorCode


def loaded(context: Context, group: ClassicGroup) -> Decision | None:
    """Members have a whole session timeout to be heard of."""
    if group.stored is None:
        return None  # offsets alone
    for member in group.members.values():
        context.reset_heartbeat(member)
    context.event(
        group,
        events.GroupLoaded,
        state=group.state.value,
        members=len(group.members),
        offsets=sum(map(len, group.offsets.values())),
        cause=Cause(CauseKind.LOADED),
    )
    size, limit = len(group.members), context.config.group_max_size
    if size > limit:  # it was lowered: the group rebalances, and turns the last ones away
        return join.prepare_rebalance(context, group, Cause(CauseKind.OVER_MAX_SIZE, size=size, limit=limit))
    return None


def due(context: Context, group: ClassicGroup, deadline: Deadline) -> Decision | None:
    if deadline.kind is TimerKind.DELAYED_HEARTBEAT:
        return session.on_heartbeat_expired(context, group, deadline.member_id)
    if deadline is group.sync_timer:
        return session.on_sync_timer(context, group)
    if deadline is group.join_timer:
        return join.on_join_timer(context, group, deadline.kind)
    return None


def close(context: Context, group: ClassicGroup, error: ErrorCode, cause: Cause) -> None:
    """Whoever is parked in it gets the error; the shard's timers go as a whole."""
    for member in group.members.values():
        join.answer_parked(context, group, member, error, member.member_id)
    group.move(context, DEAD, cause)
