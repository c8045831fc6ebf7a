"""One segment of a log: what local and memory segments have in common. Segments know nothing of logs or epochs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from struct import Struct

from kohort.records.batch import BatchHeader, read_records
from kohort.storage.log import AbortedTxn, Buffer, FoundOffset

MAX_RELATIVE_OFFSET = 2**31 - 1
MAX_SEGMENT_SIZE = 2**31 - 1
# base offset, batch length, last offset delta: all that finding a batch needs
LOCATE = Struct(">qi11xi")
LOG_OVERHEAD = 12


class Segment(ABC):
    """Batches of increasing offsets from `base_offset` on; only the last segment of a log is written to."""

    __slots__ = ("base_offset", "created_ms", "first_timestamp", "full", "next_offset", "size")

    def __init__(self, base_offset: int, created_ms: int) -> None:
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size = 0
        self.full = False  # its index has no room for more
        self.created_ms = created_ms
        self.first_timestamp = -1  # of the first batch: the age of the segment is counted from it

    @property
    @abstractmethod
    def max_timestamp(self) -> int:
        """The largest timestamp; -1 where there is none."""

    @abstractmethod
    def write(self, parts: Sequence[Buffer], size: int) -> None:
        """Put bytes at the end, all or none; StorageError. `added` follows for each batch."""

    @abstractmethod
    def added(self, last_offset: int, size: int, max_timestamp: int) -> None:
        """A batch of what was just written: make it findable."""

    @abstractmethod
    def read(
        self, offset: int, max_bytes: int, max_offset: int | None, at_least_one: bool
    ) -> tuple[list[memoryview], bool]:
        """Whole batches from the one that holds `offset` (or the next), and whether they reach the segment's end."""

    @abstractmethod
    def batches(self, offset: int) -> Iterator[tuple[Buffer, int, BatchHeader]]:
        """Buffer, position and header of each batch from the one that holds `offset`."""

    @abstractmethod
    def seek_timestamp(self, timestamp: int) -> int:
        """An offset before which every record of the segment is older than `timestamp`."""

    @abstractmethod
    def last_modified_ms(self) -> int:
        """The age of a segment whose records have no timestamps."""

    @property
    @abstractmethod
    def aborted(self) -> list[AbortedTxn]:
        """Aborted transactions whose marker is in this segment, in the order of their markers."""

    @abstractmethod
    def add_aborted(self, txn: AbortedTxn) -> None: ...

    def reader(self) -> Segment:
        """What another thread may read this sealed segment through."""
        return self

    @abstractmethod
    def release(self) -> None:
        """Let go of descriptors and maps."""

    def largest_timestamp(self) -> int:
        """The timestamp that retention goes by."""
        timestamp = self.max_timestamp
        return timestamp if timestamp >= 0 else self.last_modified_ms()

    def find_timestamp(self, timestamp: int, from_offset: int) -> FoundOffset | None:
        """The first record at or after `timestamp` whose offset is not below `from_offset`."""
        start = max(self.seek_timestamp(timestamp), from_offset)
        for buf, pos, header in self.batches(start):
            if header.max_timestamp < timestamp:
                continue
            for record in read_records(buf, pos, header):
                if record.timestamp >= timestamp and record.offset >= from_offset:
                    return FoundOffset(record.offset, record.timestamp, header.partition_leader_epoch)
        return None
