"""In one generation no partition has two owners; when all is quiet every partition has one.

One exception, Kafka's own (KIP-814): a static leader that comes back to a stable group is told to keep the assignment
as it is, so partitions that were added while it was away stay without an owner until the next rebalance. Another one:
a group whose last member of the consumer protocol comes back as a classic one goes on without a rebalance, and so
without a leader that looks after its topics.
"""

from __future__ import annotations

from typing import Any

from kohort.client.types import TopicPartition
from kohort.coordinator.classic.group import ClassicGroup
from kohort.coordinator.events import EpochStarted, GroupConverted, GroupEvent, RebalanceCompleted
from kohort.protocol.messages import JoinGroupRequest
from kohort.sim.member import SimMember
from kohort.sim.trace import Checker


class KeptAssignments(Checker):
    """Knows the groups of the exception."""

    def __init__(self) -> None:
        self._kept_as_it_was: set[str] = set()

    def answered(self, coordinator: Any, call: Any, message: Any, response: Any) -> None:
        if isinstance(message, JoinGroupRequest) and response.skip_assignment:
            self._kept_as_it_was.add(message.group_id)

    def group_event(self, event: GroupEvent) -> None:
        if isinstance(event, RebalanceCompleted | EpochStarted):
            self._kept_as_it_was.discard(event.group_id)
        elif isinstance(event, GroupConverted) and event.to_type == ClassicGroup.type:
            self._kept_as_it_was.add(event.group_id)


class Ownership(KeptAssignments):
    def __init__(self) -> None:
        super().__init__()
        self._owners: dict[tuple[str, int, int], dict[TopicPartition, SimMember]] = {}
        self._ends: dict[str, int] = {}  # how often a group was removed; its generations then begin anew
        self._ends_then: dict[tuple[str, int], int] = {}  # the same when a client was told a generation

    def group_removed(self, group_id: str) -> None:
        self._ends[group_id] = self._ends.get(group_id, 0) + 1

    def answered(self, coordinator: Any, call: Any, message: Any, response: Any) -> None:
        super().answered(coordinator, call, message, response)
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
            if (missing := wanted - owned.keys()) and group_id not in self._kept_as_it_was:
                self.fail(f"when all is quiet nobody in {group_id} owns {', '.join(map(str, sorted(missing)))}")
