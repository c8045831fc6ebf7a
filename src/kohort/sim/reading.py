"""A whole log as it is, for checkers: also what its leader would first have to read from the store."""

from __future__ import annotations

from collections.abc import Iterator

from kohort.records.batch import BatchHeader, iter_batches
from kohort.storage.cold_segment import NotInMemory, StoreFailed
from kohort.storage.log import Buffer, Log

TRIES = 100


def batches(log: Log) -> Iterator[tuple[Buffer, int, BatchHeader]]:
    """The bytes that a batch is in, where it begins there, and its header."""
    offset, tries = log.start_offset, 0
    while offset < log.end_offset:
        try:
            views = log.read(offset, 1 << 40)
        except (NotInMemory, StoreFailed) as missing:
            tries += 1
            if tries > TRIES:
                raise
            missing.load()
            continue
        for view in views:
            for pos, header in iter_batches(view):
                yield view, pos, header
                offset, tries = header.next_offset, 0
