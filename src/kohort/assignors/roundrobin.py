"""The `roundrobin` assignor: all partitions of all topics in order, dealt one by one to the members in theirs."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping

from kohort.assignors.ordering import sorted_members
from kohort.assignors.subscribers import subscribers_by_topic
from kohort.assignors.types import Assignment, Assignor, ClusterMetadata, Subscription


class RoundRobinAssignor(Assignor):
    """Balanced within one where all members subscribe to the same topics; a member is skipped where it does not."""

    name = "roundrobin"

    def assign(self, metadata: ClusterMetadata, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        members = sorted_members(subscriptions)
        seats = {member: seat for seat, member in enumerate(members)}
        assigned: dict[str, dict[str, tuple[int, ...]]] = {member: {} for member in subscriptions}
        alike: dict[tuple[int, int, int], list[str]] = defaultdict(list)
        next_seat = 0
        subscribers = subscribers_by_topic(metadata, subscriptions, members)
        for topic, around in subscribers.items():
            count = metadata.partition_counts[topic]
            first = next_seat if len(around) == len(members) else bisect_left(around, next_seat, key=seats.__getitem__)
            first %= len(around)
            alike[id(around), count, first].append(topic)
            next_seat = (seats[around[(first + count - 1) % len(around)]] + 1) % len(members)
        for (_, count, first), topics in alike.items():
            around = subscribers[topics[0]]
            # The circle does not change within a topic, so what each subscriber gets is an arithmetic series.
            for partition in range(min(count, len(around))):
                series = tuple(range(partition, count, len(around)))
                assigned[around[(first + partition) % len(around)]].update(dict.fromkeys(topics, series))
        return {member: Assignment(partitions) for member, partitions in assigned.items()}
