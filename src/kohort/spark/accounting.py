"""Every offset of a task's range must be read or have a reason why not. Walks batch headers only, decodes nothing.

Reasons that are no loss: a transaction marker, a record of an aborted transaction, a record that compaction removed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from kohort.client.types import TopicPartition
from kohort.records.batch import iter_batches
from kohort.records.compression import Buffer


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
        before = self.next_offset
        for _, header in iter_batches(records):
            begin, end = max(header.base_offset, self.next_offset), min(header.next_offset, self.stop)
            if header.next_offset <= self.next_offset:
                continue
            if self.next_offset >= self.stop:
                break
            if header.base_offset > self.next_offset:
                self.gaps.append((self.next_offset, min(header.base_offset, self.stop)))
            if header.is_control:
                self.markers += max(end - begin, 0)
            elif header.record_count < header.last_offset_delta + 1:
                self.compacted += header.last_offset_delta + 1 - header.record_count
            self.next_offset = header.next_offset
            self.bytes_read += header.size
        return self.next_offset > before

    def bytes_left(self, guess_per_record: int = 1024) -> int:
        """How much is still to be fetched, from what records took so far."""
        done = self.next_offset - self.first
        per_record = self.bytes_read / done if done > 0 and self.bytes_read else guess_per_record
        return int((self.stop - self.next_offset) * per_record)

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
