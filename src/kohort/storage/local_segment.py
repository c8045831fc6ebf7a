"""A segment in files: where its batches are, by offset and by time, and which transactions in it were aborted.

The bytes come from segment_files.py. Index entries of the active segment stay in memory until it is sealed, flushed or
closed: after a crash they are rebuilt anyway.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from kohort.records.batch import HEADER_SIZE, BatchHeader, CorruptBatch, read_header
from kohort.storage.checkpoints import read_file
from kohort.storage.config import LogConfig
from kohort.storage.errors import StorageError
from kohort.storage.handles import Handles
from kohort.storage.index import OFFSET_ENTRY_SIZE, OffsetIndex, TimeIndex
from kohort.storage.log import AbortedTxn, Buffer
from kohort.storage.page_cache import is_cached
from kohort.storage.segment import LOCATE, LOG_OVERHEAD
from kohort.storage.segment_files import INDEX, LOG, TIME_INDEX, TXN_INDEX, SegmentFiles
from kohort.storage.txn_index import append_aborted, read_aborted


class LocalSegment(SegmentFiles):
    """Batches of one segment: adding, indexing, finding them."""

    __slots__ = (
        "_aborted",
        "_config",
        "_index",
        "_interval",
        "_max_entries",
        "_saved_offsets",
        "_saved_times",
        "_tail",
        "_tail_offset",
        "_time_index",
        "_unindexed",
        "_warm_from",
        "newest",
        "newest_offset",
    )

    def __init__(
        self,
        directory: str,
        base_offset: int,
        *,
        handles: Handles,
        config: LogConfig,
        created_ms: int,
        suffix: str = "",
    ) -> None:
        super().__init__(directory, base_offset, handles=handles, created_ms=created_ms, suffix=suffix)
        self.newest: int | None = -1  # largest timestamp; None until it is read from the time index
        self.newest_offset = base_offset
        self._config = config
        self._interval = config.index_interval_bytes
        self._max_entries = config.segment_index_bytes // OFFSET_ENTRY_SIZE - 1
        self._index: OffsetIndex | None = OffsetIndex(base_offset)
        self._time_index: TimeIndex | None = TimeIndex(base_offset)
        self._saved_offsets = self._saved_times = 0  # entries that are in the files
        self._unindexed = 0  # bytes since the last index entry
        self._aborted: list[AbortedTxn] | None = []
        self._tail_offset = self._tail = -1  # an offset whose position is known: the end of the last read
        self._warm_from = 0  # bytes from here on were written by this process and are in the page cache

    @classmethod
    def existing(
        cls,
        directory: str,
        base_offset: int,
        size: int,
        *,
        handles: Handles,
        config: LogConfig,
        suffix: str = "",
    ) -> LocalSegment:
        """A segment whose files are there; nothing is opened yet."""
        segment = cls(
            directory,
            base_offset,
            handles=handles,
            config=config,
            created_ms=0,
            suffix=suffix,
        )
        segment.size = segment._warm_from = size
        segment._index = segment._time_index = segment._aborted = segment.newest = None
        return segment

    def __repr__(self) -> str:
        return f"<LocalSegment {self.path(LOG)} {self.size} bytes, offsets below {self.next_offset}>"

    # --- writing

    def added(self, last_offset: int, size: int, max_timestamp: int) -> None:
        newest = self.newest
        if newest is None:
            newest = self.max_timestamp
        if max_timestamp > newest:
            self.newest, self.newest_offset = max_timestamp, last_offset
        if self._unindexed > self._interval:
            self.index.append(last_offset, self.size)
            self.time_index.maybe_append(self.newest, self.newest_offset)  # type: ignore[arg-type]
            self._unindexed = 0
            self.full = len(self.index) >= self._max_entries
        self._unindexed += size
        self.size += size

    def truncate(self, size: int, next_offset: int) -> None:
        """Cut the file after the batch that ends at `size`."""
        self.cut(size)
        self.next_offset = next_offset
        self._tail_offset = -1

    # --- indexes

    @property
    def index(self) -> OffsetIndex:
        if self._index is None:
            self._load_indexes()
            assert self._index is not None
        return self._index

    @property
    def time_index(self) -> TimeIndex:
        if self._time_index is None:
            self._load_indexes()
            assert self._time_index is not None
        return self._time_index

    def _load_indexes(self) -> None:
        """Read the index files; where they are missing or damaged, rebuild them from the log."""
        offsets, times = read_file(self.path(INDEX)), read_file(self.path(TIME_INDEX))
        try:
            if self.size and (offsets is None or times is None):
                raise ValueError("no index")
            index = OffsetIndex.decode(self.base_offset, offsets or b"")
            time_index = TimeIndex.decode(self.base_offset, times or b"")
            if len(index) and index.positions[-1] >= self.size:
                raise ValueError("an index that points beyond the log")
        except ValueError:
            self.rebuild_indexes()
            return
        self._index, self._time_index = index, time_index
        self._saved_offsets, self._saved_times = len(index), len(time_index)
        self._unindexed = self.size - (index.positions[-1] if len(index) else 0)
        self.newest, self.newest_offset = time_index.last()
        self.handles.opened(self)

    def reset_indexes(self) -> None:
        """Start over: `added` will be told of every batch again."""
        self._index, self._time_index = OffsetIndex(self.base_offset), TimeIndex(self.base_offset)
        self._saved_offsets = self._saved_times = -1
        self._unindexed = 0
        self.newest, self.newest_offset = -1, self.base_offset

    def rebuild_indexes(self) -> None:
        size = self.size
        self.reset_indexes()
        self.size = 0
        try:
            for _, _, header in self._batches_within(0, size):
                self.added(header.last_offset, header.size, header.max_timestamp)
        finally:
            self.size = size
        if self.sealed:
            self.save_indexes()

    def save_indexes(self, *, last: bool = True) -> None:
        """Bring the index files up to date; `last` also notes the largest timestamp, as a sealed segment has it."""
        if self._index is None or self._time_index is None:
            return
        if last and self.newest is not None and self.newest >= 0:
            self._time_index.maybe_append(self.newest, self.newest_offset)
        self._saved_offsets = self._save(INDEX, self._index, self._saved_offsets)
        self._saved_times = self._save(TIME_INDEX, self._time_index, self._saved_times)

    def _save(self, kind: str, index: OffsetIndex | TimeIndex, saved: int) -> int:
        if saved == len(index) and (saved or os.path.exists(self.path(kind))):
            return saved
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (os.O_APPEND if saved > 0 else os.O_TRUNC)
        try:
            fd = os.open(self.path(kind), flags, 0o644)
            try:
                data = index.encode(max(saved, 0))
                if os.write(fd, data) != len(data):
                    raise OSError("short write")
            finally:
                os.close(fd)
        except OSError:
            # An index can always be rebuilt; half a one is worse than none.
            try:
                os.unlink(self.path(kind))
            except OSError:
                pass
            return -1
        return len(index)

    @property
    def max_timestamp(self) -> int:
        if self.newest is None:
            self._load_indexes()
        assert self.newest is not None
        return self.newest

    def scan_tail(self) -> None:
        """After a clean start: where the active segment ends, which the indexes only say approximately."""
        index = self.index
        position = index.positions[-1] if len(index) else 0
        self.next_offset = self.base_offset
        for _, _, header in self._batches_within(position, self.size):
            self.next_offset = header.next_offset
            if header.max_timestamp > self.max_timestamp:
                self.newest, self.newest_offset = header.max_timestamp, header.last_offset
        if self.size:
            self.first_timestamp = read_header(self.view(0, HEADER_SIZE)).max_timestamp

    # --- reading

    def read(
        self, offset: int, max_bytes: int, max_offset: int | None, at_least_one: bool
    ) -> tuple[list[memoryview], bool]:
        size = self.size
        if offset == self._tail_offset and max_offset is None and self._tail < size <= self._tail + max_bytes:
            return self._read_tail(self._tail, size)
        index = self.index
        position, length = self._locate(offset, index.lookup(offset))
        if position == size:
            return [], True
        if max_offset is not None:
            size = self._locate(max_offset, max(index.lookup(max_offset), position))[0]
            if size <= position:
                return [], False
        end = position + max_bytes
        if end >= size:
            if size == self.size:
                return self._read_tail(position, size)
            return [self.view(position, size)], False
        if max_bytes < length:
            return ([self.view(position, position + length)] if at_least_one else []), False
        return [self.view(position, self._floor(position, end))], False

    def _read_tail(self, position: int, size: int) -> tuple[list[memoryview], bool]:
        """Up to the end, where a consumer that keeps up will go on: it need not be looked up again."""
        view = self.view(position, size)
        self._tail_offset, self._tail = self.next_offset, size
        return [view], True

    def _locate(self, offset: int, position: int) -> tuple[int, int]:
        """Position and size of the first batch from `position` on that reaches `offset`; (size, 0) where none does."""
        size = self.size
        while position < size:
            # one look usually covers the stretch between two index entries
            chunk = self.view(position, min(position + max(self._interval, 4096) + HEADER_SIZE, size))
            pos, limit = 0, len(chunk) - LOCATE.size
            while pos <= limit:
                base_offset, length, delta = LOCATE.unpack_from(chunk, pos)
                if base_offset + delta >= offset:
                    return position + pos, length + LOG_OVERHEAD
                pos += length + LOG_OVERHEAD
            if pos == 0:
                raise StorageError(f"{self.path(LOG)} is damaged at byte {position}")
            position += pos
        return size, 0

    def _floor(self, start: int, end: int) -> int:
        """The end of the last batch that ends at `end` or before it."""
        position = max(self.index.floor_position(end), start)
        chunk = self.view(position, min(end + HEADER_SIZE, self.size))
        pos, room = 0, end - position
        while pos + LOCATE.size <= len(chunk):
            next_pos = pos + LOCATE.unpack_from(chunk, pos)[1] + LOG_OVERHEAD
            if next_pos > room:
                break
            pos = next_pos
        return position + pos

    def batches(self, offset: int) -> Iterator[tuple[Buffer, int, BatchHeader]]:
        position = self._locate(offset, self.index.lookup(offset))[0]
        return self._batches_within(position, self.size)

    def _batches_within(self, position: int, size: int) -> Iterator[tuple[Buffer, int, BatchHeader]]:
        if position >= size:
            return
        view = self.view(0, size)
        while position < size:
            header = read_header(view, position)
            if position + header.size > size:
                raise CorruptBatch(f"the batch at byte {position} of {self.path(LOG)} is cut off")
            yield view, position, header
            position += header.size

    def seek_timestamp(self, timestamp: int) -> int:
        return self.time_index.lookup(timestamp)

    def cold_range(self, offset: int, max_bytes: int) -> tuple[int, int] | None:
        """The stretch of the file a read would have to wait for."""
        start = self.index.lookup(offset)
        end = min(start + max_bytes, self.size, self._warm_from)
        return None if start >= end or is_cached(self.fd(), start, end) else (start, end)

    def reader(self) -> LocalSegment:
        """An independent view of a sealed segment for another thread."""
        segment = LocalSegment.existing(
            self.directory,
            self.base_offset,
            self.size,
            handles=Handles(),
            config=self._config,
            suffix=self.suffix,
        )
        segment.next_offset = self.next_offset
        segment.sealed = True
        return segment

    # --- aborted transactions

    @property
    def aborted(self) -> list[AbortedTxn]:
        if self._aborted is None:
            self._aborted = read_aborted(self.path(TXN_INDEX))
        return self._aborted

    def add_aborted(self, txn: AbortedTxn) -> None:
        aborted = self.aborted
        try:
            append_aborted(self.path(TXN_INDEX), txn)
        except OSError:
            pass  # kept in memory; recovery rebuilds the file
        aborted.append(txn)

    def reset_aborted(self) -> None:
        self._aborted = []
        try:
            os.unlink(self.path(TXN_INDEX))
        except OSError:
            pass

    # --- the end

    def seal(self) -> None:
        self.sealed = True
        self.save_indexes()

    def release(self) -> None:
        super().release()
        if self.sealed and self._saved_offsets >= 0 and self._index is not None:
            self._index = self._time_index = None
