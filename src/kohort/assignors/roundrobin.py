"""The `roundrobin` assignor: all partitions of all topics in order, dealt one by one to the members in theirs."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

from kohort.assignors.ordering import sorted_members
from kohort.assignors.range import subscribers_by_topic
from kohort.assignors.types import Assignment, Assignor, ClusterMetadata, Subscription


class RoundRobinAssignor(Assignor):
    """Balanced within one where all members subscribe to the same topics; a member is skipped where it does not."""

    name = "roundrobin"

    def assign(self, metadata: ClusterMetadata, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        members = sorted_members(subscriptions)
        seats = {member: seat for seat, member in enumerate(members)}
        assigned: dict[str, dict[str, tuple[int, ...]]] = {member: {} for member in subscriptions}
        next_seat = 0
        for topic, subscribers in subscribers_by_topic(metadata, subscriptions, members).items():
            count, around = metadata.partition_counts[topic], len(subscribers)
            if around == len(members):
                first = next_seat % around
            else:
                first = bisect_left(subscribers, next_seat, key=seats.__getitem__) % around
            # The circle stays the same within a topic, so each subscriber's partitions are one arithmetic series.
            for partition in range(min(count, around)):
                member = subscribers[(first + partition) % around]
                assigned[member][topic] = tuple(range(partition, count, around))
            next_seat = (seats[subscribers[(first + count - 1) % around]] + 1) % len(members)
        return {member: Assignment(partitions) for member, partitions in assigned.items()}
