"""Every offset of a task's range must be read or have a reason why not. Walks batch headers only, decodes nothing.

Reasons that are no loss: a transaction marker, a record of an aborted transaction, a record that compaction removed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from struct import Struct

from kohort.client.types import TopicPartition
from kohort.records.batch import CONTROL_FLAG, HEADER_SIZE, LOG_OVERHEAD, read_header
from kohort.records.compression import Buffer
from kohort.records.errors import CorruptBatch

_FIELDS = Struct(">qi9xhi30xi")
"""Of a batch header: base offset, length, attributes, last offset delta, record count. Only these, since it is done for
every batch before the next fetch is sent."""


class DataLossError(RuntimeError):
    """Records were gone before they were read. `failOnDataLoss=false` logs this instead."""


@dataclass(slots=True)
class Account:
    """What became of the offsets [first, stop) of one partition, read in order."""

    partition: TopicPartition
    first: int
    stop: int
    next_offset: int = field(init=False)
    markers: int = 0
    compacted: int = 0
    gaps: list[tuple[int, int]] = field(default_factory=list)
    bytes_read: int = 0

    def __post_init__(self) -> None:
        self.next_offset = self.first

    @property
    def complete(self) -> bool:
        return self.next_offset >= self.stop

    def walk(self, records: Buffer) -> bool:
        """Go through the batches of one fetch; whether there was any progress."""
        before, cursor = self.next_offset, self.next_offset
        pos, size = 0, len(records)
        while size - pos >= HEADER_SIZE and cursor < self.stop:
            base, length, attributes, last_delta, count = _FIELDS.unpack_from(records, pos)
            if length < HEADER_SIZE - LOG_OVERHEAD or last_delta < 0:
                read_header(records, pos)
                raise CorruptBatch(f"a batch at offset {base} cannot have a last offset delta of {last_delta}")
            following = pos + length + LOG_OVERHEAD
            if following > size:
                break
            stop = base + last_delta + 1
            if stop > cursor:
                if base > cursor:
                    self.gaps.append((cursor, min(base, self.stop)))
                if attributes & CONTROL_FLAG:
                    self.markers += min(stop, self.stop) - max(base, cursor)
                elif count <= last_delta:
                    self.compacted += last_delta + 1 - count
                cursor = stop
                self.bytes_read += following - pos
            pos = following
        self.next_offset = cursor
        return cursor > before

    @property
    def bytes_per_record(self) -> float:
        """What records took so far, 0 where none was read."""
        return self.bytes_read / max(self.next_offset - self.first, 1)

    def bytes_left(self, guess_per_record: float) -> int:
        """How much is still to be fetched, from what records took so far."""
        return int((self.stop - self.next_offset) * (self.bytes_per_record or guess_per_record))

    def explain_gaps(self, cleanup_policy: Callable[[], str | None]) -> tuple[str | None, str | None]:
        """(what is no loss but worth a line in the log, what is a loss). The policy is asked for only where needed."""
        missing = sum(stop - first for first, stop in self.gaps)
        if missing == 0:
            return None, None
        shown = ", ".join(f"[{first}, {stop})" for first, stop in self.gaps[:3]) + (", …" if len(self.gaps) > 3 else "")
        policy = cleanup_policy()
        if policy is None or "compact" in policy:
            why = "compaction" if policy else "its cleanup.policy cannot be read, compaction is assumed"
            return f"{self.partition}: {missing} offsets are not in the log ({why}): {shown}", None
        return None, f"{self.partition}: {missing} offsets are not in the log, and cleanup.policy={policy}: {shown}"
