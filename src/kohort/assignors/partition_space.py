"""Partitions as small integers: topics laid end to end in name order, so that bulk work runs on lists and sets of ints."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence

from kohort.assignors.ordering import java_sorted
from kohort.assignors.types import ClusterMetadata


class PartitionSpace:
    """Numbers every partition of the given topics from 0 to `total` - 1; topics without partitions are left out."""

    def __init__(self, metadata: ClusterMetadata, topics: Iterable[str]) -> None:
        counts = metadata.partition_counts
        self.topics = [topic for topic in java_sorted(topics) if counts.get(topic, 0) > 0]
        self.counts = [counts[topic] for topic in self.topics]
        self.bases: list[int] = []
        total = 0
        for count in self.counts:
            self.bases.append(total)
            total += count
        self.total = total
        self._extent = dict(zip(self.topics, zip(self.bases, self.counts, strict=True), strict=True))

    def ids(self, partitions: Mapping[str, Sequence[int]]) -> list[int]:
        """The partitions that exist, as ids; of what has been deleted meanwhile nothing is left."""
        ids: list[int] = []
        for topic, numbers in partitions.items():
            base, count = self._extent.get(topic, (0, 0))
            if len(numbers) == 1:
                number = numbers[0]
                if 0 <= number < count:
                    ids.append(base + number)
            elif numbers:
                if min(numbers) < 0 or max(numbers) >= count:
                    numbers = [number for number in numbers if 0 <= number < count]
                ids += numbers if base == 0 else [base + number for number in numbers]
        return ids

    def of_topic(self, topic: str) -> range:
        base, count = self._extent[topic]
        return range(base, base + count)

    def topic_index(self, partition_id: int) -> int:
        return bisect_right(self.bases, partition_id) - 1

    def number_then_topic(self, partition_id: int) -> tuple[int, int]:
        """Sort key: partition number first, so that what is cut off a long list is spread over topics."""
        index = self.topic_index(partition_id)
        return partition_id - self.bases[index], index

    def by_topic(self, ids: Iterable[int]) -> dict[str, tuple[int, ...]]:
        """Back to partition numbers by topic, both in order."""
        ids = sorted(ids)
        partitions: dict[str, tuple[int, ...]] = {}
        start, size = 0, len(ids)
        while start < size:
            index = bisect_right(self.bases, ids[start]) - 1
            base = self.bases[index]
            beyond = base + self.counts[index]
            end = start + 1
            if end < size and ids[end] < beyond:
                end = bisect_right(ids, beyond - 1, end)
            partitions[self.topics[index]] = tuple(ids[start:end] if base == 0 else [i - base for i in ids[start:end]])
            start = end
        return partitions
