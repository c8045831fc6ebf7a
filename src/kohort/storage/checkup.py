"""Reading a data directory that no broker uses: what of it is damaged, what a repair would cost, and the repair.

A batch is damaged where its bytes are no batch, out of order, or do not match their checksum; in topics that brokers
read themselves also where its records cannot be read. A repair takes such batches out, as compaction would, and leaves
a copy of what it takes; the rest keeps its offsets. Nothing here knows what records are about.
"""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kohort.protocol.errors import KafkaError
from kohort.records.batch import BatchHeader, Record, read_records
from kohort.storage import checkpoints
from kohort.storage.directory_lock import DirectoryLock
from kohort.storage.errors import StorageError
from kohort.storage.mending import goes_on, good_header, keep_copy
from kohort.storage.segment_files import INDEX, LOG, TIME_INDEX, TXN_INDEX, file_name

MAX_RELATIVE_OFFSET = 2**31 - 1
_PARTITION_DIR = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>\d+)")

CheckRecord = Callable[[str, Record], str | None]
"""check_record(topic, record): what is wrong with it, or None."""


@dataclass(frozen=True, slots=True)
class DamagedBatch:
    segment: int  # its base offset
    position: int  # in the file of the segment
    size: int
    offset: int  # where the log breaks off
    next_offset: int | None  # where it goes on, None where it does not
    records: int | None  # that a repair costs, None where that cannot be known
    reason: str


@dataclass(slots=True)
class PartitionCheck:
    topic: str
    partition: int
    batches: int = 0
    records: int = 0
    bytes: int = 0
    damage: list[DamagedBatch] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"


class Checkup:
    """A data directory, locked while it is looked at. StorageError where that cannot be."""

    def __init__(self, directory: str | os.PathLike[str], check_record: CheckRecord | None = None) -> None:
        self.path = Path(directory).absolute()
        if not self.path.is_dir():
            raise StorageError(f"{self.path} is not a directory")
        if not (self.path / checkpoints.META_PROPERTIES).exists():
            raise StorageError(f"{self.path} is no data directory: it has no {checkpoints.META_PROPERTIES}")
        try:
            self._lock = DirectoryLock(self.path)
        except OSError as error:
            raise StorageError(f"cannot lock {self.path}: {error.strerror}") from error
        self._check_record = check_record

    def __enter__(self) -> Checkup:
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    # --- looking

    def partitions(self, topic: str | None = None) -> list[tuple[str, int]]:
        matches = (_PARTITION_DIR.fullmatch(entry.name) for entry in self.path.iterdir() if entry.is_dir())
        found = [(match["topic"], int(match["partition"])) for match in matches if match]
        return sorted(place for place in found if topic in (None, place[0]))

    def check(self, topic: str, partition: int) -> PartitionCheck:
        found = PartitionCheck(topic, partition)
        bases = self._segments(found.name)
        for base, limit in zip(bases, [*bases[1:], None], strict=False):
            self._check_segment(found, base, limit)
        return found

    def _segments(self, name: str) -> list[int]:
        names = os.listdir(self.path / name)
        return sorted(int(n[:20]) for n in names if n.endswith(LOG) and n[:20].isdigit() and len(n) == 20 + len(LOG))

    def _segment(self, name: str, base: int) -> Path:
        return self.path / name / (file_name(base) + LOG)

    def _check_segment(self, found: PartitionCheck, base: int, limit: int | None) -> None:
        path = self._segment(found.name, base)
        size = path.stat().st_size
        found.bytes += size
        if not size:
            return
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            view = memoryview(mapped)
            try:
                for batch in self._scan(found.topic, view, base, limit or base + MAX_RELATIVE_OFFSET):
                    if isinstance(batch, DamagedBatch):
                        found.damage.append(batch)
                    else:
                        found.batches += 1
                        found.records += batch.record_count
            finally:
                view.release()

    def _scan(self, topic: str, view: memoryview, base: int, limit: int) -> Iterator[BatchHeader | DamagedBatch]:
        position, offset = 0, base
        while position < len(view):
            header, reason = good_header(view, position, offset, limit)
            if header is not None and not reason:
                reason = self._unreadable(topic, view, position, header)
            if header is not None and not reason:
                yield header
                position, offset = position + header.size, header.next_offset
                continue
            end, following = goes_on(view, position, offset, limit, header)
            records = header.record_count if header is not None and position + header.size == end else None
            next_offset = None if following is None else following.base_offset
            yield DamagedBatch(base, position, end - position, offset, next_offset, records, reason)
            position, offset = end, offset if following is None else following.base_offset

    def _unreadable(self, topic: str, view: memoryview, position: int, header: BatchHeader) -> str:
        if self._check_record is None or not topic.startswith("__"):
            return ""
        try:
            records = read_records(view, position, header)
        except KafkaError as error:
            return error.message or "its records cannot be read"
        if header.is_control:
            return ""
        for record in records:
            if why := self._check_record(topic, record):
                return f"the record at offset {record.offset}: {why}"
        return ""

    # --- repairing

    def repair(self, found: PartitionCheck) -> list[Path]:
        """Takes the damaged batches out; returns the files that keep them."""
        kept = [self._keep(found, damage) for damage in found.damage]
        self._ask_for_recovery(found)
        for base in sorted({damage.segment for damage in found.damage}):
            self._rewrite(found, base)
        return kept

    def _keep(self, found: PartitionCheck, damage: DamagedBatch) -> Path:
        with open(self._segment(found.name, damage.segment), "rb") as file:
            file.seek(damage.position)
            return keep_copy(self.path, found.name, damage.segment, damage.position, file.read(damage.size))

    def _ask_for_recovery(self, found: PartitionCheck) -> None:
        """The next start reads the whole partition, and makes its indexes anew."""
        (self.path / checkpoints.CLEAN_SHUTDOWN_FILE).unlink(missing_ok=True)
        points = self.path / checkpoints.RECOVERY_POINT_CHECKPOINT
        offsets = checkpoints.read_offsets(points)
        offsets[found.topic, found.partition] = 0
        checkpoints.write_offsets(points, offsets, sync=True)

    def _rewrite(self, found: PartitionCheck, base: int) -> None:
        path = self._segment(found.name, base)
        data = path.read_bytes()
        good, position = [], 0
        for damage in sorted((d for d in found.damage if d.segment == base), key=lambda d: d.position):
            good.append(data[position : damage.position])
            position = damage.position + damage.size
        good.append(data[position:])
        checkpoints.write_atomically(path, b"".join(good), sync=True)
        for kind in (INDEX, TIME_INDEX, TXN_INDEX):
            (self.path / found.name / (file_name(base) + kind)).unlink(missing_ok=True)
