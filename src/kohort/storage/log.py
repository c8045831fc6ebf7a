"""The log of one topic partition, as the broker sees it: an interface free of files, threads and clocks.

Order of use: validate a batch, `producers.check` it, `append` it, and where `config.flush_every_append` wait for
`flush_async` before acknowledging. Reads return whole batches. All methods are called by one owner, except where a
method says that it may run on any thread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

from kohort.storage.config import LogConfig
from kohort.storage.errors import StorageError
from kohort.storage.producers import ProducerStates

Buffer = bytes | bytearray | memoryview
FlushCallback = Callable[[StorageError | None], None]


class Appended(NamedTuple):
    base_offset: int
    last_offset: int
    log_append_time_ms: int  # -1 unless message.timestamp.type is LogAppendTime
    log_start_offset: int


class FoundOffset(NamedTuple):
    offset: int
    timestamp: int
    leader_epoch: int  # -1 where it is not known


class AbortedTxn(NamedTuple):
    """An entry of the transaction index; read_committed consumers skip the producer from first_offset to the marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class Compaction(ABC):
    """One round of compaction: planned by the owner, `run` on any thread, finished by the owner."""

    @abstractmethod
    def run(self) -> None:
        """Write the cleaned segments aside. Reads sealed segments only, so appends and reads may go on meanwhile.
        StorageError (a full disk, a topic deleted meanwhile) leaves the log as it was; do not finish it then."""


class Log(ABC):
    """One topic partition. `start_offset <= last_stable_offset <= high_watermark <= end_offset`."""

    topic: str
    partition: int
    config: LogConfig
    producers: ProducerStates
    start_offset: int
    end_offset: int  # the next offset to be written
    durable_offset: int  # records below it survive a power cut
    producer_expiration_ms: int
    failure: StorageError | None  # why nothing can be appended any more

    @property
    @abstractmethod
    def size_bytes(self) -> int: ...

    @property
    @abstractmethod
    def leader_epoch(self) -> int:
        """The epoch of the last append; -1 before the first."""

    @property
    @abstractmethod
    def high_watermark(self) -> int:
        """Where every consumer must stop: the end, or with `flush.messages=1` what is on disk, so that nobody acts on a
        record that a power cut takes back."""

    @property
    @abstractmethod
    def last_stable_offset(self) -> int:
        """Where a read_committed consumer must stop: at the oldest open transaction, or at the high watermark."""

    @abstractmethod
    def append(self, data: Buffer, *, leader_epoch: int, now_ms: int) -> Appended:
        """Append whole, already validated batches: all of them or, with StorageError, none. `data` is not changed."""

    @abstractmethod
    def read(
        self, offset: int, max_bytes: int, *, max_offset: int | None = None, at_least_one: bool = True
    ) -> list[memoryview]:
        """Whole batches from the one that holds `offset`, all below `max_offset`, at most `max_bytes`
        (but one batch in any case where `at_least_one`). OffsetOutOfRange outside the log."""

    def warm(self, offset: int, max_bytes: int) -> Callable[[], None] | None:
        """None where `read` will find its bytes in memory; else a function to run on another thread first."""
        return None

    @abstractmethod
    def offset_for_timestamp(self, timestamp: int) -> FoundOffset | None:
        """The first record at or after `timestamp`."""

    @abstractmethod
    def max_timestamp(self) -> FoundOffset | None:
        """The first record that has the largest timestamp of the log."""

    @abstractmethod
    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch not above `epoch` and its end offset; (-1, -1) where that is unknown."""

    @abstractmethod
    def epoch_for_offset(self, offset: int) -> int: ...

    @abstractmethod
    def aborted_transactions(self, from_offset: int, to_offset: int) -> list[AbortedTxn]:
        """Aborted transactions that overlap the range a read_committed fetch returns."""

    @abstractmethod
    def delete_records_before(self, offset: int) -> int:
        """Move the start of the log; returns the new start offset. OffsetOutOfRange above the end."""

    @abstractmethod
    def enforce_retention(self, now_ms: int) -> int:
        """Delete whole segments that cleanup.policy, retention.ms and retention.bytes let go; returns their number."""

    @abstractmethod
    def start_compaction(self, now_ms: int) -> Compaction | None:
        """Plan a round of compaction where enough of the log is dirty; pass it to `finish_compaction` after `run`."""

    @abstractmethod
    def finish_compaction(self, compaction: Compaction) -> None:
        """Swap the cleaned segments in."""

    def compact(self, now_ms: int) -> bool:
        """Compact now, on this thread; True where there was something to do."""
        compaction = self.start_compaction(now_ms)
        if compaction is None:
            return False
        compaction.run()
        self.finish_compaction(compaction)
        return True

    @abstractmethod
    def flush(self) -> None:
        """Make everything durable now; blocks."""

    @abstractmethod
    def flush_async(self, callback: FlushCallback | None = None) -> None:
        """Make everything appended so far durable; then call back, possibly from another thread, with the error if any.
        Requests that wait at the same time share one sync."""

    def confirm(self, callback: FlushCallback) -> None:
        """Call back when it is sure that this log is the newest there is of its partition, or with the error."""
        callback(None)

    @abstractmethod
    def maintain(self, now_ms: int) -> None:
        """Housekeeping that time asks for: retention, expiry of idle producers, flush.ms."""

    @abstractmethod
    def configure(self, config: LogConfig) -> None:
        """Use another configuration from now on."""

    @abstractmethod
    def close(self) -> None:
        """Flush and let go of everything; a clean close needs no recovery."""
