"""What `__consumer_offsets` says and no crash can take back, with its past: read from its logs as they become durable.

The past matters because a request is decided at some moment between its arrival and its answer: `Past.since` gives all
that was true in between. Nothing here knows how the coordinator works.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from kohort.client.types import TopicPartition
from kohort.coordinator.records import (
    OFFSETS_TOPIC,
    Change,
    GroupMetadata,
    OffsetAndMetadata,
    StoredGroup,
    decode,
    partition_for,
)
from kohort.records.batch import iter_batches, read_records

if TYPE_CHECKING:
    from kohort.sim.trace import Trace
    from kohort.storage.log import Log
    from kohort.storage.store import Store

Value = TypeVar("Value")


class Past(Generic[Value]):
    """The values of one key, each with the moment from which it stood. Before the first there was none."""

    __slots__ = ("_moments", "_values")

    def __init__(self) -> None:
        self._moments: list[int] = [-1]
        self._values: list[Value | None] = [None]

    @property
    def now(self) -> Value | None:
        return self._values[-1]

    def add(self, moment: int, value: Value | None) -> None:
        self._moments.append(moment)
        self._values.append(value)

    def since(self, moment: int) -> Iterator[Value | None]:
        """Newest first: what stood at that moment, and all that came after it."""
        for at, value in zip(reversed(self._moments), reversed(self._values), strict=True):
            yield value
            if at <= moment:
                return


class Removal(NamedTuple):
    """A tombstone of an offset that was there, and what the log said of the group just before it."""

    group_id: str
    tp: TopicPartition
    before: OffsetAndMetadata
    group: StoredGroup | None
    at_ms: int


class Journal:
    """A group's records are those of its partition; when the topic grows that may be another one, as in Kafka."""

    def __init__(self, store: Store, trace: Trace) -> None:
        self._store = store
        self._trace = trace
        self.moment = 0  # counts records, over all partitions, and changes of their number
        self.grown = 0  # the moment in which their number changed
        self._changes: list[tuple[int, int]] = []
        self.partitions = 0
        self.read_below: dict[int, int] = {}
        self._offsets: dict[tuple[int, str], dict[TopicPartition, Past[OffsetAndMetadata]]] = {}
        self._groups: dict[tuple[int, str], Past[StoredGroup]] = {}

    def read(self) -> int:
        """Take in what has become durable; returns the moment."""
        logs: list[Log] = []
        while (log := self._store.get(OFFSETS_TOPIC, len(logs))) is not None:
            logs.append(log)
        if len(logs) != self.partitions:
            self._use_partitions(len(logs))
        for index, log in enumerate(logs):
            below = self.read_below.get(index, 0)
            if log.high_watermark > below:
                self.read_below[index] = log.high_watermark
                self._take_in(index, log, below, log.high_watermark)
        return self.moment

    def _use_partitions(self, count: int) -> None:
        before, self.partitions = self.partitions, count
        if before:
            self.moment += 1
            self.grown = self.moment
            self._changes.append((before, count))
            self._trace.groups_moved(before, count)

    def _take_in(self, index: int, log: Log, start: int, end: int) -> None:
        for view in log.read(start, 1 << 40, max_offset=end):
            for pos, header in iter_batches(view):
                for record in read_records(view, pos, header):
                    if start <= record.offset < end and record.key is not None:
                        self._apply(index, decode(record.key, record.value), record.timestamp)

    def _apply(self, index: int, change: Change, at_ms: int) -> None:
        self.moment += 1
        place = (index, change.group_id)
        group = self._groups.setdefault(place, Past())
        if isinstance(change, GroupMetadata):
            ended = change.value is None and group.now is not None and place == self._place(change.group_id)
            group.add(self.moment, change.value)
            if ended:
                self._trace.group_removed(change.group_id)
            return
        tp = TopicPartition(change.topic, change.partition)
        past = self._offsets.setdefault(place, {}).setdefault(tp, Past())
        before = past.now
        past.add(self.moment, change.value)
        if change.value is None and before is not None and place == self._place(change.group_id):
            self._trace.offset_removed(Removal(change.group_id, tp, before, group.now, at_ms))

    def has_moved(self, group_id: str) -> bool:
        """Whether something of the group may be left in another partition."""
        return any(moved(group_id, before, after) for before, after in self._changes)

    # What it says.

    def _place(self, group_id: str) -> tuple[int, str]:
        return partition_for(group_id, self.partitions or 1), group_id

    def group(self, group_id: str) -> Past[StoredGroup]:
        return self._groups.get(self._place(group_id)) or Past()

    def offset(self, group_id: str, tp: TopicPartition) -> Past[OffsetAndMetadata]:
        return self._offsets.get(self._place(group_id), {}).get(tp) or Past()

    def offsets_of(self, group_id: str) -> list[TopicPartition]:
        """Every partition for which there ever was one."""
        return sorted(self._offsets.get(self._place(group_id), ()))

    def group_ids(self) -> list[str]:
        return [group_id for index, group_id in self._groups if index == self._place(group_id)[0]]


def moved(group_id: str, before: int, after: int) -> bool:
    return partition_for(group_id, before) != partition_for(group_id, after)
