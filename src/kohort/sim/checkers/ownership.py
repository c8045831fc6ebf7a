"""In one generation no partition has two owners; when all is quiet every partition has one."""

from __future__ import annotations

from typing import Any

from kohort.client.types import TopicPartition
from kohort.protocol.messages import JoinGroupRequest
from kohort.sim.member import SimMember
from kohort.sim.trace import Checker


class Ownership(Checker):
    def __init__(self) -> None:
        self._owners: dict[tuple[str, int, int], dict[TopicPartition, SimMember]] = {}
        self._ends: dict[str, int] = {}  # how often a group was removed; its generations then begin anew
        self._ends_then: dict[tuple[str, int], int] = {}  # the same when a client was told a generation

    def group_removed(self, group_id: str) -> None:
        self._ends[group_id] = self._ends.get(group_id, 0) + 1

    def answered(self, coordinator: Any, call: Any, message: Any, response: Any) -> None:
        if isinstance(message, JoinGroupRequest):
            self._ends_then[call.client_id, response.generation_id] = self._ends.get(message.group_id, 0)

    def assigned(self, member: SimMember, partitions: frozenset[TopicPartition], generation_id: int) -> None:
        ends = self._ends_then.get((member.name, generation_id), 0)
        owners = self._owners.setdefault((member.group_id, ends, generation_id), {})
        for tp in partitions:
            other = owners.setdefault(tp, member)
            if other is not member and other.instance_id != member.instance_id:
                self.fail(f"{tp} belongs to {other} and to {member} in generation {generation_id} of {member.group_id}")

    def settled(self, world: Any) -> None:
        for group_id in sorted({slot.member.group_id for slot in world.slots if slot.member}):
            members = [member for member in world.members() if member.group_id == group_id]
            wanted = {tp for tp in world.partitions_there() if any(tp.topic in member.topics for member in members)}
            owned: dict[TopicPartition, SimMember] = {}
            for member in members:
                for tp in member.member.owned:
                    if tp in owned:
                        self.fail(f"when all is quiet {tp} belongs to {owned[tp]} and to {member}")
                    if tp.topic not in member.topics:
                        self.fail(f"{member} owns {tp}, which it does not subscribe to")
                    owned[tp] = member
            if missing := wanted - owned.keys():
                self.fail(f"when all is quiet nobody in {group_id} owns {', '.join(map(str, sorted(missing)))}")
