"""What `__consumer_offsets` says and no crash can take back, with its past: read from its logs as they become durable.

The past matters because a request is decided at some moment between its arrival and its answer: `Past.since` gives all
that was true in between. Nothing here knows how the coordinator works.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from kohort.client.types import TopicPartition
from kohort.coordinator.modern_records import GroupEpoch, Kind, ModernChange
from kohort.coordinator.records import (
    OFFSETS_TOPIC,
    Change,
    GroupMetadata,
    OffsetAndMetadata,
    OffsetCommit,
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
Place = TopicPartition | tuple[Kind, str] | None
"""What of a group a record is about: an offset, a fact of KIP-848, or its generation."""


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
    epoch: GroupEpoch | None
    topics: frozenset[str]  # what members of a group of the consumer protocol read
    at_ms: int


class Journal:
    """Over all partitions. When the topic grows a group moves to another one: its records are written there, and only
    then removed from where they were; what counts is what its new partition says, and before it says anything, the old.
    """

    def __init__(self, store: Store, trace: Trace) -> None:
        self._store = store
        self._trace = trace
        self.moment = 0  # counts records
        self.partitions = 0
        self.grown = 0  # the moment in which their number changed
        self.read_below: dict[int, int] = {}
        self._offsets: dict[str, dict[TopicPartition, Past[OffsetAndMetadata]]] = {}
        self._groups: dict[str, Past[StoredGroup]] = {}
        self._modern: dict[str, dict[tuple[Kind, str], Past[Any]]] = {}
        self._told_at_home: set[tuple[str, Place]] = set()  # since the topic has grown
        self._told_in: dict[tuple[str, Place], int] = {}  # the partition that has the last value

    def read(self) -> int:
        """Take in what has become durable; returns the moment."""
        logs: list[Log] = []
        while (log := self._store.get(OFFSETS_TOPIC, len(logs))) is not None:
            logs.append(log)
        if len(logs) != self.partitions:
            self.partitions = len(logs)
            self._told_at_home.clear()
            self.moment += 1
            self.grown = self.moment
        before = self.moment
        elsewhere: list[tuple[int, Change, int]] = []
        living: dict[tuple[str, Place], set[int]] = {}  # of those: where a value is the last word
        for index, log in enumerate(logs):
            below = self.read_below.get(index, 0)
            if log.high_watermark > below:
                self.read_below[index] = log.high_watermark
                for change, at_ms in _changes(log, below, log.high_watermark):
                    if partition_for(change.group_id, self.partitions) == index:
                        self._told_at_home.add((change.group_id, _place(change)))
                        self._apply(change, at_ms, index)
                    else:
                        elsewhere.append((index, change, at_ms))
                        places = living.setdefault((change.group_id, _place(change)), set())
                        places.discard(index) if change.value is None else places.add(index)
        for index, change, at_ms in elsewhere:
            key = (change.group_id, _place(change))
            if key not in self._told_at_home:
                # What a group leaves behind in one partition when it has moved to another is no end of it.
                if change.value is not None or not (living[key] - {index} or self._told_in.get(key, index) != index):
                    self._apply(change, at_ms, index)
            elif self._began_anew(change, before):
                self._trace.group_removed(change.group_id)
        return self.moment

    def _began_anew(self, change: Change, before: int) -> bool:
        """Deleted where it was and begun again at home, and both were read at once: home alone does not tell."""
        if not isinstance(change, GroupMetadata) or change.value is not None:
            return False
        *later, first = self._groups[change.group_id].since(before)
        return first is not None and any(now is not None and now.generation < first.generation for now in later)

    def _apply(self, change: Change, at_ms: int, index: int) -> None:
        self.moment += 1
        if change.value is not None:
            self._told_in[change.group_id, _place(change)] = index
        if isinstance(change, ModernChange):
            facts = self._modern.setdefault(change.group_id, {})
            facts.setdefault((change.kind, change.name), Past()).add(self.moment, change.value)
            return
        group = self._groups.setdefault(change.group_id, Past())
        if isinstance(change, OffsetCommit):
            tp = TopicPartition(change.topic, change.partition)
            past = self._offsets.setdefault(change.group_id, {}).setdefault(tp, Past())
            before = past.now
            past.add(self.moment, change.value)
            if change.value is None and before is not None:
                epoch, topics = self.epoch(change.group_id).now, self._read_by_members(change.group_id)
                removal = Removal(change.group_id, tp, before, group.now, epoch, topics, at_ms)
                self._trace.offset_removed(removal)
            return
        ended = change.value is None and group.now is not None
        group.add(self.moment, change.value)
        if ended:
            self._trace.group_removed(change.group_id)

    # What it says.

    def group(self, group_id: str) -> Past[StoredGroup]:
        return self._groups.get(group_id) or Past()

    def epoch(self, group_id: str) -> Past[GroupEpoch]:
        """Of a group of the consumer protocol."""
        return self.fact(group_id, Kind.GROUP)

    def fact(self, group_id: str, kind: Kind, name: str = "") -> Past[Any]:
        """What else the log knows of such a group: by the kind of record, and the member."""
        return self._modern.get(group_id, {}).get((kind, name)) or Past()

    def _read_by_members(self, group_id: str) -> frozenset[str]:
        facts = self._modern.get(group_id, {}).items()
        said = [past.now for (kind, _), past in facts if kind is Kind.MEMBER and past.now is not None]
        return frozenset(topic for metadata in said for topic in metadata.topics)

    def may_be_unknown(self, group_id: str, since: int) -> bool:
        """Whether there was a moment without a generation or an epoch of the group; one that moves has either."""
        return None in self.group(group_id).since(since) and None in self.epoch(group_id).since(since)

    def offset(self, group_id: str, tp: TopicPartition) -> Past[OffsetAndMetadata]:
        return self._offsets.get(group_id, {}).get(tp) or Past()

    def offsets_of(self, group_id: str) -> list[TopicPartition]:
        """Every partition for which there ever was one."""
        return sorted(self._offsets.get(group_id, ()))

    def group_ids(self) -> list[str]:
        return list(dict.fromkeys((*self._groups, *self._modern)))


def _changes(log: Log, start: int, end: int) -> Iterator[tuple[Change, int]]:
    for view in log.read(start, 1 << 40, max_offset=end):
        for pos, header in iter_batches(view):
            if header.is_transactional:  # the business of `Transactions`
                continue
            for record in read_records(view, pos, header):
                if start <= record.offset < end and record.key is not None:
                    yield decode(record.key, record.value), record.timestamp


def _place(change: Change) -> Place:
    if isinstance(change, OffsetCommit):
        return TopicPartition(change.topic, change.partition)
    return (change.kind, change.name) if isinstance(change, ModernChange) else None
