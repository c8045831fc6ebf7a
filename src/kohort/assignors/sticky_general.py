"""Sticky assignment where members subscribe to different topics: keep what is owned, place the rest, then even out.

Members are numbered in the order of their ids, so that the lightest of several is the least (size, number). Evening out
moves a partition while a subscriber of its topic has at least two fewer; it ends where no single move helps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace

from kohort.assignors.ordering import java_sorted
from kohort.assignors.ownership import Claim, Ownership
from kohort.assignors.partition_space import PartitionSpace
from kohort.assignors.sticky_racks import StickyRacks
from kohort.assignors.types import DEFAULT_GENERATION, Subscription

NOBODY = -1


class GeneralAssignment:
    """Made for one rebalance; `build` returns the partition ids of every member."""

    def __init__(
        self,
        space: PartitionSpace,
        ownership: Ownership,
        racks: StickyRacks,
        claims: Mapping[str, Claim],
        subscriptions: Mapping[str, Subscription],
    ) -> None:
        self._space = space
        self._racks = racks
        self._members = java_sorted(subscriptions)
        self._topics_of = [set(subscriptions[member].topics) for member in self._members]
        self._topic_of = [t for t, count in zip(space.topics, space.counts, strict=True) for _ in range(count)]
        self._subscribers = self._find_subscribers()
        self._owner = [NOBODY] * space.total
        self._sizes = [0] * len(self._members)
        self._previous_owner = self._find_previous_owners(claims, ownership.max_generation)
        self._revocation_required = self._keep_owned(ownership)
        self._moves = _Moves()

    def _find_subscribers(self) -> dict[str, list[int]]:
        subscribers: dict[str, list[int]] = {topic: [] for topic in self._space.topics}
        for number, topics in enumerate(self._topics_of):
            for topic in topics:
                if topic in subscribers:
                    subscribers[topic].append(number)
        return subscribers

    def _find_previous_owners(self, claims: Mapping[str, Claim], max_generation: int) -> dict[int, int]:
        """Who had a partition before the latest generation: where it goes back to if it has to move."""
        latest: dict[int, tuple[int, int]] = {}
        for number, member in enumerate(self._members):
            claim = claims[member]
            generation = DEFAULT_GENERATION if claim.generation is None else claim.generation
            if generation >= max_generation:
                continue
            for partition in self._space.ids(claim.partitions):
                if partition not in latest or generation > latest[partition][0]:
                    latest[partition] = generation, number
        # Kafka would give a partition back even to a member that no longer subscribes to its topic.
        return {p: number for p, (_, number) in latest.items() if self._topic_of[p] in self._topics_of[number]}

    def _keep_owned(self, ownership: Ownership) -> bool:
        """True if a member has to give something up: it left the topic, or is in none of the partition's racks."""
        revoked = False
        for number, member in enumerate(self._members):
            topics = self._topics_of[number]
            for partition in ownership.owned[member]:
                if self._topic_of[partition] not in topics or self._racks.mismatch(member, partition):
                    revoked = True
                else:
                    self._owner[partition] = number
                    self._sizes[number] += 1
        return revoked

    def build(self) -> dict[str, Sequence[int]]:
        topics = sorted(self._space.topics, key=lambda topic: len(self._subscribers[topic]))
        partitions = [p for topic in topics if self._subscribers[topic] for p in self._space.of_topic(topic)]
        unassigned = [p for p in partitions if self._owner[p] == NOBODY]
        starting = not any(self._sizes)
        self._place(unassigned)
        self._even_out(partitions, unassigned, starting)
        assigned: list[list[int]] = [[] for _ in self._members]
        for partition, owner in enumerate(self._owner):
            if owner != NOBODY:
                assigned[owner].append(partition)
        return dict(zip(self._members, assigned, strict=True))

    def _place(self, unassigned: Iterable[int]) -> None:
        """Each partition to the lightest subscriber in one of its racks, then what is left to the lightest of all."""
        if self._racks.of_member:
            in_racks: dict[tuple[str, frozenset[str]], _Pool] = {}
            for partition in unassigned:
                topic, known = self._topic_of[partition], self._racks.of_partition[partition]
                pool = in_racks.get((topic, known))
                if pool is None:
                    pool = in_racks[topic, known] = self._pool_in_racks(topic, known)
                self._give_to_lightest(partition, pool)
        pools = self._pools()
        for partition in unassigned:
            if self._owner[partition] == NOBODY:
                self._give_to_lightest(partition, pools[self._topic_of[partition]])

    def _pool_in_racks(self, topic: str, known: frozenset[str]) -> _Pool:
        rack_of = self._racks.of_member
        racks = [(number, rack_of.get(self._members[number])) for number in self._subscribers[topic]]
        return _Pool(self._sizes, [number for number, rack in racks if rack is None or rack in known])

    def _pools(self) -> dict[str, _Pool]:
        """The subscribers of each topic by size; topics with the same subscribers share one pool."""
        shared: dict[tuple[int, ...], _Pool] = {}
        pools = {}
        for topic, numbers in self._subscribers.items():
            key = tuple(numbers)
            if key not in shared:
                shared[key] = _Pool(self._sizes, numbers)
            pools[topic] = shared[key]
        return pools

    def _give_to_lightest(self, partition: int, pool: _Pool) -> None:
        number = pool.lightest()
        if number != NOBODY:
            self._owner[partition] = number
            self._sizes[number] += 1

    def _even_out(self, partitions: Sequence[int], unassigned: Sequence[int], starting: bool) -> None:
        """Move partitions to lighter members, new ones first; undone unless it makes the group more balanced."""
        movable = [p for p in partitions if len(self._subscribers[self._topic_of[p]]) > 1]
        taking_part = self._members_taking_part()
        owner_before, sizes_before = self._owner.copy(), self._sizes.copy()
        pools = self._pools()
        pools_of: list[list[_Pool]] = [[] for _ in self._members]
        for pool in dict.fromkeys(pools.values()):
            for number in pool.numbers:
                pools_of[number].append(pool)
        if not self._revocation_required:
            new = [p for p in unassigned if len(self._subscribers[self._topic_of[p]]) > 1]
            self._move_while_it_helps(new, pools, pools_of)
        moved = self._move_while_it_helps(movable, pools, pools_of)
        if moved and not starting:
            before = _imbalance([sizes_before[number] for number in taking_part])
            after = _imbalance([self._sizes[number] for number in taking_part])
            if after >= before:
                self._owner = owner_before

    def _members_taking_part(self) -> list[int]:
        """All but those that own every partition of their topics and share none of these topics."""
        shared = [numbers for numbers in self._subscribers.values() if len(numbers) > 1]
        return sorted({number for numbers in shared for number in numbers})

    def _move_while_it_helps(
        self, partitions: Sequence[int], pools: Mapping[str, _Pool], pools_of: Sequence[Sequence[_Pool]]
    ) -> bool:
        sizes, owner = self._sizes, self._owner
        moved_any = moved = False
        while partitions:
            moved = False
            for partition in partitions:
                old = owner[partition]
                new = self._previous_owner.get(partition, old)
                if sizes[old] <= sizes[new] + 1:
                    new = pools[self._topic_of[partition]].lightest()
                    if sizes[old] <= sizes[new] + 1:
                        continue
                self._move(partition, new, pools_of)
                moved = moved_any = True
            if not moved:
                break
        return moved_any

    def _move(self, partition: int, new: int, pools_of: Sequence[Sequence[_Pool]]) -> None:
        topic = self._topic_of[partition]
        partition = self._moves.better_choice(topic, partition, self._owner[partition], new)
        old = self._owner[partition]
        self._moves.record(topic, partition, old, new)
        self._owner[partition] = new
        self._sizes[new] += 1
        self._sizes[old] -= 1
        for pool in pools_of[old]:
            pool.has_become_lighter(old)


