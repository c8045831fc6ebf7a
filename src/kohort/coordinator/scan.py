"""Key and value of every record of a batch, and nothing else of it: what a load needs. `scanner.py` does the same for
large batches in C.
"""

from collections.abc import Iterator
from typing import NamedTuple

from kohort.records.batch import HEADER_SIZE, BatchHeader
from kohort.records.compression import decompress
from kohort.records.errors import CorruptBatch

MAX_BATCH_BYTES = 256 * 1024 * 1024
LARGE_BATCH, HUGE_BATCH = 8, 200_000
"""Records between which a Scanner pays."""


class KeyValues(NamedTuple):
    """Of one batch, three lists of one length; a record without a key has an empty one."""

    offsets: list[int]
    keys: list[bytes]
    values: list[bytes | None]


def key_values(buf: bytes | memoryview, pos: int, header: BatchHeader) -> Iterator[tuple[int, bytes, bytes | None]]:
    """(offset, key, value) of each record of the batch at `pos`."""
    return one_by_one(body(buf, pos, header), header)


def body(buf: bytes | memoryview, pos: int, header: BatchHeader) -> bytes:
    data = decompress(header.compression, memoryview(buf)[pos + HEADER_SIZE : pos + header.size], MAX_BATCH_BYTES)
    return data if isinstance(data, bytes) else bytes(data)


def one_by_one(data: bytes, header: BatchHeader) -> Iterator[tuple[int, bytes, bytes | None]]:
    base_offset, at, total = header.base_offset, 0, len(data)
    try:
        for _ in range(header.record_count):
            # Most varints here are one byte; what is longer goes through `_varint`.
            byte = data[at]
            size, at = (byte >> 1, at + 1) if byte < 0x80 else _varint(data, at)
            end = at + size
            at += 1  # attributes
            at = at + 1 if data[at] < 0x80 else _varint(data, at)[1]  # timestamp delta
            byte = data[at]
            delta, at = (byte >> 1, at + 1) if byte < 0x80 else _varint(data, at)
            byte = data[at]
            length, at = (-(byte & 1) ^ (byte >> 1), at + 1) if byte < 0x80 else _varint(data, at)
            key = data[at : at + length] if length >= 0 else b""
            at += max(length, 0)
            byte = data[at]
            length, at = (-(byte & 1) ^ (byte >> 1), at + 1) if byte < 0x80 else _varint(data, at)
            value = data[at : at + length] if length >= 0 else None
            if size < 6 or end > total or at + max(length, 0) > end:
                raise CorruptBatch(f"a record of {size} bytes does not fit its batch")
            yield base_offset + delta, key, value
            at = end
    except IndexError:
        raise CorruptBatch("the records end within a record") from None


def _varint(data: bytes, at: int) -> tuple[int, int]:
    shift = number = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        shift += 7
        if shift > 63:
            raise CorruptBatch("a number is longer than ten bytes")
