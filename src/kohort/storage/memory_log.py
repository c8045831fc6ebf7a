"""A log in memory behind the same interface, deterministic, with faults that a test or a simulator injects."""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from kohort.records.batch import BatchHeader, iter_batches
from kohort.storage.config import LogConfig
from kohort.storage.epochs import LeaderEpochs
from kohort.storage.errors import StorageError
from kohort.storage.log import AbortedTxn, Buffer, FlushCallback
from kohort.storage.producers import ProducerStates
from kohort.storage.segment import Segment
from kohort.storage.segmented_log import SegmentedLog

MAX_SEGMENT_BYTES = 16 * 1024 * 1024  # retention frees whole segments, and memory is dearer than disk

_MIN_SLAB_BYTES = 4096
_MAX_SLAB_BYTES = 1024 * 1024


@dataclass(slots=True)
class DiskFaults:
    """What goes wrong next. Error numbers are errno's, each used once."""

    append_errors: deque[int] = field(default_factory=deque)
    flush_errors: deque[int] = field(default_factory=deque)
    hold_flushes: bool = False  # a slow disk: flushes wait for `MemoryLog.release_flushes`


class MemorySegment(Segment):
    """Batches side by side in slabs that grow with the segment, so that a read is a slice or two and copies nothing."""

    __slots__ = ("_aborted", "_ends", "_last_offsets", "_newest", "_room", "_slab_starts", "_slabs")

    def __init__(self, base_offset: int, created_ms: int) -> None:
        super().__init__(base_offset, created_ms)
        self._slabs: list[bytearray | bytes] = []
        self._slab_starts: list[int] = []  # position in the segment at which each slab begins
        self._room = 0  # bytes left in the last slab
        self._last_offsets: list[int] = []
        self._ends: list[int] = []  # position of the end of each batch
        self._newest: list[int] = []  # largest timestamp up to each batch
        self._aborted: list[AbortedTxn] = []

    @property
    def max_timestamp(self) -> int:
        return self._newest[-1] if self._newest else -1

    @property
    def aborted(self) -> list[AbortedTxn]:
        return self._aborted

    def add_aborted(self, txn: AbortedTxn) -> None:
        self._aborted.append(txn)

    def write(self, parts: Sequence[Buffer], size: int) -> None:
        if size > self._room:
            self._add_slab(size)
        start = self.size - self._slab_starts[-1]
        slab = self._slabs[-1]
        assert isinstance(slab, bytearray)
        slab[start : start + size] = b"".join(parts)
        self._room -= size

    def _add_slab(self, size: int) -> None:
        slab_size = max(size, min(_MAX_SLAB_BYTES, self.size), _MIN_SLAB_BYTES)
        self._slabs.append(bytearray(slab_size))
        self._slab_starts.append(self.size)
        self._room = slab_size

    def added(self, last_offset: int, size: int, max_timestamp: int) -> None:
        self.size += size
        self._last_offsets.append(last_offset)
        self._ends.append(self.size)
        newest = self._newest
        newest.append(max_timestamp if not newest or max_timestamp > newest[-1] else newest[-1])

    def adopt(self, data: bytes) -> None:
        """Bytes that are never written to; `added` follows for each batch of them."""
        self._slabs, self._slab_starts, self._room = [data], [0], 0

    @property
    def count(self) -> int:
        """Of batches."""
        return len(self._ends)

    def pieces(self, offset: int, size: int) -> Iterator[tuple[list[memoryview], int, int, int]]:
        """All from the batch that holds `offset`, some `size` bytes at a time: views, first and next offset, and the
        largest timestamp up to there."""
        ends, last_offsets = self._ends, self._last_offsets
        first = bisect_left(last_offsets, offset)
        while first < len(ends):
            start = ends[first - 1] if first else 0
            end = min(bisect_left(ends, start + size) + 1, len(ends))
            base_offset = last_offsets[first - 1] + 1 if first else self.base_offset
            yield self._views(start, ends[end - 1]), base_offset, last_offsets[end - 1] + 1, self._newest[end - 1]
            first = end

    def read(
        self, offset: int, max_bytes: int, max_offset: int | None, at_least_one: bool
    ) -> tuple[list[memoryview], bool]:
        ends, count = self._ends, len(self._ends)
        first = bisect_left(self._last_offsets, offset)
        limit = count if max_offset is None else bisect_left(self._last_offsets, max_offset)
        if first >= limit:
            return [], first >= count
        start = ends[first - 1] if first else 0
        end = min(bisect_right(ends, start + max_bytes), limit)
        if end <= first:
            if not at_least_one:
                return [], False
            end = first + 1
        return self._views(start, ends[end - 1]), end >= count

    def _views(self, start: int, end: int) -> list[memoryview]:
        """The bytes between two batch boundaries."""
        starts = self._slab_starts
        views = []
        slot = bisect_right(starts, start) - 1
        while start < end:
            stop = min(starts[slot + 1] if slot + 1 < len(starts) else end, end)
            views.append(memoryview(self._slabs[slot]).toreadonly()[start - starts[slot] : stop - starts[slot]])
            start = stop
            slot += 1
        return views

    def batches(self, offset: int) -> Iterator[tuple[Buffer, int, BatchHeader]]:
        first = bisect_left(self._last_offsets, offset)
        start = self._ends[first - 1] if first else 0
        for view in self._views(start, self.size):
            for pos, header in iter_batches(view):
                yield view, pos, header

    def seek_timestamp(self, timestamp: int) -> int:
        slot = bisect_left(self._newest, timestamp)
        return self._last_offsets[slot] if slot < len(self._newest) else self.next_offset

    def last_modified_ms(self) -> int:
        return self.created_ms

    def release(self) -> None:
        pass

    def damage(self, offset: int, position: int) -> None:
        """Invert a byte of the batch that holds `offset`: the one at `position`, or its last."""
        slot = bisect_left(self._last_offsets, offset)
        start = self._ends[slot - 1] if slot else 0
        at = min(start + position, self._ends[slot] - 1)
        slab = bisect_right(self._slab_starts, at) - 1
        bytes_there = self._slabs[slab]
        assert isinstance(bytes_there, bytearray)
        bytes_there[at - self._slab_starts[slab]] ^= 0xFF

    def truncate(self, end_offset: int) -> None:
        """Drop the batches that reach `end_offset` or beyond."""
        count = bisect_left(self._last_offsets, end_offset)
        for column in (self._last_offsets, self._ends, self._newest):
            del column[count:]
        self.size = self._ends[-1] if self._ends else 0
        self.next_offset = self._last_offsets[-1] + 1 if self._last_offsets else self.base_offset
        self._aborted = [txn for txn in self._aborted if txn.last_offset < end_offset]
        while self._slab_starts and self._slab_starts[-1] >= self.size:
            self._slab_starts.pop()
            self._slabs.pop()
        self._room = 0  # whoever still holds a view of the lost bytes keeps them unchanged


