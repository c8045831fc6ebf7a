"""Key and value of every record of a batch, and nothing else of it: what a load needs, at the speed a load needs.

In large batches the C kernel finds them, where there is one; whatever it refuses is read, or refused, without it.
"""

from collections.abc import Iterator
from ctypes import addressof, byref, c_int32, c_int64
from typing import NamedTuple

from kohort.records import kernel as _kernel
from kohort.records.batch import HEADER_SIZE, BatchHeader
from kohort.records.compression import decompress
from kohort.records.errors import CorruptBatch
from kohort.records.kernel import INDEX_COLUMNS, Batch, Index, Kernel, pinned

MAX_BATCH_BYTES = 256 * 1024 * 1024
LARGE_BATCH = 12
"""Records from which on calling the kernel pays."""


class KeyValues(NamedTuple):
    """Of one batch, three lists of one length; a record without a key has an empty one."""

    offsets: list[int]
    keys: list[bytes]
    values: list[bytes | None]


def key_values(buf: bytes | memoryview, pos: int, header: BatchHeader) -> Iterator[tuple[int, bytes, bytes | None]]:
    """(offset, key, value) of each record of the batch at `pos`."""
    return _one_by_one(_body(buf, pos, header), header)


def key_value_lists(buf: bytes | memoryview, pos: int, header: BatchHeader, *, use_kernel: bool = True) -> KeyValues:
    """The same, all at once."""
    data = _body(buf, pos, header)
    kernel = _kernel.load() if use_kernel and header.record_count >= LARGE_BATCH else None
    found = _indexed(kernel, data, header) if kernel is not None else None
    if found is None:
        found = KeyValues([], [], [])
        for offset, key, value in _one_by_one(data, header):
            found.offsets.append(offset)
            found.keys.append(key)
            found.values.append(value)
    return found


def _body(buf: bytes | memoryview, pos: int, header: BatchHeader) -> bytes:
    data = decompress(header.compression, memoryview(buf)[pos + HEADER_SIZE : pos + header.size], MAX_BATCH_BYTES)
    return data if isinstance(data, bytes) else bytes(data)


def _indexed(kernel: Kernel, data: bytes, header: BatchHeader) -> KeyValues | None:
    count = header.record_count
    if count * 7 > len(data):  # before there is memory for so many
        return None
    batch = Batch(data_len=len(data), count=count, base_offset=header.base_offset)
    index = Index(capacity=count)
    columns = {name: ((c_int64 if code == "q" else c_int32) * count)() for name, code in INDEX_COLUMNS.items()}
    for name, column in columns.items():
        setattr(index, name, addressof(column))
    with pinned(data) as address:
        if kernel.index(address, len(data), addressof(batch), 1, 0, 1 << 62, byref(index)) < 0 or index.rows < count:
            return None
    starts, ends = columns["key_start"][:], columns["key_end"][:]
    if index.key_nulls:
        keys = [data[start:end] if end >= 0 else b"" for start, end in zip(starts, ends, strict=True)]
    else:
        keys = [data[start:end] for start, end in zip(starts, ends, strict=True)]
    starts, ends = columns["value_start"][:], columns["value_end"][:]
    values: list[bytes | None]
    if index.value_nulls:
        values = [data[start:end] if end >= 0 else None for start, end in zip(starts, ends, strict=True)]
    else:
        values = [data[start:end] for start, end in zip(starts, ends, strict=True)]
    return KeyValues(columns["offset"][:], keys, values)


def _one_by_one(data: bytes, header: BatchHeader) -> Iterator[tuple[int, bytes, bytes | None]]:
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
