"""The `range` assignor: per topic, contiguous runs of partitions to the members in their order.

Topics with equal partition counts and subscribers are co-partitioned: a member gets the same numbers of each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from kohort.assignors.ordering import sorted_members
from kohort.assignors.racks import member_racks, partition_racks, racks_matter
from kohort.assignors.subscribers import subscribers_by_topic
from kohort.assignors.types import Assignment, Assignor, ClusterMetadata, Subscription


class RangeAssignor(Assignor):
    """Kafka's default. Matches racks where that costs neither balance within a topic nor co-partitioning."""

    name = "range"

    def assign(self, metadata: ClusterMetadata, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        subscribers = subscribers_by_topic(metadata, subscriptions, sorted_members(subscriptions))
        racks = member_racks(subscriptions)
        if racks:
            states = [_TopicState(topic, members, metadata, racks) for topic, members in subscribers.items()]
            if any(state.racks_matter for state in states):
                return _assign_with_racks(states, subscriptions)
        assigned: dict[str, dict[str, tuple[int, ...]]] = {member: {} for member in subscriptions}
        co_partitioned: dict[tuple[int, int], list[str]] = defaultdict(list)
        for topic, members in subscribers.items():
            co_partitioned[id(members), metadata.partition_counts[topic]].append(topic)
        for (_, count), topics in co_partitioned.items():
            members = subscribers[topics[0]]
            run, longer = divmod(count, len(members))
            start = 0
            for i, member in enumerate(members[:count]):
                end = start + run + (i < longer)
                assigned[member].update(dict.fromkeys(topics, tuple(range(start, end))))
                start = end
        return {member: Assignment(partitions) for member, partitions in assigned.items()}


class _TopicState:
    """One topic while it is being dealt out: what is left and how much each member may still get."""

    def __init__(
        self, topic: str, members: tuple[str, ...], metadata: ClusterMetadata, racks: Mapping[str, str]
    ) -> None:
        self.topic = topic
        self.members = members
        self.count = metadata.partition_counts[topic]
        self.member_racks = {member: racks[member] for member in members if member in racks}
        self.replica_racks = partition_racks(metadata, topic)
        self.racks_matter = racks_matter(set(self.member_racks.values()), self.replica_racks)
        self.unassigned = dict.fromkeys(range(self.count))
        self.assigned: dict[str, list[int]] = {member: [] for member in members}
        self.run, self.longer_runs_left = divmod(self.count, len(members))

    def same_rack(self, member: str, partition: int) -> bool:
        rack = self.member_racks.get(member)
        return rack is None or rack in self.replica_racks[partition]

    def room(self, member: str) -> int:
        return max(0, self.run + (self.longer_runs_left > 0) - len(self.assigned[member]))

    def give(self, member: str, partitions: list[int]) -> None:
        mine = self.assigned[member]
        mine += partitions
        if len(mine) > self.run:
            self.longer_runs_left -= 1
        for partition in partitions:
            del self.unassigned[partition]

    def deal(self, may_take: Callable[[str, int], bool]) -> None:
        """Give each member in turn the lowest partitions that it may take, as many as it has room for."""
        for member in self.members:
            room = self.room(member)
            if not self.unassigned:
                return
            fitting = []
            for partition in self.unassigned:
                if len(fitting) == room:
                    break
                if may_take(member, partition):
                    fitting.append(partition)
            if fitting:
                self.give(member, fitting)


def _assign_with_racks(
    states: Sequence[_TopicState], subscriptions: Mapping[str, Subscription]
) -> dict[str, Assignment]:
    co_partitioned: dict[tuple[frozenset[str], int], list[_TopicState]] = defaultdict(list)
    for state in states:
        if state.member_racks:
            co_partitioned[frozenset(state.members), state.count].append(state)
    for group in co_partitioned.values():
        if len(group) > 1:
            _deal_co_partitioned(group)
        elif group[0].racks_matter:
            group[0].deal(group[0].same_rack)
    assigned: dict[str, dict[str, tuple[int, ...]]] = {member: {} for member in subscriptions}
    for state in states:
        state.deal(lambda member, partition: True)
        for member, partitions in state.assigned.items():
            if partitions:
                assigned[member][state.topic] = tuple(sorted(partitions))
    return {member: Assignment(partitions) for member, partitions in assigned.items()}


def _deal_co_partitioned(group: Sequence[_TopicState]) -> None:
    """Give each number, of all topics at once, to the first member with room that shares a rack with every replica."""
    with_room = dict.fromkeys(group[0].members)
    for partition in range(group[0].count):
        for member in with_room:
            if all(state.room(member) > 0 and state.same_rack(member, partition) for state in group):
                for state in group:
                    state.give(member, [partition])
                if all(state.room(member) == 0 for state in group):
                    del with_room[member]
                break
