"""Segments whose bytes are in a store that is slow to read, and the bounded memory that all of a broker's share.

A segment is read in blocks of whole batches. What is not in memory is never waited for: `NotInMemory` carries the way
to load it, for another thread. A block that cannot be had, or is not what was written, is an error that says so.
"""

from __future__ import annotations

import logging
import threading
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Protocol
from zlib import crc32

from kohort.protocol.errors import ErrorCode
from kohort.records.batch import BatchHeader, iter_batches
from kohort.records.errors import RecordsError
from kohort.storage.errors import StorageError
from kohort.storage.log import AbortedTxn, Buffer
from kohort.storage.memory_log import MemorySegment
from kohort.storage.segment import Segment

logger = logging.getLogger("kohort.storage")

ReadRange = Callable[[str, int, int], bytes]
"""(name, position, size) -> bytes, on any thread; StorageError where they cannot be had."""
_INDEX_BYTES = 120
"""What finding a batch costs, beside its bytes."""
_FAILURES_KEPT = 1_000


class Block(Protocol):
    """A part of a segment: whole batches, found by the offset it begins with."""

    @property
    def base_offset(self) -> int: ...
    @property
    def position(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def checksum(self) -> int: ...


class StoredSegment(Protocol):
    """A segment as its manifest names it."""

    @property
    def name(self) -> str: ...
    @property
    def base_offset(self) -> int: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def first_timestamp(self) -> int: ...
    @property
    def blocks(self) -> Sequence[Block]: ...
    @property
    def aborted(self) -> Sequence[Sequence[int]]: ...


class NotInMemory(StorageError):
    """Wanted bytes are in the store. `load` brings them into memory, on another thread."""

    def __init__(self, name: str, load: Callable[[], None]) -> None:
        super().__init__(f"{name} is still being read from the store: ask again")
        self.load = load


class StoreFailed(StorageError):
    """The store did not give them; it may, later."""

    def __init__(self, message: str, load: Callable[[], None]) -> None:
        super().__init__(message)
        self.load = load


class BlockCache:
    """Blocks of all segments of a broker: the ones used last, within `max_bytes`. May be used by any thread."""

    def __init__(self, max_bytes: int, read_range: ReadRange) -> None:
        self.max_bytes = max_bytes
        self.used_bytes = 0
        self.loads = 0
        self._read_range = read_range
        self._lock = threading.Lock()
        self._blocks: OrderedDict[tuple[str, int], tuple[MemorySegment, int]] = OrderedDict()
        self._failures: dict[tuple[str, int], StorageError] = {}
        self._told: set[str] = set()

    def get(self, row: StoredSegment, slot: int) -> MemorySegment:
        """NotInMemory, or why the last try to load it failed."""
        key = (row.name, slot)
        with self._lock:
            found = self._blocks.get(key)
            if found is not None:
                self._blocks.move_to_end(key)
                return found[0]
            failure = self._failures.pop(key, None)
        if failure is not None:
            self._tell(row.name, failure)
            raise failure
        raise NotInMemory(row.name, partial(self.load, row, slot))

    def has(self, row: StoredSegment, slot: int) -> bool:
        with self._lock:
            return (row.name, slot) in self._blocks

    def load(self, row: StoredSegment, slot: int) -> None:
        """From the store; on a thread that may wait. StorageError is also told to whoever asks for the block next."""
        try:
            block = self.read(row, slot)
        except StorageError as error:
            failure = error
            if error.code == ErrorCode.KAFKA_STORAGE_ERROR:
                failure = StoreFailed(error.message, partial(self.load, row, slot))
            with self._lock:
                if len(self._failures) >= _FAILURES_KEPT:
                    self._failures.clear()
                self._failures[row.name, slot] = failure
            raise
        self.put(row, slot, block)

    def _tell(self, name: str, failure: StorageError) -> None:
        """Somebody wanted it. What is damaged stays so: it is said once."""
        if failure.code != ErrorCode.CORRUPT_MESSAGE:
            logger.warning("%s", failure.message)
        elif name not in self._told:
            self._told.add(name)
            logger.error("%s", failure.message)

    def read(self, row: StoredSegment, slot: int) -> MemorySegment:
        """The same, without keeping it."""
        block = row.blocks[slot]
        self.loads += 1
        data = self._read_range(row.name, block.position, block.size)
        if len(data) != block.size or crc32(data) != block.checksum:
            raise StorageError(
                f"{row.name} is damaged: offsets {block.base_offset} and following cannot be read until it is restored "
                "from a copy of the store",
                ErrorCode.CORRUPT_MESSAGE,
            )
        return block_of(data, block.base_offset)

    def put(self, row: StoredSegment, slot: int, block: MemorySegment) -> None:
        cost = block.size + _INDEX_BYTES * block.count
        key = (row.name, slot)
        with self._lock:
            self._failures.pop(key, None)
            known = self._blocks.pop(key, None)
            self.used_bytes += cost - (known[1] if known is not None else 0)
            self._blocks[key] = (block, cost)
            while self.used_bytes > self.max_bytes and len(self._blocks) > 1:
                self.used_bytes -= self._blocks.popitem(last=False)[1][1]

    def forget(self, row: StoredSegment) -> None:
        with self._lock:
            for slot in range(len(row.blocks)):
                known = self._blocks.pop((row.name, slot), None)
                if known is not None:
                    self.used_bytes -= known[1]
                self._failures.pop((row.name, slot), None)


def block_of(data: bytes, base_offset: int) -> MemorySegment:
    """Bytes of whole batches, to be read like a segment."""
    block = MemorySegment(base_offset, 0)
    block.adopt(data)
    try:
        for _, header in iter_batches(memoryview(data)):
            block.added(header.last_offset, header.size, header.max_timestamp)
            block.next_offset = header.next_offset
    except RecordsError as error:
        reason = f"what begins with offset {base_offset} is no whole batches: {error}"
        raise StorageError(reason, ErrorCode.CORRUPT_MESSAGE) from error
    return block


class ColdSegment(Segment):
    """Never written to. Only its index is here."""

    __slots__ = ("_aborted", "_bases", "_cache", "_newest", "row")

    def __init__(self, row: StoredSegment, cache: BlockCache) -> None:
        super().__init__(row.base_offset, 0)
        self.row = row
        self.next_offset = row.next_offset
        self.size = row.size
        self.first_timestamp = row.first_timestamp
        self.full = True
        self._cache = cache
        self._bases = [block.base_offset for block in row.blocks]
        self._newest: list[int] = []
        for block in row.blocks:
            self._newest.append(max(block.max_timestamp, self._newest[-1] if self._newest else -1))
        self._aborted = [AbortedTxn(*txn) for txn in row.aborted]

    @property
    def max_timestamp(self) -> int:
        return self._newest[-1] if self._newest else -1

    @property
    def aborted(self) -> list[AbortedTxn]:
        return self._aborted

    def add_aborted(self, txn: AbortedTxn) -> None:
        raise AssertionError("a segment of the store is not written to")

    def write(self, parts: Sequence[Buffer], size: int) -> None:
        raise AssertionError("a segment of the store is not written to")

    def added(self, last_offset: int, size: int, max_timestamp: int) -> None:
        raise AssertionError("a segment of the store is not written to")

    def _slot(self, offset: int) -> int:
        return max(bisect_right(self._bases, offset) - 1, 0)

    def _block(self, slot: int) -> MemorySegment:
        return self._cache.get(self.row, slot)

    def read(
        self, offset: int, max_bytes: int, max_offset: int | None, at_least_one: bool
    ) -> tuple[list[memoryview], bool]:
        views: list[memoryview] = []
        for slot in range(self._slot(offset), len(self._bases)):
            if max_offset is not None and self._bases[slot] >= max_offset:
                return views, False
            try:
                block = self._block(slot)
            except StorageError:
                if views or not at_least_one:
                    return views, False
                raise
            found, is_whole = block.read(offset, max_bytes, max_offset, at_least_one and not views)
            views += found
            max_bytes -= sum(map(len, found))
            if not is_whole:
                return views, False
        return views, True

    def batches(self, offset: int) -> Iterator[tuple[Buffer, int, BatchHeader]]:
        for slot in range(self._slot(offset), len(self._bases)):
            yield from self._block(slot).batches(offset)

    @property
    def read_limit(self) -> int:
        """Bytes beyond which one reader would take the memory of the others."""
        return self._cache.max_bytes // 8

    def blocks_from(self, offset: int, max_bytes: int) -> Iterator[tuple[int, Callable[[], None] | None]]:
        """Size and way to load each block that a read would want; None where it is in memory."""
        for slot in range(self._slot(offset), len(self._bases)):
            if max_bytes <= 0:
                return
            size = self.row.blocks[slot].size
            yield size, None if self._cache.has(self.row, slot) else partial(self._cache.load, self.row, slot)
            max_bytes -= size

    def seek_timestamp(self, timestamp: int) -> int:
        slot = bisect_left(self._newest, timestamp)
        return self._bases[slot] if slot < len(self._bases) else self.next_offset

    def last_modified_ms(self) -> int:
        return self.created_ms

    def reader(self) -> Segment:
        return _Scan(self.row, self._cache)

    def release(self) -> None:
        self._cache.forget(self.row)


class _Scan(ColdSegment):
    """For a thread that may wait: a compaction reads everything once, which is no reason to keep it in memory."""

    __slots__ = ()

    def _block(self, slot: int) -> MemorySegment:
        return self._cache.read(self.row, slot)

    def release(self) -> None:
        pass
