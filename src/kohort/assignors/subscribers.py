"""Who subscribes to what, in bulk: most groups have few different lists of topics, however many members they have."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from kohort.assignors.ordering import java_sorted
from kohort.assignors.types import ClusterMetadata, Subscription


def topic_sets(subscriptions: Mapping[str, Subscription]) -> set[frozenset[str]]:
    """The different sets of topics that members subscribe to."""
    by_identity = {id(s.topics): s.topics for s in subscriptions.values()}
    return set(map(frozenset, by_identity.values()))


def subscribers_by_topic(
    metadata: ClusterMetadata, subscriptions: Mapping[str, Subscription], members: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """The subscribers of each existing topic, in the order of `members`; topics in the order of their names.

    Topics with the same subscribers share one tuple.
    """
    wanted = topic_sets(subscriptions)
    existing = java_sorted(t for t in frozenset().union(*wanted) if metadata.partition_counts.get(t, 0) > 0)
    if len(wanted) == 1:
        return dict.fromkeys(existing, tuple(members))
    subscribers: dict[str, list[str]] = defaultdict(list)
    for member in members:
        for topic in dict.fromkeys(subscriptions[member].topics):
            subscribers[topic].append(member)
    shared: dict[tuple[str, ...], tuple[str, ...]] = {}
    by_topic = {topic: tuple(subscribers[topic]) for topic in existing}
    return {topic: shared.setdefault(members, members) for topic, members in by_topic.items()}
