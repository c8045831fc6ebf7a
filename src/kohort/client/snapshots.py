"""Small conversions around assignments: metadata snapshots for the assignors, sets and maps of partitions. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kohort.assignors import ClusterMetadata
from kohort.client.effects import MetadataSnapshot, TopicSnapshot
from kohort.client.types import TopicPartition


def cluster_metadata(snapshot: MetadataSnapshot, topics: Iterable[str]) -> ClusterMetadata:
    known = {topic: snapshot.topics[topic] for topic in sorted(topics) if topic in snapshot.topics}
    return ClusterMetadata(
        partition_counts={topic: found.partition_count for topic, found in known.items()},
        replica_racks={topic: found.racks for topic, found in known.items() if found.racks},
    )


def partition_set(partitions: Mapping[str, Iterable[int]]) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, number) for topic, numbers in partitions.items() for number in numbers)


def partition_map(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    by_topic: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        by_topic.setdefault(topic, []).append(number)
    return by_topic


def difference(before: Mapping[str, TopicSnapshot], after: Mapping[str, TopicSnapshot]) -> str:
    """Which topics changed, in words: the reason of a rejoin."""
    changes = []
    for topic in sorted({*before, *after}):
        old, new = before.get(topic), after.get(topic)
        if old == new:
            continue
        if old is None:
            changes.append(f"{topic} appeared" + (f" with {new.partition_count} partitions" if new else ""))
        elif new is None:
            changes.append(f"{topic} disappeared")
        elif old.partition_count != new.partition_count:
            changes.append(f"{topic} went from {old.partition_count} to {new.partition_count} partitions")
        else:
            changes.append(f"replicas of {topic} moved to other racks")
    return ", ".join(changes)
