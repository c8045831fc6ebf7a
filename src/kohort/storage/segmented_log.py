"""A log made of segments, whatever these are made of: appending, rolling, reading, retention, compaction, transactions.

LocalLog and MemoryLog differ in the hooks at the end of the class only, so they cannot disagree about the rest.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter
from struct import Struct
from zlib import crc32

from kohort.records.batch import BatchHeader, patch_batch, read_header, read_records
from kohort.records.control import ControlType, control_type, read_marker
from kohort.storage.compaction import DEFAULT_MAX_KEYS, last_of_producers
from kohort.storage.compaction_round import CompactionRound, aborted_within
from kohort.storage.config import LogConfig
from kohort.storage.epochs import LeaderEpochs
from kohort.storage.errors import OffsetOutOfRange, StorageError
from kohort.storage.log import AbortedTxn, Appended, Buffer, Compaction, FoundOffset, Log
from kohort.storage.producers import DEFAULT_EXPIRATION_MS, ProducerStates
from kohort.storage.segment import LOG_OVERHEAD, MAX_RELATIVE_OFFSET, Segment

_PLACE = Struct(">qii")  # base offset, length, leader epoch: the part of a batch that a log writes itself
_BASE_OFFSET = attrgetter("base_offset")


class SegmentedLog(Log):
    """Owns the segments, the producers and the epochs of one partition."""

    def __init__(self, topic: str, partition: int, config: LogConfig, *, now_ms: int = 0) -> None:
        self.topic = topic
        self.partition = partition
        self.config = config
        self.producers = ProducerStates()
        self.producer_expiration_ms = DEFAULT_EXPIRATION_MS
        self.start_offset = 0
        self.end_offset = 0
        self.durable_offset = 0
        self.first_dirty_offset = 0  # compaction has seen everything below
        self.max_compaction_keys = DEFAULT_MAX_KEYS
        self.epochs = LeaderEpochs()
        self.segments: list[Segment] = []
        self._unflushed_records = 0
        self._last_flush_ms = now_ms
        self.failure: StorageError | None = None
        self._use(config)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.topic}-{self.partition} {self.start_offset}..{self.end_offset}>"

    def configure(self, config: LogConfig) -> None:
        self.config = config
        self._use(config)
        if self.high_watermark < self.end_offset:
            self.flush()  # what was readable stays readable when flush.messages becomes 1

    def _use(self, config: LogConfig) -> None:
        self._segment_bytes = config.segment_bytes
        self._roll_ms = config.roll_ms
        self._jitter_ms = min(config.segment_jitter_ms, config.segment_ms)
        self._flush_messages = config.flush_messages
        self._stamps = config.log_append_time

    # --- what the log is

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def leader_epoch(self) -> int:
        return self.epochs.latest

    @property
    def high_watermark(self) -> int:
        return self.durable_offset if self._flush_messages == 1 else self.end_offset

    @property
    def last_stable_offset(self) -> int:
        unstable, end = self.producers.first_unstable_offset, self.high_watermark
        return end if unstable is None else min(max(unstable, self.start_offset), end)

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    # --- writing

    def append(self, data: Buffer, *, leader_epoch: int, now_ms: int) -> Appended:
        if self.failure is not None:
            raise self.failure
        append_time = -1
        if self._stamps:
            data, append_time = _stamped(data, now_ms), now_ms
        base_offset = next_offset = self.end_offset
        view = memoryview(data)
        size, pos = len(view), 0
        parts: list[Buffer] = []
        placed: list[BatchHeader] = []
        newest = -1
        while pos < size:
            header = read_header(view, pos)
            end = pos + header.batch_length + LOG_OVERHEAD
            parts.append(_PLACE.pack(next_offset, header.batch_length, leader_epoch))
            parts.append(view[pos + 16 : end])
            placed.append(header)
            next_offset += header.last_offset_delta + 1
            if header.max_timestamp > newest:
                newest = header.max_timestamp
            pos = end
        if not placed:
            raise ValueError("there is nothing to append")
        if leader_epoch != self.epochs.latest and leader_epoch >= 0:
            self._begin_epoch(leader_epoch, base_offset)
        segment = self._writable_segment(size, next_offset, newest, now_ms)
        segment.write(parts, size)
        if segment.first_timestamp < 0:
            segment.first_timestamp = placed[0].max_timestamp
        self._place(segment, placed, view)
        self._unflushed_records += next_offset - base_offset
        if self._unflushed_records >= self._flush_messages > 1:
            self.flush_async()
        return Appended(base_offset, next_offset - 1, append_time, self.start_offset)

    def _place(self, segment: Segment, headers: Sequence[BatchHeader], view: memoryview) -> None:
        """Take note of batches that have just been written."""
        base_offset, pos = self.end_offset, 0
        for header in headers:
            last_offset = base_offset + header.last_offset_delta
            size = header.batch_length + LOG_OVERHEAD
            segment.added(last_offset, size, header.max_timestamp)
            if header.producer_id >= 0:
                self._track(segment, header, base_offset, view, pos)
            base_offset = last_offset + 1
            pos += size
        segment.next_offset = self.end_offset = base_offset

    def _track(self, segment: Segment, header: BatchHeader, base_offset: int, buf: Buffer, pos: int) -> None:
        """Producer state and transactions; also the path on which they are rebuilt."""
        if not header.is_control:
            self.producers.appended(header, base_offset)
            return
        records = read_records(buf, pos, header)
        if not records or control_type(records[0]) not in (ControlType.ABORT, ControlType.COMMIT):
            return
        done = self.producers.ended(
            header.producer_id, header.producer_epoch, read_marker(records[0]), base_offset, records[0].timestamp
        )
        if done is not None and done.aborted:
            txn = AbortedTxn(done.producer_id, done.first_offset, done.last_offset, done.last_stable_offset)
            if not segment.aborted or segment.aborted[-1].last_offset < txn.last_offset:
                segment.add_aborted(txn)

    def _begin_epoch(self, epoch: int, offset: int) -> None:
        entries = self.epochs.entries()
        if self.epochs.assign(epoch, offset):
            try:
                self._save_epochs()
            except StorageError:
                self.epochs = LeaderEpochs(entries)
                raise

    def _writable_segment(self, size: int, next_offset: int, newest: int, now_ms: int) -> Segment:
        if not self.segments:
            self.segments.append(self._create_segment(self.end_offset, now_ms))
        segment = self.segments[-1]
        if segment.size and (
            segment.size + size > self._segment_bytes
            or (newest - segment.first_timestamp if segment.first_timestamp >= 0 else now_ms - segment.created_ms)
            > self._roll_ms - (self._jitter_ms and self._jitter(segment))
            or next_offset - 1 - segment.base_offset > MAX_RELATIVE_OFFSET
            or segment.full
        ):
            return self.roll(now_ms)
        return segment

    def _jitter(self, segment: Segment) -> int:
        """What is taken off the age of a segment, so that not all partitions roll at once. As good as chance, and the
        same at every look."""
        return crc32(f"{self.topic}-{self.partition}-{segment.base_offset}".encode()) % self._jitter_ms

    def roll(self, now_ms: int) -> Segment:
        """Seal the active segment and start another one at the end of the log."""
        if self.segments and self.active.base_offset == self.end_offset:
            return self.active
        segment = self._create_segment(self.end_offset, now_ms)
        if self.segments:
            self._seal(self.active)
        self.segments.append(segment)
        return segment

    # --- reading

    def read(
        self, offset: int, max_bytes: int, *, max_offset: int | None = None, at_least_one: bool = True
    ) -> list[memoryview]:
        end = self.end_offset
        if not self.start_offset <= offset <= end:
            raise OffsetOutOfRange(offset, self.start_offset, end)
        if offset == end or (max_offset is not None and offset >= max_offset):
            return []
        slot = max(bisect_right(self.segments, offset, key=_BASE_OFFSET) - 1, 0) if len(self.segments) > 1 else 0
        views: list[memoryview] = []
        for segment in self.segments[slot:] if slot else self.segments:
            if max_offset is not None and segment.base_offset >= max_offset:
                break
            limit = None if max_offset is None or segment.next_offset <= max_offset else max_offset
            found, whole = segment.read(offset, max_bytes, limit, at_least_one and not views)
            if found:
                views += found
                max_bytes -= sum(map(len, found))
            if not whole or max_bytes <= 0:
                break
        return views

    def _segment_slot(self, offset: int) -> int:
        return max(bisect_right(self.segments, offset, key=_BASE_OFFSET) - 1, 0)

    def offset_for_timestamp(self, timestamp: int) -> FoundOffset | None:
        for segment in self.segments:
            if segment.max_timestamp >= timestamp and segment.next_offset > self.start_offset:
                found = segment.find_timestamp(timestamp, self.start_offset)
                if found is not None:
                    return found
        return None

    def max_timestamp(self) -> FoundOffset | None:
        newest = max(self.segments, key=lambda segment: segment.max_timestamp, default=None)
        if newest is None or newest.max_timestamp < 0:
            return None
        return newest.find_timestamp(newest.max_timestamp, self.start_offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        return self.epochs.end_offset_for(epoch, self.end_offset)

    def epoch_for_offset(self, offset: int) -> int:
        return self.epochs.epoch_for(offset)

    def aborted_transactions(self, from_offset: int, to_offset: int) -> list[AbortedTxn]:
        return aborted_within(self.segments, from_offset, to_offset)

    # --- removing

    def delete_records_before(self, offset: int) -> int:
        if offset > self.end_offset or offset < 0:
            raise OffsetOutOfRange(offset, self.start_offset, self.end_offset)
        if offset > self.start_offset:
            self._move_start(offset)
            self._start_moved()
        return self.start_offset

    def _move_start(self, offset: int) -> None:
        self.start_offset = offset
        self.first_dirty_offset = max(self.first_dirty_offset, offset)
        if self.epochs.truncate_from_start(offset):
            self._save_epochs()

    def enforce_retention(self, now_ms: int) -> int:
        count = self._below_start()
        if self.config.delete:
            count = max(count, self._beyond_size(), self._beyond_age(now_ms))
        if not count:
            return 0
        if count == len(self.segments):
            if not self.active.size:
                count -= 1
            else:
                self.roll(now_ms)
        doomed, self.segments = self.segments[:count], self.segments[count:]
        if self.segments[0].base_offset > self.start_offset:
            self._move_start(self.segments[0].base_offset)
            self._start_followed()
        for segment in doomed:
            self._remove(segment)
        return count

    def _below_start(self) -> int:
        """How many segments lie wholly before the start of the log; never the active one."""
        return max(self._segment_slot(self.start_offset), 0) if len(self.segments) > 1 else 0

    def _beyond_size(self) -> int:
        excess = self.size_bytes - self.config.retention_bytes
        count = 0
        if self.config.retention_bytes >= 0:
            for segment in self.segments:
                if excess < segment.size or not segment.size:
                    break
                excess -= segment.size
                count += 1
        return count

    def _beyond_age(self, now_ms: int) -> int:
        count = 0
        if self.config.retention_ms >= 0:
            for segment in self.segments:
                if now_ms - segment.largest_timestamp() <= self.config.retention_ms:
                    break
                count += 1
        return count

    # --- compaction

    def start_compaction(self, now_ms: int) -> Compaction | None:
        if not self.config.compact or len(self.segments) < 2:
            return None
        if not self.start_offset <= self.first_dirty_offset <= self.end_offset:
            self.first_dirty_offset = self.start_offset
        segments = self.segments[: self._first_uncleanable_slot(now_ms)]
        dirty = [segment for segment in segments if segment.next_offset > self.first_dirty_offset]
        dirty_bytes = sum(segment.size for segment in dirty)
        if not dirty_bytes:
            return None
        total_bytes = sum(segment.size for segment in segments)
        overdue = now_ms - min(dirty[0].first_timestamp, now_ms) > self.config.max_compaction_lag_ms
        if not overdue and dirty_bytes / total_bytes <= self.config.min_cleanable_dirty_ratio:
            return None
        upper_bound = segments[-1].next_offset
        return CompactionRound(
            segments,
            first_dirty_offset=self.first_dirty_offset,
            upper_bound=upper_bound,
            now_ms=now_ms,
            config=self.config,
            producers=last_of_producers(self.producers),
            aborted=aborted_within(self.segments, segments[0].base_offset, upper_bound),
            create_segment=self._create_cleaned,
            complete_segment=self._complete_cleaned,
            discard_segment=self._discard_cleaned,
            max_keys=self.max_compaction_keys,
        )

    def _first_uncleanable_slot(self, now_ms: int) -> int:
        """Not the active segment, nothing from the last stable offset on, nothing within min.compaction.lag.ms."""
        slot = min(len(self.segments) - 1, self._segment_slot(self.last_stable_offset))
        lag = self.config.min_compaction_lag_ms
        if lag > 0:
            for i, segment in enumerate(self.segments[:slot]):
                recent = segment.largest_timestamp() > now_ms - lag
                if recent and segment.next_offset > self.first_dirty_offset:
                    return i
        return slot

    def finish_compaction(self, compaction: Compaction) -> None:
        assert isinstance(compaction, CompactionRound)
        whole = True
        for group, cleaned in compaction.results:
            if all(segment in self.segments for segment in group):
                cleaned.next_offset = group[-1].next_offset
                self._swap(group, cleaned)
                at = self.segments.index(group[0])
                self.segments[at : at + len(group)] = [cleaned]
            else:  # retention was quicker
                self._discard_cleaned(cleaned)
                whole = whole and group[-1].next_offset <= self.start_offset
        if whole:
            self.first_dirty_offset = max(self.first_dirty_offset, compaction.cleaned_to)
            self._compacted()

    # --- housekeeping

    def maintain(self, now_ms: int) -> None:
        self.enforce_retention(now_ms)
        self.producers.expire(now_ms, self.producer_expiration_ms)
        if self.durable_offset == self.end_offset:
            self._last_flush_ms = now_ms
        elif now_ms - self._last_flush_ms >= self.config.flush_ms:
            self._last_flush_ms = now_ms
            self.flush_async()

    # --- what a kind of log supplies

    @abstractmethod
    def _create_segment(self, base_offset: int, now_ms: int) -> Segment: ...

    @abstractmethod
    def _create_cleaned(self, first: Segment) -> Segment:
        """A segment aside, to take the place of `first` and its neighbours; called on the thread of a compaction."""

    @abstractmethod
    def _swap(self, group: list[Segment], cleaned: Segment) -> None: ...

    def _complete_cleaned(self, cleaned: Segment) -> None:
        """A cleaned segment is fully written; called on the thread of a compaction."""

    def _discard_cleaned(self, cleaned: Segment) -> None:
        """A cleaned segment is not needed; called on either thread."""

    def _seal(self, segment: Segment) -> None:
        """The segment gets no more batches."""

    def _remove(self, segment: Segment) -> None:
        """The segment is no longer part of the log."""

    def _save_epochs(self) -> None:
        """The epochs have changed."""

    def _start_moved(self) -> None:
        """DeleteRecords moved the start of the log; the names of the segments do not tell."""

    def _start_followed(self) -> None:
        """Retention moved the start of the log to the first segment that is left."""

    def _compacted(self) -> None:
        """first_dirty_offset has changed."""


def _stamped(data: Buffer, now_ms: int) -> bytearray:
    """A copy of the batches with `now_ms` as append time."""
    stamped = bytearray(data)
    pos = 0
    while pos < len(stamped):
        header = read_header(stamped, pos)
        patch_batch(stamped, pos, header.base_offset, header.partition_leader_epoch, now_ms)
        pos += header.size
    return stamped
