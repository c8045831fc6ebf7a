"""The `range` assignor: per topic, contiguous runs of partitions to the members in their order.

Topics with equal partition counts and subscribers are co-partitioned: a member gets the same numbers of each.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from kohort.assignors.ordering import sorted_members
from kohort.assignors.racks import member_racks, partition_racks, racks_matter
from kohort.assignors.subscribers import subscribers_by_topic
from kohort.assignors.types import Assignment, Assignor, ClusterMetadata, Subscription


class RangeAssignor(Assignor):
    """Kafka's default. Matches racks where that costs neither balance within a topic nor co-partitioning."""

    name = "range"

    def assign(self, metadata: ClusterMetadata, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        subscribers = subscribers_by_topic(metadata, subscriptions, sorted_members(subscriptions))
        co_partitioned: dict[tuple[int, int], list[str]] = defaultdict(list)
        for topic, members in subscribers.items():
            co_partitioned[id(members), metadata.partition_counts[topic]].append(topic)
        racks = _Racks(metadata, subscriptions, subscribers)
        assigned: dict[str, dict[str, tuple[int, ...]]] = {member: {} for member in subscriptions}
        for (_, count), topics in co_partitioned.items():
            members = subscribers[topics[0]]
            shares = _share_by_racks(members, count, topics, racks) if racks.matter else _share(members, count)
            for member, numbers in shares:
                assigned[member].update(dict.fromkeys(topics, numbers))
        return {member: Assignment(partitions) for member, partitions in assigned.items()}


def _share(members: Sequence[str], count: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Runs of equal length, the first ones longer by one where that does not work out."""
    run, longer = divmod(count, len(members))
    start = 0
    for i, member in enumerate(members[:count]):
        end = start + run + (i < longer)
        yield member, tuple(range(start, end))
        start = end


class _Racks:
    """Racks of members and partitions; if they matter for one topic, all topics are dealt out by them."""

    def __init__(
        self,
        metadata: ClusterMetadata,
        subscriptions: Mapping[str, Subscription],
        subscribers: Mapping[str, Sequence[str]],
    ) -> None:
        self.of_member = member_racks(subscriptions)
        self.of_topic: dict[str, list[frozenset[str]]] = {}
        self.mattering: set[str] = set()
        if self.of_member:
            different = {id(members): members for members in subscribers.values()}
            racks_of = {
                key: {self.of_member[m] for m in members if m in self.of_member} for key, members in different.items()
            }
            for topic, members in subscribers.items():
                self.of_topic[topic] = partition_racks(metadata, topic)
                if racks_matter(racks_of[id(members)], self.of_topic[topic]):
                    self.mattering.add(topic)
        self.matter = bool(self.mattering)


def _share_by_racks(
    members: Sequence[str], count: int, topics: Sequence[str], racks: _Racks
) -> Iterator[tuple[str, tuple[int, ...]]]:
    table = _Table(members, count)
    if any(member in racks.of_member for member in members):
        if len(topics) > 1:
            everywhere = zip(*(racks.of_topic[topic] for topic in topics), strict=True)
            table.deal_by_number(racks.of_member, [frozenset.intersection(*known) for known in everywhere])
        elif topics[0] in racks.mattering:
            table.deal_by_member(racks.of_member, racks.of_topic[topics[0]])
    table.deal_by_member({}, ())
    return ((member, tuple(sorted(numbers))) for member, numbers in table.assigned.items() if numbers)


class _Table:
    """Partition numbers while they are being dealt out: what is left and how many more each member may get."""

    def __init__(self, members: Sequence[str], count: int) -> None:
        self._left = dict.fromkeys(range(count))
        self._run, self._longer_runs_left = divmod(count, len(members))
        self.assigned: dict[str, list[int]] = {member: [] for member in members}

    def _room(self, member: str) -> int:
        return max(0, self._run + (self._longer_runs_left > 0) - len(self.assigned[member]))

    def _give(self, member: str, numbers: Sequence[int]) -> None:
        self.assigned[member] += numbers
        if len(self.assigned[member]) > self._run:
            self._longer_runs_left -= 1
        for number in numbers:
            del self._left[number]

    def deal_by_member(self, rack_of: Mapping[str, str], replica_racks: Sequence[frozenset[str]]) -> None:
        """To each member in turn the lowest numbers in its rack, as many as it has room for."""
        fitting: dict[str | None, Iterator[int]] = {}
        for member in self.assigned:
            rack = rack_of.get(member)
            if rack not in fitting:
                fitting[rack] = self._left_in(rack, replica_racks)
            numbers = list(islice(fitting[rack], self._room(member)))
            if numbers:
                self._give(member, numbers)

    def _left_in(self, rack: str | None, replica_racks: Sequence[frozenset[str]]) -> Iterator[int]:
        """What is left in a rack, or anywhere; never goes back, since what has been dealt out does not return."""
        for number in list(self._left):
            if number in self._left and (rack is None or rack in replica_racks[number]):
                yield number

    def deal_by_number(self, rack_of: Mapping[str, str], replica_racks: Sequence[frozenset[str]]) -> None:
        """Each number to the first member that has room and is in one of its racks."""
        waiting: dict[str | None, deque[tuple[int, str]]] = defaultdict(deque)
        for place, member in enumerate(self.assigned):
            waiting[rack_of.get(member)].append((place, member))
        for number in list(self._left):
            queues = []
            for rack in (None, *replica_racks[number]):
                queue = waiting[rack]
                while queue and not self._room(queue[0][1]):
                    queue.popleft()
                if queue:
                    queues.append(queue)
            if queues:
                _, member = min(queue[0] for queue in queues)
                self._give(member, (number,))
