"""Scheme four, the next one (KIP-848): the coordinator assigns again, one member at a time. The real code, as `today`.

Nobody but the coordinator has a view of the group, and it is the one that counts: a group has agreed when the
coordinator takes it to be stable with the members that are there, and each partition has one reader.
"""

from __future__ import annotations

from typing import Any

from kohort.client.types import TopicPartition
from kohort.protocol.messages import ConsumerGroupHeartbeatRequest
from kohort.schemes.meter import View
from kohort.schemes.today import Observer, Today, TodayMember
from kohort.sim.member import SimMember

CHANGING = View(frozenset(), "the group is changing")


class NextObserver(Observer):
    def __init__(self) -> None:
        super().__init__()
        self._view = CHANGING
        self._reading: dict[str, frozenset[int]] = {}

    def assigned(self, member: SimMember, partitions: frozenset[TopicPartition], generation_id: int) -> None:
        mine = frozenset(tp.partition for tp in partitions)
        self._owners.update(dict.fromkeys(mine, member.name))
        self._reads(member, mine)

    def given_up(self, member: SimMember, partitions: frozenset[TopicPartition], lost: bool) -> None:
        """Only these: what it keeps it reads on."""
        self._reads(member, self._reading.get(member.name, frozenset()) - {tp.partition for tp in partitions})

    def _reads(self, member: SimMember, partitions: frozenset[int]) -> None:
        """One that is leaving is not counted on any more, whatever it still gives up."""
        if member.name in self.world.meter.members:
            self._reading[member.name] = partitions
            self.world.meter.reads(member.name, partitions, self._view)

    def member_gone(self, member: SimMember, how: str) -> None:
        self._reading.pop(member.name, None)

    def answered(self, coordinator: Any, call: Any, message: Any, response: Any) -> None:
        super().answered(coordinator, call, message, response)
        if isinstance(message, ConsumerGroupHeartbeatRequest) and (view := self._view_now()) != self._view:
            self._view = view
            for name in self._reading.keys() & self.world.meter.members:
                self.world.meter.reads(name, self._reading[name], view)

    def _view_now(self) -> View:
        group = self.world.group()
        if group is None:
            return self._view  # nobody coordinates right now, and nothing changes
        if group.state_name != "Stable":
            return CHANGING
        return View(frozenset(member.metadata.client_id for member in group.members.values()), group.generation)

    def _tells_of_a_change(self, response: Any) -> bool:
        return response.assignment is not None


class NextMember(TodayMember):
    PROTOCOL = "consumer"

    def _coordinates(self, request: Any) -> bool:
        """Everything is a heartbeat: those that join, leave or acknowledge come with a change, the others with time."""
        if not isinstance(request, ConsumerGroupHeartbeatRequest):
            return super()._coordinates(request)
        return request.member_epoch <= 0 or request.topic_partitions is not None


class Next(Today):
    MEMBER = NextMember
    OBSERVER = NextObserver
