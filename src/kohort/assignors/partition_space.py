"""Partitions as small integers: topics laid end to end in name order, so that bulk work is on lists and sets."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, groupby, repeat
from operator import add, lt, sub

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
        self._topic_index: list[int] | None = None
        self._known_extents: dict[tuple[tuple[str, ...], tuple[int, ...]], tuple[list[int], list[int]]] = {}
        self._known_cuts: dict[tuple[int, ...], tuple[list[str], list[int], list[tuple[int, int]] | None]] = {}
        self._extent = dict(zip(self.topics, zip(self.bases, self.counts, strict=True), strict=True))

    def ids(self, partitions: Mapping[str, Sequence[int]]) -> list[int]:
        """The partitions that exist, as ids; of what has been deleted meanwhile nothing is left."""
        numbers = list(chain.from_iterable(partitions.values()))
        if not numbers:
            return numbers
        bases, counts = self._extents(tuple(partitions), tuple(map(len, partitions.values())))
        if min(numbers) >= 0 and all(map(lt, numbers, counts)):
            return list(map(add, bases, numbers))
        return [b + n for b, n, count in zip(bases, numbers, counts, strict=True) if 0 <= n < count]

    def _extents(self, topics: tuple[str, ...], lengths: tuple[int, ...]) -> tuple[list[int], list[int]]:
        """The base and the partition count of the topic of every partition; members mostly are alike in these."""
        known = self._known_extents.get((topics, lengths))
        if known is None:
            bases: list[int] = []
            counts: list[int] = []
            for topic, length in zip(topics, lengths, strict=True):
                base, count = self._extent.get(topic, (0, 0))
                bases += [base] * length
                counts += [count] * length
            known = self._known_extents[topics, lengths] = bases, counts
        return known

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
        if len(self.topics) == 1 or not ids:
            return {self.topics[0]: tuple(ids)} if ids else {}
        if self._topic_index is None:
            self._topic_index = list(chain.from_iterable(map(repeat, range(len(self.topics)), self.counts)))
        indexes = tuple(map(self._topic_index.__getitem__, ids))
        known = self._known_cuts.get(indexes)
        if known is None:
            known = self._known_cuts[indexes] = self._cuts(indexes)
        topics, bases, cuts = known
        numbers = tuple(map(sub, ids, bases))
        if cuts is None:
            return dict(zip(topics, zip(numbers, strict=True), strict=True))
        return {topic: numbers[start:end] for topic, (start, end) in zip(topics, cuts, strict=True)}

    def _cuts(self, indexes: tuple[int, ...]) -> tuple[list[str], list[int], list[tuple[int, int]] | None]:
        """Of sorted ids: the topics, the base of each id, where each topic starts and ends (None: one id each)."""
        bases = [self.bases[index] for index in indexes]
        if len(set(indexes)) == len(indexes):
            return [self.topics[index] for index in indexes], bases, None
        topics, cuts = [], []
        start = 0
        for index, group in groupby(indexes):
            end = start + sum(1 for _ in group)
            topics.append(self.topics[index])
            cuts.append((start, end))
            start = end
        return topics, bases, cuts
