"""The past of a group as its cluster keeps it: kohort's group events, and the generations in `__consumer_offsets`.

Both are read backwards from the end of one partition, in growing windows, within a budget of time: on a large cluster
it is better to say less than to wait. What it means is the business of the room insight/.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from kohort.client.types import TopicPartition
from kohort.coordinator.event_json import from_json
from kohort.coordinator.events import EVENTS_TOPIC, GroupEvent
from kohort.coordinator.records import OFFSETS_TOPIC, GroupMetadata, UnknownRecord, decode, group_key, partition_for
from kohort.insight.generations import StoredGeneration
from kohort.insight.lanes import Lanes
from kohort.insight.modern_past import ModernPast
from kohort.insight.rebalances import History
from kohort.protocol.errors import KafkaError
from kohort.protocol.uuids import to_base64

if TYPE_CHECKING:
    from kohort.cli.target import Target

FIRST_WINDOW = 5_000
GROWTH = 8
POLL_S = 0.5


def read_events(target: Target, group_id: str, limit: int, budget_s: float) -> list[GroupEvent] | None:
    """The last events of a group, oldest first; None where the cluster keeps none: it is no kohort broker."""
    key = group_id.encode()

    def take(record: Any) -> GroupEvent | None:
        return from_json(record.value) if record.key == key else None

    return _read_tail(target, EVENTS_TOPIC, group_id, take, limit, budget_s)


def read_generations(target: Target, group_id: str, limit: int, budget_s: float) -> list[StoredGeneration] | None:
    """The last stored generations of a classic group, oldest first; None where the topic cannot be read."""
    return _read_tail(target, OFFSETS_TOPIC, group_id, _generation_of(group_id), limit, budget_s)


def _generation_of(group_id: str) -> Callable[[Any], StoredGeneration | None]:
    key = group_key(group_id)

    def take(record: Any) -> StoredGeneration | None:
        if record.key != key:
            return None
        try:
            change = decode(record.key, record.value)
        except UnknownRecord:
            return None
        if not isinstance(change, GroupMetadata) or change.value is None:
            return None
        return StoredGeneration.of(change.value, record.timestamp)

    return take


def last_generation(target: Target, group_id: str, budget_s: float = 2.0) -> int | None:
    """The generation of a classic group, which DescribeGroups does not tell."""
    found = read_generations(target, group_id, 1, budget_s)
    return found[-1].generation if found else None


def read_epochs(target: Target, admin: Any, group_id: str, limit: int, budget_s: float) -> History | None:
    """The past of a KIP-848 group from those of its records that are still there; None where none can be read."""
    found = _read_tail(target, OFFSETS_TOPIC, group_id, _modern_record_of(group_id), limit, budget_s)
    if not found:
        return None
    topics = admin.describe_topics(admin.list_topics())
    names = {to_base64(topic.topic_id): name for name, topic in topics.items()}
    past = ModernPast(Lanes(), Lanes())
    for at_ms, row in found:
        data = None if row.get("data") is None else json.loads(row["data"])
        past.read(at_ms, row["kind"], row.get("member_id"), data, names)
    return past.history


def _modern_record_of(group_id: str) -> Callable[[Any], tuple[int, dict[str, Any]] | None]:
    from kohort.history.kinds import CONSUMER, MODERN_KEYS, modern_row

    prefixes = tuple(kind + group_key(group_id)[2:] for kind in MODERN_KEYS)

    def take(record: Any) -> tuple[int, dict[str, Any]] | None:
        if record.key is None or not record.key.startswith(prefixes):
            return None
        row = modern_row(record.key, record.value)
        return None if row.get("problem") or row["family"] != CONSUMER else (record.timestamp, row)

    return take


class GenerationFollower:
    """The generation of a classic group again and again, reading on from where it was. A context manager."""

    def __init__(self, target: Target, group_id: str) -> None:
        self._target, self._group_id = target, group_id
        self._tail: _Tail | None = None
        self._last: int | None = None

    def __enter__(self) -> GenerationFollower:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._tail is not None:
            self._tail.consumer.close()

    def latest(self, budget_s: float = 2.0) -> int | None:
        deadline = time.monotonic() + budget_s
        try:
            if self._tail is None:
                self._tail = _Tail(self._target, OFFSETS_TOPIC, self._group_id, _generation_of(self._group_id))
                found = self._tail.backwards(1, deadline)
            else:
                found = self._tail.news(deadline)
        except KafkaError:
            return self._last
        self._last = found[-1].generation if found else self._last
        return self._last


def _read_tail(
    target: Target, topic: str, group_id: str, take: Callable[[Any], Any], limit: int, budget_s: float
) -> list[Any] | None:
    try:
        tail = _Tail(target, topic, group_id, take)
        with tail.consumer:
            return None if tail.partition is None else tail.backwards(limit, time.monotonic() + budget_s)
    except KafkaError:
        return None  # not allowed to read it: the caller has other sources, and says so


class _Tail:
    """The end of the one partition of a topic that has a group's records."""

    def __init__(self, target: Target, topic: str, group_id: str, take: Callable[[Any], Any]) -> None:
        # Not our topics to create, and nothing is committed.
        self.consumer = target.consumer(auto_offset_reset="earliest", allow_auto_create_topics=False)
        self.partition: TopicPartition | None = None
        self._take = take
        self._read_to = 0
        if partitions := len(self.consumer.partitions_for(topic)):
            self.partition = TopicPartition(topic, partition_for(group_id, partitions))
            self.consumer.assign([self.partition])

    def _end(self) -> int:
        assert self.partition is not None
        return int(self.consumer.end_offsets([self.partition])[self.partition])

    def backwards(self, limit: int, deadline: float) -> list[Any]:
        """The last `limit` items, oldest first, or as many as there was time for."""
        if self.partition is None:
            return []
        begin = self.consumer.beginning_offsets([self.partition])[self.partition]
        self._read_to = self._end()
        found: list[Any] = []
        for start, stop in windows(begin, self._read_to):
            older = self._window(start, stop, deadline)
            if older is None:
                break
            found = older + found
            if len(found) >= limit:
                break
        return found[-limit:]

    def news(self, deadline: float) -> list[Any]:
        """What has come since the last reading."""
        if self.partition is None:
            return []
        end = self._end()
        found = self._window(self._read_to, end, deadline)
        if found is None:
            return []
        self._read_to = end
        return found

    def _window(self, start: int, stop: int, deadline: float) -> list[Any] | None:
        """Items of [start, stop); None where the time was too short: half a window would hide the newest."""
        assert self.partition is not None
        found = []
        self.consumer.seek(self.partition, start)
        while self.consumer.position(self.partition) < stop:
            if time.monotonic() >= deadline:
                return None
            for record in self.consumer.poll(POLL_S, max_records=5_000):
                if record.offset < stop and (item := self._take(record)) is not None:
                    found.append(item)
        return found


def windows(begin: int, end: int) -> Iterator[tuple[int, int]]:
    """[start, stop) from the end backwards, each larger than the one before."""
    size, stop = FIRST_WINDOW, end
    while stop > begin:
        start = max(begin, stop - size)
        yield start, stop
        stop, size = start, size * GROWTH
