"""Partitions of a KIP-848 group on their way from member to member, from its records: who waited, for whom, how long.

Pure. A hand-over begins when a target gives a partition to another member, and ends when that member has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Place = tuple[str, int]
"""Topic id as Kafka writes it, and partition."""


@dataclass(slots=True)
class HandOver:
    """`from_member` is None where nobody had it; what is not over has no `assigned_ms`."""

    topic_id: str
    partition: int
    from_member: str | None
    to_member: str
    targeted_ms: int
    released_ms: int | None = None
    assigned_ms: int | None = None

    @property
    def waited_ms(self) -> int | None:
        return None if self.assigned_ms is None else self.assigned_ms - self.targeted_ms


class HandOverReader:
    """Records in, oldest first; `done` grows, `under_way` is what somebody waits for still."""

    def __init__(self) -> None:
        self.done: list[HandOver] = []
        self.under_way: dict[Place, HandOver] = {}
        self._held: dict[str, frozenset[Place]] = {}
        self._holder: dict[Place, str] = {}
        self._target: dict[str, frozenset[Place]] = {}

    def read(self, at_ms: int, kind: str, member_id: str | None, data: Mapping[str, Any] | None) -> None:
        if member_id is None:
            return
        if kind == "ConsumerGroupTargetAssignmentMember":
            places = frozenset(_places(data, "topic_partitions"))
            new, gone = places - self._target.get(member_id, frozenset()), self._target.get(member_id, places) - places
            self._target[member_id] = places
            self._targeted(at_ms, member_id, new, gone)
        elif kind == "ConsumerGroupCurrentMemberAssignment":
            self._holds(at_ms, member_id, data)

    def _targeted(self, at_ms: int, member_id: str, new: frozenset[Place], gone: frozenset[Place]) -> None:
        for place in gone:
            if (waiting := self.under_way.get(place)) is not None and waiting.to_member == member_id:
                del self.under_way[place]  # it is another's now, or nobody's
        for place in new:
            holder = self._holder.get(place)
            if holder != member_id:
                self.under_way[place] = HandOver(*place, holder, member_id, at_ms)

    def _holds(self, at_ms: int, member_id: str, data: Mapping[str, Any] | None) -> None:
        assigned = frozenset(_places(data, "assigned_partitions"))
        held = assigned | frozenset(_places(data, "partitions_pending_revocation"))
        for place in self._held.get(member_id, frozenset()) - held:
            if self._holder.get(place) == member_id:
                del self._holder[place]
            if (waiting := self.under_way.get(place)) is not None and waiting.from_member == member_id:
                waiting.released_ms = at_ms
        for place in held:
            self._holder[place] = member_id
        for place in assigned:
            if (waiting := self.under_way.get(place)) is not None and waiting.to_member == member_id:
                waiting.assigned_ms = at_ms
                self.done.append(self.under_way.pop(place))
        self._held[member_id] = held

    def all(self) -> list[HandOver]:
        return [*self.done, *self.under_way.values()]


def _places(data: Mapping[str, Any] | None, name: str) -> Iterator[Place]:
    for one in () if data is None else data.get(name, ()):
        for number in one["partitions"]:
            yield one["topic_id"], number
