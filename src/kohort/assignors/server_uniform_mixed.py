"""`uniform` for members whose subscriptions differ: topic by topic, from those who have most to those who have least.

What a member has and still reads it keeps at first; free partitions go to the subscribers with the fewest; then topics
are balanced, one after the other, until a whole round has moved nothing, 16 rounds at most. Topics with many partitions
per subscriber come first.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from kohort.assignors.server import AssignmentError, GroupSpec, partition_count

_ROUNDS = 16
_NOBODY = -1
_signed = Struct(">qq").unpack


def assign_mixed(spec: GroupSpec) -> dict[str, dict[bytes, frozenset[int]]]:
    if not any(member.topic_ids for member in spec.members.values()):
        return {}
    return _Mixed(spec).run()


class _Mixed:
    """Members are numbered; `owners` says for each partition of a topic who has it."""

    def __init__(self, spec: GroupSpec) -> None:
        self.spec = spec
        self.sizes = [0] * len(spec.members)
        self.subscribers: dict[bytes, list[int]] = {}
        for index, member in enumerate(spec.members.values()):
            for topic_id in member.topic_ids:
                self.subscribers.setdefault(topic_id, []).append(index)
        self.owners = {topic_id: [_NOBODY] * partition_count(spec, topic_id) for topic_id in self.subscribers}
        self.order = sorted(self.subscribers, key=self._rank)

    def _rank(self, topic_id: bytes) -> tuple[float, int, tuple[int, ...]]:
        readers = len(self.subscribers[topic_id])
        return -len(self.owners[topic_id]) / readers, readers, _signed(topic_id)

    def run(self) -> dict[str, dict[bytes, frozenset[int]]]:
        self._keep()
        for topic_id in self.order:
            self._fill(topic_id)
        self._balance()
        return self._result()

    def _keep(self) -> None:
        for index, member in enumerate(self.spec.members.values()):
            for topic_id, numbers in member.assigned.items():
                if topic_id in member.topic_ids:
                    owners = self.owners[topic_id]
                    if max(numbers, default=0) >= len(owners):
                        raise AssignmentError(f"{self.spec.topics[topic_id].name} has lost partitions")
                    for number in numbers:
                        owners[number] = index
                    self.sizes[index] += len(numbers)

    def _fill(self, topic_id: bytes) -> None:
        owners = self.owners[topic_id]
        free = [number for number, owner in enumerate(owners) if owner == _NOBODY]
        if free:
            poorest = _Poorest(self._by_size(topic_id), self.sizes)
            for number in free:
                index = poorest.next()
                owners[number] = index
                self.sizes[index] += 1

    def _by_size(self, topic_id: bytes) -> list[int]:
        return sorted(self.subscribers[topic_id], key=lambda index: (self.sizes[index], index))

    # ---- balancing

    def _balance(self) -> None:
        topics = [topic_id for topic_id in self.order if len(self.subscribers[topic_id]) > 1]
        last_moved: bytes | None = None
        for _ in range(_ROUNDS):
            for topic_id in topics:
                if topic_id == last_moved:
                    return  # a whole round, and nothing has moved
                if self._balance_topic(topic_id) or last_moved is None:
                    last_moved = topic_id

    def _balance_topic(self, topic_id: bytes) -> int:
        by_size = self._by_size(topic_id)
        if self.sizes[by_size[-1]] - self.sizes[by_size[0]] <= 1:
            return 0
        owners = self.owners[topic_id]
        had: dict[int, list[int]] = {}
        for number, owner in enumerate(owners):
            had.setdefault(owner, []).append(number)
        poorest, richest = _Poorest(by_size, self.sizes), _Richest(by_size, self.sizes)
        moved = 0
        while richest.level - poorest.level > 1:
            giver = richest.next()
            while giver is not None and not had.get(giver):
                richest.exclude()
                giver = richest.next()
            if giver is None:
                break
            number = had[giver].pop()
            taker = poorest.next()
            if richest.level - poorest.level <= 1:
                break
            owners[number] = taker
            self.sizes[giver] -= 1
            self.sizes[taker] += 1
            moved += 1
        return moved

    def _result(self) -> dict[str, dict[bytes, frozenset[int]]]:
        members = list(self.spec.members)
        given: list[dict[bytes, list[int]]] = [{} for _ in members]
        for topic_id, owners in self.owners.items():
            for number, owner in enumerate(owners):
                given[owner].setdefault(topic_id, []).append(number)
        return {
            member_id: {topic_id: frozenset(numbers) for topic_id, numbers in partitions.items()}
            for member_id, partitions in zip(members, given, strict=True)
        }


class _Poorest:
    """Members in the order of their sizes: whom the next partition goes to, so that the poorest rise together."""

    def __init__(self, members: list[int], sizes: Sequence[int]) -> None:
        self._members = members
        self._sizes = sizes
        self._end = self._next = 0
        self.level = sizes[members[0]] - 1

    def next(self) -> int:
        members, sizes = self._members, self._sizes
        if self._next >= self._end:
            self.level += 1
            while self._end < len(members) and sizes[members[self._end]] == self.level:
                self._end += 1
            self._next = 0
        self._next += 1
        return members[self._next - 1]


class _Richest:
    """The same from the other end; members with nothing to give are set apart, behind the richest."""

    def __init__(self, members: list[int], sizes: Sequence[int]) -> None:
        self._members = members
        self._sizes = sizes
        self._start = self._end = len(members)
        self._next = len(members) - 1
        self.level = sizes[members[-1]] + 1

    def next(self) -> int | None:
        members, sizes = self._members, self._sizes
        if self._next < self._start:
            if self._end <= self._start and self._start > 0:
                self.level = sizes[members[self._start - 1]]
            else:
                self.level -= 1
            while self._start > 0 and sizes[members[self._start - 1]] == self.level:
                self._start -= 1
            self._next = self._end - 1
        if self._next < 0:
            return None
        self._next -= 1
        return members[self._next + 1]

    def exclude(self) -> None:
        """The one that `next` has just named."""
        members, at, last = self._members, self._next + 1, self._end - 1
        members[at], members[last] = members[last], members[at]
        self._end -= 1
