"""A partition is given up before it is taken over, whatever protocol its members speak; in the end each has one owner.

One that the coordinator has put out may not know it yet and read on: it is no member, and its commits are refused. So
is a static one that has said that it leaves for a while: what it was to give up goes to others at once. And a static
one of a classic group that has not rejoined in time stays a member, of an older generation, whose commits are refused.
"""

from __future__ import annotations

from typing import Any

from kohort.client.types import TopicPartition
from kohort.coordinator.classic.group import ClassicGroup
from kohort.coordinator.modern.leaving import LEAVES_FOR_A_WHILE
from kohort.coordinator.modern.member import Member
from kohort.sim.member import SimMember
from kohort.sim.trace import Checker


class Epochs(Checker):
    def __init__(self) -> None:
        self._owners: dict[tuple[str, TopicPartition], SimMember] = {}
        self._world: Any = None

    def begin(self, world: Any) -> None:
        self._world = world

    def assigned(self, member: SimMember, partitions: frozenset[TopicPartition], generation_id: int) -> None:
        for tp in partitions:
            other = self._owners.get((member.group_id, tp), member)
            if other is not member and self._both_belong(member, other):
                self.fail(f"{member} takes {tp} over in epoch {generation_id}, which {other} has not given up")
            self._owners[member.group_id, tp] = member

    def _both_belong(self, member: SimMember, other: SimMember) -> bool:
        group = self._world.group_now(member.group_id)
        known = group.members if group is not None else {}
        if isinstance(group, ClassicGroup) and other.member.generation.generation_id != group.generation:
            return False
        return all(_belongs(known.get(one.member.member_id)) for one in (member, other))

    def given_up(self, member: SimMember, partitions: frozenset[TopicPartition], lost: bool) -> None:
        for tp in partitions:
            if self._owners.get((member.group_id, tp)) is member:
                del self._owners[member.group_id, tp]

    def member_gone(self, member: SimMember, how: str) -> None:
        self._owners = {key: owner for key, owner in self._owners.items() if owner is not member}

    def settled(self, world: Any) -> None:
        for member in world.members():
            if not member.member.settled:
                self.fail(f"{member} ({member.protocol}) is {member.member.standing}; {member.member.why_out}")
        for group_id in sorted({member.group_id for member in world.members()}):
            members = [member for member in world.members() if member.group_id == group_id]
            wanted = {tp for tp in world.partitions_there() if any(tp.topic in member.topics for member in members)}
            owned = sorted(tp for member in members for tp in member.member.owned)
            if owned != sorted(wanted):
                self.fail(f"when all is quiet {group_id} has {owned}, {sorted(wanted)} are there")


def _belongs(known: Any) -> bool:
    away = isinstance(known, Member) and known.current.member_epoch == LEAVES_FOR_A_WHILE
    return known is not None and not away
