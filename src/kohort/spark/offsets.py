"""Offsets as users write them (Spark's JSON) and as a query keeps them in its checkpoint. Pure values, no I/O."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from kohort.client.types import TopicPartition

LATEST = -1
EARLIEST = -2
TASK_OFFSETS = 32_768
"""Ranges are read by one task together up to so many offsets, which cost less to read than a task does."""
TASK_OFFSETS_LEAST, TASK_OFFSETS_MOST = 8_192, 1_000_000
"""Where the number of cores is known, ranges share tasks to get one for each core. Fewer offsets are not worth a task
even on an idle core; more are about a second's work, and tasks should still even out among cores."""

Ranges = dict[TopicPartition, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class OffsetSpec:
    """Where to start or end: `number` for every partition, or `by_partition` for each; offsets or timestamps (ms).

    As offsets, -1 is latest and -2 earliest, as in Kafka.
    """

    kind: Literal["offset", "timestamp"]
    number: int | None = None
    by_partition: Mapping[TopicPartition, int] = field(default_factory=dict)
    missing_timestamp: Literal["error", "latest"] = "error"

    @property
    def is_everywhere(self) -> bool:
        return self.number is not None

    def of(self, partition: TopicPartition) -> int | None:
        return self.number if self.number is not None else self.by_partition.get(partition)


SPEC_EARLIEST = OffsetSpec("offset", EARLIEST)
SPEC_LATEST = OffsetSpec("offset", LATEST)


def parse_json(text: str, what: str, least: int) -> dict[TopicPartition, int]:
    """`{"topic": {"0": 23, "1": -1}}`; ValueError in plain words else."""
    example = f'{what} must be JSON such as {{"orders": {{"0": 23, "1": 42}}}}'
    offsets: dict[TopicPartition, int] = {}
    for topic, partitions in _topics(text, example).items():
        if not isinstance(partitions, dict):
            raise ValueError(f"{example}; {topic!r} has {json.dumps(partitions)}")
        for partition, number in partitions.items():
            if not str(partition).isdigit() or isinstance(number, bool) or not isinstance(number, int):
                raise ValueError(f"{example}; {topic!r} has {json.dumps({partition: number})}")
            if number < least:
                raise ValueError(f"{what} of {topic}-{partition} is {number}, the least allowed is {least}")
            offsets[TopicPartition(topic, int(partition))] = number
    return offsets


def parse_assignment(text: str) -> list[TopicPartition]:
    """`{"topic": [0, 1]}`, as Spark's `assign`."""
    example = 'assign must be JSON such as {"orders": [0, 1]}'
    partitions: set[TopicPartition] = set()
    for topic, numbers in _topics(text, example).items():
        if not isinstance(numbers, list) or not all(isinstance(n, int) and n >= 0 for n in numbers):
            raise ValueError(f"{example}; {topic!r} has {json.dumps(numbers)}")
        partitions.update(TopicPartition(topic, number) for number in numbers)
    return sorted(partitions)


def _topics(text: str, example: str) -> dict[str, Any]:
    try:
        topics = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{example}: {error}") from None
    if not isinstance(topics, dict) or not topics:
        raise ValueError(example)
    return topics


def nested(numbers: Mapping[TopicPartition, Any]) -> dict[str, dict[str, Any]]:
    """Topics, then partitions by number, always in the same order: Spark compares offsets as text."""
    topics: dict[str, dict[str, Any]] = {}
    for topic, partition in sorted(numbers):
        topics.setdefault(topic, {})[str(partition)] = numbers[TopicPartition(topic, partition)]
    return topics


class TopicNote(NamedTuple):
    """A topic's id, and how many partitions it had when it was first taken up: those that came later are new.

    No id where the broker is too old to have them. None of its partitions had been there where it is a new topic.
    """

    topic_id: str = ""
    began: int = 0


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """What a query has read: for each partition the range [from, to) of the batch that ends here.

    A batch is planned from its end alone, so that a replay needs nothing else. `query` names the checkpoint it is
    of; commits carry it, which tells a query's own commits from those of other members. Offsets are those of topics
    with the ids in `topics`, which has every topic that was there when the query began or was taken up since.
    """

    query: str
    ranges: Ranges
    topics: Mapping[str, TopicNote] | None = None
    """None in a checkpoint of a version that kept no ids, and before a broker has answered."""
    waits: int = 0
    """Batches without a record since the query began, by which it tells what it waits for."""

    def still_there(self, topics: Mapping[str, TopicNote] | None) -> StreamOffset:
        """The end of a batch without a record: the same places, in other words, since Spark compares words."""
        ranges = {tp: (stop, stop) for tp, (_, stop) in self.ranges.items()}
        return StreamOffset(self.query, ranges, None if topics is None else dict(topics), self.waits + 1)

    def to_json(self) -> dict[str, Any]:
        offsets = nested({tp: list(span) for tp, span in self.ranges.items()})
        value: dict[str, Any] = {"query": self.query, "offsets": offsets}
        if self.topics is not None:
            value["topics"] = {
                topic: {"id": note.topic_id, "began": note.began} for topic, note in sorted(self.topics.items())
            }
        return {**value, "waits": self.waits} if self.waits else value

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> StreamOffset:
        try:
            ranges = {
                TopicPartition(topic, int(partition)): (int(first), int(stop))
                for topic, partitions in value["offsets"].items()
                for partition, (first, stop) in partitions.items()
            }
            topics = {
                topic: TopicNote(str(note["id"]), int(note["began"])) for topic, note in value.get("topics", {}).items()
            }
            return cls(str(value["query"]), ranges, topics if "topics" in value else None, int(value.get("waits", 0)))
        except (AttributeError, KeyError, TypeError, ValueError):
            raise ValueError(
                f"the checkpoint holds {json.dumps(value)}, which this source did not write: "
                "start with a new checkpointLocation; the group's committed offsets say where to go on"
            ) from None

    def next_offset(self, partition: TopicPartition) -> int | None:
        span = self.ranges.get(partition)
        return None if span is None else span[1]

    def note(self, topic: str) -> TopicNote:
        return (self.topics or {}).get(topic, TopicNote())

    def topic_ids(self) -> dict[str, str]:
        """Of the topics read, where they are known."""
        topics = {tp.topic for tp in self.ranges}
        return {topic: topic_id for topic in sorted(topics) if (topic_id := self.note(topic).topic_id)}


# -- planning ------------------------------------------------------------------------------------------------------


def share(available: Mapping[TopicPartition, int], limit: int) -> dict[TopicPartition, int]:
    """Divide `limit` offsets among partitions in proportion to what each has, using it up and starving none.

    Each gets at least one where there is one for each; then largest remainders first, ties by name.
    """
    if sum(available.values()) <= limit:
        return dict(available)
    waiting = sorted(tp for tp, count in available.items() if count > 0)
    least = 1 if limit >= len(waiting) else 0
    shares = {tp: least if count > 0 else 0 for tp, count in available.items()}
    spare = limit - least * len(waiting)
    rest = {tp: available[tp] - least for tp in waiting}
    total = sum(rest.values())
    for tp in waiting:
        shares[tp] += rest[tp] * spare // total
    left = limit - sum(shares.values())
    for tp in sorted(waiting, key=lambda tp: (-(rest[tp] * spare % total), tp))[:left]:
        shares[tp] += 1
    return shares


@dataclass(frozen=True, slots=True, order=True)
class Piece:
    """Offsets [first, stop) of one partition, read by one task."""

    topic: str
    partition: int
    first: int
    stop: int


def split(ranges: Ranges, min_partitions: int | None = None, max_records: int | None = None) -> list[Piece]:
    """Ranges as pieces: one a partition, more where a minimum of tasks or a maximum of records asks for it."""
    spans = {tp: span for tp, span in sorted(ranges.items()) if span[1] > span[0]}
    parts = {tp: 1 for tp in spans}
    if max_records:
        parts = {tp: -(-(stop - first) // max_records) for tp, (first, stop) in spans.items()}
    if min_partitions and sum(parts.values()) < min_partitions:
        total = sum(stop - first for first, stop in spans.values())
        for tp, (first, stop) in spans.items():
            wanted = -(-(stop - first) * min_partitions // total)
            parts[tp] = min(max(parts[tp], wanted), stop - first)
    return [piece for tp, (first, stop) in spans.items() for piece in _cut(tp, first, stop, parts[tp])]


def _cut(tp: TopicPartition, first: int, stop: int, parts: int) -> Iterable[Piece]:
    size = stop - first
    edges = [first + size * i // parts for i in range(parts + 1)]
    for begin, end in pairwise(edges):
        yield Piece(tp.topic, tp.partition, begin, end)


def gather(pieces: list[Piece], count: int) -> list[tuple[Piece, ...]]:
    """Pieces as `count` tasks of about the same size: the largest first, each to the task with the least so far."""
    loads = [(0, number) for number in range(min(count, len(pieces)))]
    tasks: list[list[Piece]] = [[] for _ in loads]
    for piece in sorted(pieces, key=lambda piece: piece.first - piece.stop):
        load, number = loads[0]
        tasks[number].append(piece)
        heapq.heapreplace(loads, (load + piece.stop - piece.first, number))
    return sorted(tuple(sorted(task)) for task in tasks)


def plan_tasks(
    ranges: Ranges,
    min_partitions: int | None = None,
    max_partitions: int | None = None,
    max_records: int | None = None,
    cores: int | None = None,
) -> list[tuple[Piece, ...]]:
    """What each task of a batch reads: a Python task costs Spark far more than reading a few records.

    One Kafka partition is read in order by one task unless the user asks for more tasks or smaller ones.
    """
    pieces = split(ranges, min_partitions, max_records)
    total = sum(piece.stop - piece.first for piece in pieces)
    enough = max(min(-(-total // cores), TASK_OFFSETS_MOST), TASK_OFFSETS_LEAST) if cores else TASK_OFFSETS
    if max_records:
        enough = min(enough, max_records)
    small = [size for piece in pieces if (size := piece.stop - piece.first) < enough]
    count = max(len(pieces) - len(small) - (-sum(small) // enough), min_partitions or 0)
    tasks = gather(pieces, min(count, max_partitions or count))
    if max_records and any(sum(piece.stop - piece.first for piece in task) > max_records for task in tasks):
        return [(piece,) for piece in pieces]
    return tasks
