"""Partitions as small integers: topics laid end to end in name order, so that bulk work is on lists and sets."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, groupby, repeat
from operator import add, itemgetter, lt, sub

from kohort.assignors.ordering import java_sorted
from kohort.assignors.topic_partitions import NOTHING, Shape, Shapes, TopicPartitions
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
        self._shapes = Shapes()
        self._extents: dict[Shape, tuple[list[int], list[int], int]] = {}
        self._single_shapes: dict[int, Shape] = {}
        self._topic_index: list[int] = []
        self._layouts: dict[tuple[int, ...], tuple[Shape, list[int]]] = {}

    def ids(self, partitions: Mapping[str, Sequence[int]]) -> list[int]:
        """The partitions that exist, as ids; of what has been deleted meanwhile nothing is left."""
        if not partitions:
            return []
        flat = self._shapes.flat(partitions)
        numbers = flat.numbers
        if flat.shape not in self._extents:
            self._extents[flat.shape] = self._extents_of(flat.shape)
        bases, counts, least = self._extents[flat.shape]
        if numbers and min(numbers) >= 0 and (max(numbers) < least or all(map(lt, numbers, counts))):
            return list(map(add, bases, numbers)) if len(self.topics) > 1 else list(numbers)
        return [b + n for b, n, count in zip(bases, numbers, counts, strict=True) if 0 <= n < count]

    def _extents_of(self, shape: Shape) -> tuple[list[int], list[int], int]:
        """The base and the partition count of the topic of each partition of a shape, and the least of the counts."""
        bases: list[int] = []
        counts: list[int] = []
        for topic, length in zip(shape.topics, shape.counts, strict=True):
            base, count = self._extent.get(topic, (0, 0))
            bases += [base] * length
            counts += [count] * length
        return bases, counts, min(counts, default=0)

    def by_topic(self, ids: Iterable[int]) -> TopicPartitions:
        """Back to partition numbers by topic, both in order."""
        if not isinstance(ids, range):
            ids = sorted(ids)
        if not ids:
            return NOTHING
        if len(self.topics) == 1:
            return TopicPartitions(self._single_shape(len(ids)), tuple(ids))
        if not self._topic_index:
            self._topic_index = list(chain.from_iterable(map(repeat, range(len(self.topics)), self.counts)))
        indexes = itemgetter(*ids)(self._topic_index) if len(ids) > 1 else (self._topic_index[ids[0]],)
        layout = self._layouts.get(indexes)
        if layout is None:
            runs = [(index, sum(1 for _ in run)) for index, run in groupby(indexes)]
            shape = self._shapes.get((self.topics[index] for index, _ in runs), (count for _, count in runs))
            layout = self._layouts[indexes] = shape, [self.bases[index] for index in indexes]
        shape, bases = layout
        return TopicPartitions(shape, tuple(map(sub, ids, bases)))

    def _single_shape(self, count: int) -> Shape:
        if count not in self._single_shapes:
            self._single_shapes[count] = self._shapes.get(self.topics, (count,))
        return self._single_shapes[count]

    def of_topic(self, topic: str) -> range:
        base, count = self._extent[topic]
        return range(base, base + count)

    def number_then_topic(self, partition_id: int) -> tuple[int, int]:
        """Sort key: partition number first, so that what is cut off a long list is spread over topics."""
        index = bisect_right(self.bases, partition_id) - 1
        return partition_id - self.bases[index], index
