"""The part of `Legality` that speaks of KIP-848: who is answered without an error may be, by the state the request met.

Commits are the business of `Fenced`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kohort.coordinator.events import EpochStarted, GroupConverted, GroupEvent, GroupLoaded, GroupUnloaded, StateChanged
from kohort.coordinator.modern.group import ModernGroup, ModernState
from kohort.coordinator.modern.leaving import LEAVES_FOR_A_WHILE
from kohort.coordinator.modern.member import Member
from kohort.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    OffsetCommitRequest,
    SyncGroupRequest,
)

if TYPE_CHECKING:
    from kohort.broker.connection import Call
    from kohort.coordinator.coordinator import Coordinator
    from kohort.sim.journal import Journal

MOVES: dict[ModernState, frozenset[ModernState]] = {
    state: frozenset(ModernState) - {state, ModernState.DEAD} for state in ModernState if state is not ModernState.DEAD
}
"""The state follows from epochs and members, so any may follow any; not itself, and nothing follows the end."""
NAMES = {state.value for state in ModernState}
OF_MEMBERS = (HeartbeatRequest, SyncGroupRequest, JoinGroupRequest, OffsetCommitRequest)


class EpochLegality:
    def __init__(self) -> None:
        self._states: dict[str, ModernState] = {}
        self._refused: dict[Call, str] = {}  # why a request must be, or nothing

    def begin(self, journal: Journal) -> None:
        self._journal = journal

    def clear(self) -> None:
        self._states.clear()
        self._refused.clear()

    # ---- what happened

    def concerns(self, event: GroupEvent) -> bool:
        """Whether it is of a group of the consumer protocol."""
        group_id = event.group_id
        if isinstance(event, GroupConverted):
            is_one = event.to_type == ModernGroup.type
        elif isinstance(event, GroupLoaded):
            is_one = self._journal.epoch(group_id).now is not None
        elif isinstance(event, StateChanged):
            # One that was deleted may begin anew as a classic one before that is told, and end in generation 0.
            is_one = group_id in self._states and {event.from_state, event.to_state} <= NAMES and event.generation > 0
        else:
            is_one = isinstance(event, EpochStarted) or group_id in self._states
        if not is_one:
            self._states.pop(group_id, None)
        return is_one

    def happened(self, event: GroupEvent) -> str:
        group_id = event.group_id
        if isinstance(event, GroupConverted):
            self._states[group_id] = ModernState.EMPTY
        elif isinstance(event, GroupLoaded):
            self._states[group_id] = ModernState(event.state)
        elif isinstance(event, GroupUnloaded):
            self._states.pop(group_id, None)
        elif isinstance(event, StateChanged):
            before, after = ModernState(event.from_state), ModernState(event.to_state)
            known = self._states.get(group_id, before)
            self._states[group_id] = after
            if known is not before:
                return f"{group_id} moves from {before.value}, but it was {known.value}"
            if after not in MOVES[before]:
                return f"{group_id} moves from {before.value} to {after.value}"
        else:
            self._states.setdefault(group_id, ModernState.EMPTY)
        return ""

    # ---- requests

    def asked(self, coordinator: Coordinator, call: Call, message: Any) -> bool:
        """Whether it is judged here."""
        if not isinstance(message, (ConsumerGroupHeartbeatRequest, *OF_MEMBERS)):
            return False
        group = coordinator.group(message.group_id)
        if isinstance(message, ConsumerGroupHeartbeatRequest):
            self._refused[call] = _heartbeat(group, message)
            return True
        if not isinstance(group, ModernGroup):
            return False
        self._refused[call] = "" if isinstance(message, OffsetCommitRequest) else _classic(group, message)
        return True

    def answered(self, coordinator: Coordinator, call: Call, message: Any, response: Any) -> str | None:
        """What is wrong with an answer; None where it is none of this."""
        why = self._refused.pop(call, None)
        if why is None:
            moved = isinstance(message, OF_MEMBERS) and isinstance(coordinator.group(message.group_id), ModernGroup)
            return "" if moved else None  # parked in the classic group that it was
        if isinstance(message, OffsetCommitRequest) or response.error_code:
            return ""
        if why:
            return f"{call.entry.name} of {message.member_id} in {message.group_id} was accepted, but {why}"
        epoch = getattr(response, "member_epoch", 0)
        if message_epoch(message) >= 0 and 0 < epoch < message_epoch(message):
            return f"{message.member_id} said epoch {message_epoch(message)} and is told {epoch}"
        return ""


def message_epoch(message: Any) -> int:
    return int(getattr(message, "member_epoch", 0))


def _heartbeat(group: Any, message: Any) -> str:
    epoch = message.member_epoch
    if not isinstance(group, ModernGroup):
        return "there is no such group" if epoch else ""
    if message.instance_id is not None:
        holder = group.holder(message.instance_id)
        if epoch == 0:
            return _unreleased(holder, message)
        if holder is None or holder.member_id != message.member_id:
            return f"{message.instance_id} belongs to {holder}"
    member = group.members.get(message.member_id)
    if member is None:
        return "it is no member" if epoch else ""
    return _epoch(member, message) if epoch > 0 else ""


def _unreleased(holder: Member | None, message: Any) -> str:
    if holder is None or holder.is_classic or holder.current.member_epoch == LEAVES_FOR_A_WHILE:
        return ""
    return f"{message.instance_id} is in use by {holder}"


def _epoch(member: Member, message: Any) -> str:
    current, epoch = member.current, message.member_epoch
    if epoch == current.member_epoch:
        return ""
    said = message.topic_partitions
    owns_no_more = said is not None and all(
        number in current.assigned.get(row.topic_id, {}) for row in said for number in row.partitions
    )
    if epoch == current.previous_epoch and owns_no_more:
        return ""
    return f"it is in epoch {current.member_epoch}"


def _classic(group: ModernGroup, message: Any) -> str:
    """A classic member of such a group."""
    if isinstance(message, JoinGroupRequest):
        return ""
    member = group.members.get(message.member_id)
    if member is None or not member.is_classic:
        return "it is no classic member"
    if message.generation_id != member.current.member_epoch:
        return f"it is in {member.current.member_epoch}"
    return ""