class MemoryLog(SegmentedLog):
    """Flushes are instant unless held; `crash` loses what was not flushed."""

    def __init__(self, topic: str, partition: int, config: LogConfig, *, now_ms: int = 0) -> None:
        self.faults = DiskFaults()
        self._held: deque[tuple[int, FlushCallback | None]] = deque()
        super().__init__(topic, partition, config, now_ms=now_ms)

    def _use(self, config: LogConfig) -> None:
        super()._use(config)
        self._segment_bytes = min(self._segment_bytes, MAX_SEGMENT_BYTES)

    def _writable_segment(self, size: int, next_offset: int, newest: int, now_ms: int) -> Segment:
        if self.faults.append_errors:
            reason = os.strerror(self.faults.append_errors.popleft())
            raise StorageError(f"cannot append to {self.topic}-{self.partition}: {reason}; nothing was kept of it")
        return super()._writable_segment(size, next_offset, newest, now_ms)

    def _create_segment(self, base_offset: int, now_ms: int) -> Segment:
        return MemorySegment(base_offset, now_ms)

    def _create_cleaned(self, first: Segment) -> Segment:
        return MemorySegment(first.base_offset, first.created_ms)

    def _swap(self, group: list[Segment], cleaned: Segment) -> None:
        pass  # the list of segments is all there is

    def flush(self) -> None:
        failures: list[StorageError | None] = []
        self._held.append((self.end_offset, failures.append))
        self.release_flushes()
        if failures[0] is not None:
            raise failures[0]

    def flush_async(self, callback: FlushCallback | None = None) -> None:
        self._unflushed_records = 0
        self._held.append((self.end_offset, callback))
        if not self.faults.hold_flushes:
            self.release_flushes()

    def release_flushes(self, count: int | None = None) -> int:
        """Let held flushes (or the first `count` of them) come true; returns how many did."""
        done = 0
        while self._held and (count is None or done < count):
            offset, callback = self._held.popleft()
            if self.faults.flush_errors and self.failure is None:
                reason = os.strerror(self.faults.flush_errors.popleft())
                self.failure = StorageError(f"cannot sync {self.topic}-{self.partition}: {reason}; the log is offline")
            if self.failure is None:
                self.durable_offset = max(self.durable_offset, offset)
            done += 1
            if callback is not None:
                callback(self.failure)
        return done

    def damage(self, offset: int, position: int) -> None:
        """A byte of the batch that holds `offset` is no longer what was written; once more, and it is again."""
        segment = self.segments[self._segment_slot(offset)]
        assert isinstance(segment, MemorySegment)
        segment.damage(offset, position)

    def crash(self, *, end_offset: int | None = None) -> None:
        """Power is lost: the log comes back as the disk has it, with the batches below `durable_offset` or, where part
        of the rest happened to be written, below `end_offset`. State is rebuilt as recovery does it."""
        keep = self.durable_offset if end_offset is None else max(end_offset, self.durable_offset)
        self._held.clear()
        self.failure = None
        while len(self.segments) > 1 and self.active.base_offset >= keep:
            self.segments.pop()
        for segment in self.segments[-1:]:
            assert isinstance(segment, MemorySegment)
            segment.truncate(keep)
            if segment.size == 0:
                segment.first_timestamp = -1
            self.end_offset = segment.next_offset
        if self.end_offset < self.start_offset:  # the start was noted, the records below it are lost
            self.segments.clear()
            self.end_offset = self.start_offset
        self.durable_offset = min(self.durable_offset, self.end_offset)
        self.epochs = LeaderEpochs(entry for entry in self.epochs.entries() if entry[1] < self.end_offset)
        self._rebuild_producers()

    def _rebuild_producers(self) -> None:
        self.producers = ProducerStates()
        for segment in self.segments:
            for buf, pos, header in segment.batches(self.start_offset):
                if header.producer_id >= 0:
                    self._track(segment, header, header.base_offset, buf, pos)

    def close(self) -> None:
        self.flush()