class _Pool:
    """Members of which the lightest is wanted again and again. A heap whose entries are corrected when they surface."""

    __slots__ = ("_heap", "_members", "_sizes", "numbers")

    def __init__(self, sizes: list[int], numbers: Sequence[int]) -> None:
        self.numbers = numbers
        self._sizes = sizes
        self._members = len(sizes)
        self._heap = [sizes[number] * self._members + number for number in numbers]
        heapify(self._heap)

    def lightest(self) -> int:
        heap, sizes, members = self._heap, self._sizes, self._members
        while heap:
            size, number = divmod(heap[0], members)
            if size == sizes[number]:
                return number
            if size < sizes[number]:
                heapreplace(heap, sizes[number] * members + number)
            else:
                heappop(heap)
        return NOBODY

    def has_become_lighter(self, number: int) -> None:
        heappush(self._heap, self._sizes[number] * self._members + number)


class _Moves:
    """Where partitions have come from, so that two partitions of a topic do not swap their members for nothing."""

    def __init__(self) -> None:
        self._move_of: dict[int, tuple[int, int]] = {}
        self._partitions: dict[tuple[str, int, int], set[int]] = defaultdict(set)

    def better_choice(self, topic: str, partition: int, old: int, new: int) -> int:
        """Rather than moving `partition` from `old` to `new`, take one back that has moved from `new` to `old`."""
        old, _ = self._move_of.get(partition, (old, NOBODY))
        return min(self._partitions.get((topic, new, old), ()), default=partition)

    def record(self, topic: str, partition: int, old: int, new: int) -> None:
        if partition in self._move_of:
            origin, came_to = self._move_of.pop(partition)
            self._partitions[topic, origin, came_to].discard(partition)
            old = origin
        if old != new:
            self._move_of[partition] = old, new
            self._partitions[topic, old, new].add(partition)


def _imbalance(sizes: Sequence[int]) -> int:
    """Kafka's balance score: the differences in size of all pairs of members, summed up."""
    ordered = sorted(sizes)
    return sum(size * (2 * i - len(ordered) + 1) for i, size in enumerate(ordered))
