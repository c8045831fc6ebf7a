"""A member processes only what it owns, without a gap within one ownership."""

from __future__ import annotations

from kohort.client.types import TopicPartition
from kohort.sim.member import SimMember
from kohort.sim.trace import Checker


class Processing(Checker):
    def __init__(self) -> None:
        self._owned: dict[SimMember, frozenset[TopicPartition]] = {}
        self._next: dict[tuple[SimMember, TopicPartition], int] = {}

    def assigned(self, member: SimMember, partitions: frozenset[TopicPartition], generation_id: int) -> None:
        for tp in partitions - self._owned.get(member, frozenset()):
            self._next.pop((member, tp), None)
        self._owned[member] = partitions

    def given_up(self, member: SimMember, partitions: frozenset[TopicPartition], lost: bool) -> None:
        self._owned[member] = self._owned.get(member, frozenset()) - partitions

    def processed(self, member: SimMember, tp: TopicPartition, offset: int, value: bytes) -> None:
        if tp not in self._owned.get(member, frozenset()):
            self.fail(f"{member} processed {tp} at {offset} without owning it")
        expected = self._next.get((member, tp))
        if expected is not None and offset != expected:
            self.fail(f"{member} processed {tp} at {offset} after {expected - 1}")
        self._next[member, tp] = offset + 1

    def member_gone(self, member: SimMember, how: str) -> None:
        self._owned.pop(member, None)
