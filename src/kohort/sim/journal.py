"""What `__consumer_offsets` says and no crash can take back, with its past: read from its logs as they become durable.

The past matters because a request is decided at some moment between its arrival and its answer: `Past.since` gives all
that was true in between. Nothing here knows how the coordinator works.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from kohort.client.types import TopicPartition
from kohort.coordinator.records import OFFSETS_TOPIC, Change, GroupMetadata, OffsetAndMetadata, StoredGroup, decode
from kohort.records.batch import iter_batches, read_records

if TYPE_CHECKING:
    from kohort.sim.trace import Trace
    from kohort.storage.log import Log
    from kohort.storage.store import Store

Key = tuple[str, TopicPartition]
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
    def __init__(self, store: Store, trace: Trace) -> None:
        self._store = store
        self._trace = trace
        self.moment = 0  # counts records, over all partitions
        self.read_below: dict[int, int] = {}
        self.offsets: dict[Key, Past[OffsetAndMetadata]] = {}
        self.groups: dict[str, Past[StoredGroup]] = {}
        self._partitions_of: dict[str, set[TopicPartition]] = {}

    def read(self) -> int:
        """Take in what has become durable; returns the moment."""
        index = 0
        while (log := self._store.get(OFFSETS_TOPIC, index)) is not None:
            below = self.read_below.get(index, 0)
            if log.high_watermark > below:
                self.read_below[index] = log.high_watermark
                self._take_in(log, below, log.high_watermark)
            index += 1
        return self.moment

    def _take_in(self, log: Log, start: int, end: int) -> None:
        for view in log.read(start, 1 << 40, max_offset=end):
            for pos, header in iter_batches(view):
                for record in read_records(view, pos, header):
                    if start <= record.offset < end and record.key is not None:
                        self._apply(decode(record.key, record.value), record.timestamp)

    def _apply(self, change: Change, at_ms: int) -> None:
        self.moment += 1
        if isinstance(change, GroupMetadata):
            past_group = self.group(change.group_id)
            ended = change.value is None and past_group.now is not None
            past_group.add(self.moment, change.value)
            if ended:
                self._trace.group_removed(change.group_id)
            return
        tp = TopicPartition(change.topic, change.partition)
        past = self.offset(change.group_id, tp)
        before = past.now
        past.add(self.moment, change.value)
        if change.value is None and before is not None:
            group = self.group(change.group_id).now
            self._trace.offset_removed(Removal(change.group_id, tp, before, group, at_ms))

    def group(self, group_id: str) -> Past[StoredGroup]:
        past = self.groups.get(group_id)
        if past is None:
            past = self.groups[group_id] = Past()
        return past

    def offset(self, group_id: str, tp: TopicPartition) -> Past[OffsetAndMetadata]:
        past = self.offsets.get((group_id, tp))
        if past is None:
            past = self.offsets[group_id, tp] = Past()
            self._partitions_of.setdefault(group_id, set()).add(tp)
        return past

    def offsets_of(self, group_id: str) -> Iterator[tuple[TopicPartition, Past[OffsetAndMetadata]]]:
        for tp in sorted(self._partitions_of.get(group_id, ())):
            yield tp, self.offsets[group_id, tp]
