"""What is in a segment file, batch by batch, damaged stretches too: kohort's files and Kafka's own. Only reads.

Nothing here knows what records are about, and nothing is printed here.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kohort.records.batch import BatchHeader, Record, iter_records, read_body
from kohort.storage.errors import StorageError
from kohort.storage.mending import goes_on, good_header
from kohort.storage.segment_files import LOG

_SEGMENT = re.compile(r"\d{20}\.log(\..+)?")
_PARTITION = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)-\d+")
_NO_LIMIT = 2**63 - 1


class DumpedBatch(NamedTuple):
    position: int
    header: BatchHeader
    records: Iterator[Record]
    """To be taken before the next batch. A RecordsError where they cannot be read."""


class DamagedBytes(NamedTuple):
    position: int
    size: int
    reason: str
    next_offset: int | None
    """Where the segment goes on; None where it does not."""


def segments(path: Path) -> list[Path]:
    """The segment files that a path means: itself, those of a partition, or those of all partitions below it."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise StorageError(f"there is no {path}")
    found = sorted(file for file in path.glob(f"*{LOG}") if _SEGMENT.fullmatch(file.name))
    if not found:
        found = sorted(file for file in path.glob(f"*/*{LOG}") if _SEGMENT.fullmatch(file.name))
    if not found:
        raise StorageError(f"{path} has no segments: name a .log file, the folder of a partition or a data directory")
    return found


def topic_of(segment: Path) -> str:
    """By the name of its folder; empty where that does not tell."""
    match = _PARTITION.fullmatch(segment.absolute().parent.name)
    return match["topic"] if match else ""


def dump(segment: Path) -> Iterator[DumpedBatch | DamagedBytes]:
    """The batches of a segment in their order. Its name says which offsets it can have, if it is a segment's name."""
    size = segment.stat().st_size
    if not size:
        return
    offset = int(segment.name[:20]) if _SEGMENT.fullmatch(segment.name) else 0
    with open(segment, "rb") as file:
        view = memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ))
    position = 0
    while position < size:
        header, reason = good_header(view, position, offset, _NO_LIMIT)
        if header is not None and not reason:
            yield DumpedBatch(position, header, _records(view, position, header))
            position, offset = position + header.size, header.next_offset
            continue
        end, following = goes_on(view, position, offset, _NO_LIMIT, header)
        next_offset = None if following is None else following.base_offset
        yield DamagedBytes(position, end - position, reason, next_offset)
        position, offset = end, offset if following is None else following.base_offset


def _records(view: memoryview, position: int, header: BatchHeader) -> Iterator[Record]:
    yield from iter_records(read_body(view, position, header), header)
