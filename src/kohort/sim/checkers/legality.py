"""Every answer of the coordinator is one that its state allows, and every move of a group is in the table of moves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kohort.coordinator.classic.group import as_classic
from kohort.coordinator.classic.states import COMPLETING_REBALANCE, DEAD, EMPTY, STABLE, TRANSITIONS, GroupState
from kohort.coordinator.events import (
    GenerationStarted,
    GroupConverted,
    GroupEvent,
    GroupLoaded,
    GroupUnloaded,
    MemberReplaced,
    StateChanged,
)
from kohort.coordinator.shard import Life
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import HeartbeatRequest, JoinGroupRequest, OffsetCommitRequest, SyncGroupRequest
from kohort.sim.broker import SimBroker
from kohort.sim.checkers.legal_epochs import EpochLegality
from kohort.sim.trace import Checker

if TYPE_CHECKING:
    from kohort.broker.connection import Call
    from kohort.coordinator.coordinator import Coordinator
    from kohort.sim.world import World

BY_NAME = {state.value: state for state in GroupState}


class Legality(Checker):
    def __init__(self) -> None:
        self._of_epochs = EpochLegality()
        self._states: dict[str, GroupState] = {}
        self._may_commit: dict[Any, bool] = {}
        self._told_at_once: dict[Any, bytes] = {}  # what a SyncGroup of a Stable group is to be answered
        self._replacements: dict[str, int] = {}  # a static member's new id -> the generation in which it came back

    def broker_started(self, broker: SimBroker) -> None:
        self._of_epochs.clear()
        self._states.clear()
        self._may_commit.clear()
        self._told_at_once.clear()
        self._replacements.clear()

    def begin(self, world: World) -> None:
        self._of_epochs.begin(world.journal)

    def group_event(self, event: GroupEvent) -> None:
        if self._of_epochs.concerns(event):
            self._states.pop(event.group_id, None)
            self._say(self._of_epochs.happened(event))
        elif isinstance(event, GroupConverted):
            self._states[event.group_id] = STABLE
        elif isinstance(event, GroupLoaded):
            self._states[event.group_id] = BY_NAME[event.state]
        elif isinstance(event, GroupUnloaded):
            self._states.pop(event.group_id, None)
        elif isinstance(event, StateChanged):
            before, after = BY_NAME[event.from_state], BY_NAME[event.to_state]
            known = self._states.get(event.group_id, EMPTY)
            if known is not before and known is not DEAD:
                self.fail(f"{event.group_id} moves from {before.value}, but it was {known.value}")
            if after not in TRANSITIONS[before]:
                self.fail(f"{event.group_id} moves from {before.value} to {after.value}")
            self._states[event.group_id] = after
        elif isinstance(event, MemberReplaced):
            self._replacements[event.member_id] = event.generation

    def asked(self, coordinator: Coordinator, call: Call, message: Any) -> None:
        """A commit is judged by the state it meets, not by the one in which its record is stored. So is a SyncGroup
        that meets a Stable group: its answer waits for what the partition has to store."""
        if self._of_epochs.asked(coordinator, call, message):
            return
        if isinstance(message, SyncGroupRequest):
            group = as_classic(coordinator.group(message.group_id))
            if group is not None and group.state is STABLE and message.generation_id == group.generation:
                member = group.members.get(message.member_id)
                if member is not None:
                    self._told_at_once[call] = member.assignment
        elif isinstance(message, OffsetCommitRequest):
            group = as_classic(coordinator.group(message.group_id))
            member_id, generation = message.member_id, message.generation_id_or_member_epoch
            if group is None or group.state is EMPTY:
                self._may_commit[call] = generation < 0
                return
            self._may_commit[call] = (
                member_id in group.members
                and generation == group.generation
                and group.state is not COMPLETING_REBALANCE
                and group.members[member_id].instance_id == message.group_instance_id
            )

    def answered(self, coordinator: Coordinator, call: Call, message: Any, response: Any) -> None:
        if (wrong := self._of_epochs.answered(coordinator, call, message, response)) is not None:
            self._say(wrong)
        elif isinstance(message, OffsetCommitRequest):
            self._commit(call, message, response)
        elif isinstance(message, HeartbeatRequest) and response.error_code == ErrorCode.NONE:
            self._member_request(coordinator, "Heartbeat", message, (STABLE, COMPLETING_REBALANCE))
        elif isinstance(message, SyncGroupRequest):
            at_once = self._told_at_once.pop(call, None)
            if response.error_code == ErrorCode.NONE:
                self._sync(coordinator, message, response, at_once)
        elif isinstance(message, JoinGroupRequest) and response.error_code == ErrorCode.NONE:
            self._join(coordinator, message.group_id, response)

    def _join(self, coordinator: Coordinator, group_id: str, response: Any) -> None:
        """An answer is as it was decided: while a static member's new id was being stored others may have come, and
        where much is due at once, as after a stall, a generation ends in the turn that began it."""
        if self._replacements.get(response.member_id) == response.generation_id:
            return
        group = as_classic(coordinator.group(group_id))
        turn = [event for event in coordinator.effects.events if event.group_id == group_id]
        began = [event for event in turn if isinstance(event, GenerationStarted)]
        if began and turn[-1] is not began[-1] and began[-1].generation == response.generation_id:
            return
        if group is None or response.member_id not in group.members:
            self.fail(f"{response.member_id} joined {group_id}, which does not know it")
        elif response.generation_id != group.generation or group.state not in (COMPLETING_REBALANCE, STABLE):
            self.fail(f"a join is answered with generation {response.generation_id} while {group} is {group.state}")

    def _sync(self, coordinator: Coordinator, message: Any, response: Any, at_once: bytes | None) -> None:
        stored = at_once
        if stored is None:
            self._member_request(coordinator, "SyncGroup", message, (STABLE,))
            group = as_classic(coordinator.group(message.group_id))
            stored = response.assignment if group is None else group.members[message.member_id].assignment
        if response.assignment != stored:
            self.fail(f"{message.member_id} is told another assignment than the one stored")

    def _commit(self, call: Call, message: Any, response: Any) -> None:
        accepted = any(p.error_code == ErrorCode.NONE for topic in response.topics for p in topic.partitions)
        if accepted and not self._may_commit.pop(call, True):
            self.fail(
                f"a commit of {message.member_id!r} in generation {message.generation_id_or_member_epoch} of "
                f"{message.group_id} was accepted"
            )

    def _say(self, wrong: str) -> None:
        if wrong:
            self.fail(wrong)

    def _member_request(self, coordinator: Coordinator, api: str, message: Any, states: tuple[GroupState, ...]) -> None:
        group = as_classic(coordinator.group(message.group_id))
        if group is None:
            shards = coordinator.runtime.shards.values()
            if not all(s.life is Life.ACTIVE and not s.state.strays and not s.state.parting for s in shards):
                return  # while a group may be loaded, or be on its way to another partition, its members are believed
            self.fail(f"{api} of {message.member_id} was accepted, there is no group {message.group_id}")
            return
        if message.member_id not in group.members or message.generation_id != group.generation:
            self.fail(
                f"{api} of {message.member_id} in generation {message.generation_id} was accepted; the group is in "
                f"{group.generation} with {sorted(group.members)}"
            )
        if group.state not in states:
            self.fail(f"{api} of {message.member_id} was accepted while {message.group_id} is {group.state.value}")
