"""A partition whose records are safe in a journal that all brokers can read; its leader has the newest in memory.

The high watermark is what the journal has. What has become segments of the store is read from there when it is asked
for. What is read back at a take-over comes in through `restore`. Of the journal only its writer's interface is known
here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from kohort.protocol.errors import ErrorCode
from kohort.records.batch import iter_batches
from kohort.storage.cold_segment import BlockCache, ColdSegment, StoredSegment
from kohort.storage.config import LogConfig
from kohort.storage.epochs import LeaderEpochs
from kohort.storage.errors import StorageError
from kohort.storage.log import Buffer, FlushCallback
from kohort.storage.memory_log import MemoryLog, MemorySegment
from kohort.storage.producers import AppendedBatch, ProducerState, ProducerStates
from kohort.storage.segment import Segment

_EVERYTHING = 1 << 62
BLOCKS_AT_ONCE = 4


class Journal(Protocol):
    def add(self, log: Any, records: int = 0) -> None:
        """The log has something to store, so many records more."""


def not_led(topic: str, partition: int) -> StorageError:
    return StorageError(f"{topic}-{partition} is led by another broker", ErrorCode.NOT_LEADER_OR_FOLLOWER)


class JournalLog(MemoryLog):
    """Without a journal it is the place of a partition that another broker leads: nothing can be appended."""

    def __init__(
        self, topic: str, partition: int, config: LogConfig, *, topic_id: str, epoch: int = -1, now_ms: int = 0
    ) -> None:
        super().__init__(topic, partition, _journaled(config), now_ms=now_ms)
        self.topic_id = topic_id
        self.epoch = epoch
        self.manifest: Any = None  # the last one, as cluster/ knows it
        self.is_settled = True  # whether no journal of an earlier leader is needed any more
        self.failed_manifests = 0  # since the last one: their numbers may be taken
        self.was_compacted = False  # since the last manifest
        self.stored_seq = -1  # the last slot of the journal that has something of this log
        self.first_seq: int | None = None  # the first slot that has something which no manifest covers
        self._journal: Journal | None = None
        self._journaled_offset = 0
        self._journaled_start = 0
        self._waiting: deque[tuple[int, FlushCallback | None]] = deque()
        self._confirming: list[FlushCallback] = []
        self._taken: deque[list[FlushCallback]] = deque()  # by the objects on their way, each with whom it confirms
        self.failure = not_led(topic, partition)

    def lead(self, journal: Journal) -> None:
        """Appends go to this journal from now on; what is there is safe already."""
        self._journal = journal
        self.failure = None
        self.durable_offset = self._journaled_offset = self.end_offset
        self._journaled_start = self.start_offset

    def configure(self, config: LogConfig) -> None:
        self.config = _journaled(config)
        self._use(self.config)

    # --- what comes back at a take-over

    def restore(self, data: Buffer, epoch: int | None = None) -> None:
        """Batches as they were written, with their offsets; gaps are compaction's."""
        view = memoryview(data)
        stamps, self._stamps = self._stamps, False
        failure, self.failure = self.failure, None
        try:
            for pos, header in iter_batches(view):
                if header.last_offset < self.end_offset:
                    continue
                self.end_offset = header.base_offset
                self.append(
                    view[pos : pos + header.size],
                    leader_epoch=header.partition_leader_epoch if epoch is None else epoch,
                    now_ms=header.max_timestamp,
                )
        finally:
            self._stamps, self.failure = stamps, failure
        self.durable_offset = self.end_offset

    def restore_segments(
        self,
        rows: Sequence[StoredSegment],
        cache: BlockCache,
        *,
        start_offset: int,
        next_offset: int,
        first_dirty_offset: int,
        epochs: Sequence[tuple[int, int]],
        producers: Sequence[Any],
    ) -> None:
        """What a manifest says; none of its segments is read."""
        self.segments = [ColdSegment(row, cache) for row in rows]
        self.start_offset = start_offset
        self.end_offset = self.durable_offset = next_offset
        self.first_dirty_offset = first_dirty_offset
        self.epochs = LeaderEpochs(epochs)
        self.producers = ProducerStates(_producer(*row) for row in producers)

    def restore_start(self, start_offset: int) -> None:
        if start_offset > self.start_offset:
            self._move_start(start_offset)
            self.end_offset = max(self.end_offset, start_offset)

    # --- durability

    @property
    def high_watermark(self) -> int:
        return self.durable_offset

    def flush(self) -> None:
        """Nobody can wait here for a store; whoever needs it durable asks with flush_async."""
        self.flush_async()

    def flush_async(self, callback: FlushCallback | None = None) -> None:
        records, self._unflushed_records = self._unflushed_records, 0
        if self.failure is not None or self._journal is None or self.durable_offset >= self.end_offset:
            if callback is not None:
                callback(self.failure)
            return
        if callback is not None:
            self._waiting.append((self.end_offset, callback))
        self._journal.add(self, records)

    def confirm(self, callback: FlushCallback) -> None:
        """A write that begins from now on, and is stored, says that nobody else has led before it."""
        if self.failure is not None or self._journal is None:
            callback(self.failure)
            return
        self._confirming.append(callback)
        self._journal.add(self)

    def take_unjournaled(self, max_bytes: int) -> tuple[int, int, list[Any]]:
        self._taken.append(self._confirming)
        self._confirming = []
        base_offset = self._journaled_offset
        if base_offset >= self.end_offset:
            return base_offset, base_offset, []
        views = self.read(max(base_offset, self.start_offset), _EVERYTHING)
        self._journaled_offset = self.end_offset
        return base_offset, self.end_offset, views

    def take_start(self) -> int | None:
        if self._journaled_start == self.start_offset:
            return None
        self._journaled_start = self.start_offset
        return self.start_offset

    def stored_to(self, offset: int, seq: int) -> None:
        self.stored_seq = seq
        if self.first_seq is None:
            self.first_seq = seq
        self.durable_offset = max(self.durable_offset, offset)
        while self._waiting and self._waiting[0][0] <= offset:
            _, callback = self._waiting.popleft()
            if callback is not None:
                callback(None)
        for callback in self._taken.popleft() if self._taken else ():
            callback(None)

    # --- segments of the store

    @property
    def fresh_bytes(self) -> int:
        """Of records that no segment of the store has."""
        return sum(segment.size for segment in self.segments if isinstance(segment, MemorySegment))

    def sealed(self, now_ms: int) -> list[Segment]:
        """All segments; whatever is appended from now on goes into another one."""
        if self.end_offset > self.start_offset:
            self.roll(now_ms)
        return [segment for segment in self.segments if self.start_offset < segment.next_offset and segment.size]

    def producer_rows(self) -> list[Any]:
        return [
            [p.producer_id, p.epoch, list(p.batches), p.last_timestamp, p.coordinator_epoch, p.txn_first_offset]
            for p in self.producers
        ]

    def use_segments(
        self, before: list[Segment], rows: Sequence[StoredSegment], next_offset: int, cache: BlockCache
    ) -> bool:
        """The store has what was `sealed` before, up to `next_offset`, in these segments: it need not be in memory.
        False where the log has other segments by now, and goes on with them."""
        known = {id(segment) for segment in self.segments}
        if any(id(segment) not in known and segment.next_offset > self.start_offset for segment in before):
            return False  # a compaction was quicker: what it made is stored with the next manifest
        cold = {segment.row.name: segment for segment in before if isinstance(segment, ColdSegment)}
        stored: list[Segment] = [
            cold.get(row.name) or ColdSegment(row, cache) for row in rows if row.next_offset > self.start_offset
        ]
        self.segments = stored + [segment for segment in self.segments if segment.base_offset >= next_offset]
        for gone in cold.keys() - {row.name for row in rows}:
            cache.forget(cold[gone].row)
        return True

    def warm(self, offset: int, max_bytes: int) -> Callable[[], None] | None:
        if not self.segments or not self.start_offset <= offset < self.end_offset:
            return None
        loads: list[Callable[[], None]] = []
        for segment in self.segments[self._segment_slot(offset) :]:
            if not isinstance(segment, ColdSegment) or max_bytes <= 0 or len(loads) >= BLOCKS_AT_ONCE:
                break
            max_bytes = min(max_bytes, segment.read_limit)
            for size, load in segment.blocks_from(offset, max_bytes):
                max_bytes -= size
                if load is not None:
                    loads.append(load)
        return partial(_all, loads[:BLOCKS_AT_ONCE]) if loads else None

    def _remove(self, segment: Segment) -> None:
        if isinstance(segment, ColdSegment):
            segment.release()

    def give_up(self, error: StorageError) -> None:
        """Led elsewhere, or the journal is over: what was not stored was never acknowledged."""
        self.failure = error
        self._journal = None
        waiting = [callback for _, callback in self._waiting if callback is not None]
        waiting += [callback for some in self._taken for callback in some] + self._confirming
        self._waiting.clear()
        self._taken.clear()
        self._confirming = []
        for callback in waiting:
            callback(error)

    def _compacted(self) -> None:
        self.was_compacted = True

    def _start_moved(self) -> None:
        if self._journal is not None:
            self._journal.add(self)

    def close(self) -> None:
        pass


def _all(loads: list[Callable[[], None]]) -> None:
    for load in loads:
        load()


def _producer(
    producer_id: int, epoch: int, batches: list[Any], timestamp: int, coordinator_epoch: int, open_since: int | None
) -> ProducerState:
    rows = [AppendedBatch(*row) for row in batches]
    return ProducerState(producer_id, epoch, rows, timestamp, coordinator_epoch, open_since)


def _journaled(config: LogConfig) -> LogConfig:
    """An append counts once it is stored."""
    return replace(config, flush_messages=1)
