"""From what is owned to what is assigned: commit, revoke, take over; and giving everything up when out or leaving.

Each method is one step and ends by naming the next one. When a step may go on is decided in `member._advance`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kohort.client.commits import NO_GENERATION_ID, Generation
from kohort.client.effects import Action, Assign, Phase, Rebalance, RefreshMetadata, WatchTopics
from kohort.client.group_member import moved
from kohort.client.handing_over import HandingOver
from kohort.client.modern.heartbeats import Heartbeats, Owned
from kohort.client.modern.states import IN_GROUP, STEPS, TRANSITIONS, MemberState
from kohort.client.offset_messages import LEAST_VERSION_WITH_EPOCH
from kohort.client.states import MemberConfig, Purpose, Step
from kohort.client.types import TopicPartition, partition_list
from kohort.protocol.uuids import random_uuid

Ids = Mapping[TopicPartition, bytes]
"""Partitions with the id of their topic: one that was deleted and made anew is another."""

ENDS_AS = {
    MemberState.STABLE: Phase.ENDS,
    MemberState.ACKNOWLEDGING: Phase.ENDS,
    MemberState.FENCED: Phase.FAILS,
}
"""What becomes of a rebalance when a member is done with reconciling; one that leaves by itself counts for neither."""


class Reconciling(HandingOver):
    A_GENERATION = "epoch"
    LEAST_COMMIT_VERSION = LEAST_VERSION_WITH_EPOCH
    STEPS = STEPS
    FIRST_PURPOSE = Purpose.RECONCILE

    def __init__(self, config: MemberConfig, uniform: Callable[[], float]) -> None:
        super().__init__(config, uniform)
        self.state = MemberState.UNSUBSCRIBED
        member_id = random_uuid(bytes(int(uniform() * 256) for _ in range(16)))
        self.generation = Generation(NO_GENERATION_ID, member_id)
        self._heartbeats = Heartbeats(config)
        self._target: dict[bytes, frozenset[int]] = {}
        self._owned_ids: dict[str, bytes] = {}
        self._next_ids: dict[str, bytes] = {}
        self._regex = ""
        self._tell_assigned = False
        """The application hears of its assignment although nothing is added: the first one, and after a revocation."""
        self._began_ms: int | None = None

    def _transition_to(self, state: MemberState) -> None:
        """The only writer of `state`."""
        if state is self.state:
            return
        phase = Phase.BEGINS if state is MemberState.RECONCILING else None
        if self.state is MemberState.RECONCILING:
            phase = ENDS_AS.get(state)
        self.state = moved(self.state, state, TRANSITIONS)
        if phase is not None:
            self._out.add(Rebalance(phase))

    # -- what is owned and what is assigned ---------------------------------------------------------------------------

    @property
    def _epoch(self) -> int:
        return self.generation.generation_id

    def _owned_by_id(self) -> Owned:
        found: dict[bytes, list[int]] = {}
        for topic, number in sorted(self.owned):
            found.setdefault(self._owned_ids[topic], []).append(number)
        return {topic_id: tuple(numbers) for topic_id, numbers in found.items()}

    def _names(self) -> dict[bytes, str]:
        known = {topic_id: topic for topic, topic_id in self._owned_ids.items()}
        if self._snapshot is not None:
            known.update((topic_id, topic) for topic, topic_id in self._snapshot.topic_ids.items())
        return known

    def _wanted(self) -> Ids:
        """What is assigned, as far as metadata knows the topics."""
        names = self._names()
        return {
            TopicPartition(names[topic_id], number): topic_id
            for topic_id, numbers in self._target.items()
            if topic_id in names
            for number in numbers
        }

    def _unknown(self) -> frozenset[bytes]:
        return frozenset(self._target) - frozenset(self._names())

    def _gone(self) -> frozenset[TopicPartition]:
        """Owned, not assigned any more, or of a topic that was made anew."""
        wanted = self._wanted()
        return frozenset(tp for tp in self.owned if wanted.get(tp) != self._owned_ids[tp.topic])

    def _differs(self) -> bool:
        return bool(self._gone() or self._wanted().keys() - self.owned or self._unknown())

    def _interest(self) -> WatchTopics:
        """The names of what an expression matches are the broker's to know: those topics are asked for by their ids."""
        return WatchTopics(super()._interest().topics, frozenset(self._target) if self._regex else frozenset())

    # -- reconciling --------------------------------------------------------------------------------------------------

    def _begin_reconciling(self, target: dict[bytes, frozenset[int]], now_ms: int) -> None:
        self._target = target
        self._watch()
        if self.step is Step.TAKING_OVER and self._taken is None:
            self._pending = None
            self._go(Step.IDLE)
        if self.state is MemberState.JOINING or (self.state is MemberState.STABLE and self._differs()):
            self._transition_to(MemberState.RECONCILING)
            self._began_ms = now_ms if self._began_ms is None else self._began_ms
        if self._unknown():
            self._out.add(RefreshMetadata("topics that were assigned are not known yet"))

    def _reconcile(self, now_ms: int) -> None:
        wanted = self._wanted()
        added = wanted.keys() - self.owned
        if self._gone():
            self._note(f"gives up {partition_list(self._gone())}, as epoch {self._epoch} asks for", now_ms)
            self._begin_giving_up(Purpose.RECONCILE, now_ms + self.config.rebalance_timeout_ms, now_ms)
        elif added or (self._tell_assigned and not self._unknown()):
            self._take_over(wanted, now_ms)
        elif not self._unknown():
            self._reconciled(now_ms)
        elif not self._heartbeats.acknowledged(self._owned_by_id()):
            self._heartbeat.hasten(now_ms)

    def _take_over(self, wanted: Ids, now_ms: int) -> None:
        self._next_ids = {tp.topic: topic_id for tp, topic_id in wanted.items()}
        self._next_auto_commit_ms = now_ms + self.config.auto_commit_interval_ms
        partitions = frozenset(wanted)
        self._go(Step.TAKING_OVER)
        self._offer(Assign(partitions, partitions - self.owned, self._epoch))

    def take(self, now_ms: int) -> Action | None:
        action = super().take(now_ms)
        if isinstance(action, Assign):
            self._owned_ids = self._next_ids
            self._tell_assigned = False
        return action

    def _reconciled(self, now_ms: int) -> None:
        took_ms = now_ms - (self._began_ms if self._began_ms is not None else now_ms)
        self._began_ms = None
        self._note(
            f"epoch {self._epoch} as {self.member_id}, {len(self.owned)} partitions ({partition_list(self.owned)}) "
            f"after {took_ms} ms",
            now_ms,
        )
        if self._heartbeats.acknowledged(self._owned_by_id()):
            self._transition_to(MemberState.STABLE)
        else:
            self._transition_to(MemberState.ACKNOWLEDGING)
            self._heartbeat.hasten(now_ms)

    def _acknowledged(self) -> None:
        """The heartbeat that says so has been sent; meanwhile the assignment may have become another."""
        self._transition_to(MemberState.RECONCILING if self._differs() else MemberState.STABLE)

    # -- giving partitions up -----------------------------------------------------------------------------------------

    def _to_give_up(self) -> tuple[frozenset[TopicPartition], bool]:
        """Which partitions, and whether they are lost already."""
        if self._purpose is Purpose.RECONCILE:
            return self._gone(), False
        return self.owned, not self.generation.valid

    def _given_up(self, now_ms: int) -> None:
        self._go(Step.IDLE)
        if self._purpose is Purpose.LEAVE:
            self._send_leave(now_ms)
        elif self._purpose is Purpose.RECONCILE:
            self._tell_assigned = True
            self._heartbeat.hasten(now_ms)

    # -- queries ------------------------------------------------------------------------------------------------------

    @property
    def subscribed(self) -> bool:
        return super().subscribed or bool(self._regex)

    @property
    def settled(self) -> bool:
        return self.state is MemberState.STABLE and self.step is Step.IDLE

    @property
    def in_group(self) -> bool:
        return self.state in IN_GROUP

    @property
    def standing(self) -> str:
        return f"{self.state.value}, {self.step.value}"

    # -- provided by `member` -----------------------------------------------------------------------------------------

    def _send_leave(self, now_ms: int) -> None:
        raise NotImplementedError
