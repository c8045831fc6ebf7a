"""Key and value of every record of a batch, and nothing else of it: what a load needs, at the speed a load needs.

In large batches the C kernel finds them, where there is one; whatever it refuses is read, or refused, without it.
"""

from collections.abc import Iterator
from ctypes import addressof, byref, c_int32, c_int64
from typing import Any, NamedTuple, TypeVar

from kohort.records import kernel as _kernel
from kohort.records.batch import HEADER_SIZE, BatchHeader
from kohort.records.compression import decompress
from kohort.records.errors import CorruptBatch
from kohort.records.fetch_plan import MAX_OFFSET, MIN_RECORD_SIZE
from kohort.records.kernel import INDEX_COLUMNS, Batch, Index, pinned

N = TypeVar("N", bytes, None)

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
    return _one_by_one(_body(buf, pos, header), header)


class Scanner:
    """`key_values`, all at once. Has memory that it uses again and again: for one owner, on one thread at a time."""

    def __init__(self, *, use_kernel: bool = True) -> None:
        self._kernel = _kernel.load() if use_kernel else None
        self._batch, self._index = Batch(), Index()
        self._columns: dict[str, Any] = {}

    def key_values(self, buf: bytes | memoryview, pos: int, header: BatchHeader) -> KeyValues:
        data = _body(buf, pos, header)
        found = self._indexed(data, header)
        if found is None:
            rows = list(_one_by_one(data, header))
            found = KeyValues([row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows])
        return found

    def _indexed(self, data: bytes, header: BatchHeader) -> KeyValues | None:
        count, batch, index = header.record_count, self._batch, self._index
        if self._kernel is None or count * MIN_RECORD_SIZE > len(data):  # before there is memory for so many
            return None
        if index.capacity < count:
            self._make_room(count)
        batch.data_len, batch.count, batch.base_offset = len(data), count, header.base_offset
        index.rows = index.key_nulls = index.value_nulls = 0
        with pinned(data) as address:
            result = self._kernel.index(address, len(data), addressof(batch), 1, 0, MAX_OFFSET, byref(index))
        if result < 0 or index.rows < count:
            return None
        columns = self._columns
        keys = _slices(data, columns["key_start"][:count], columns["key_end"][:count], index.key_nulls, b"")
        values = _slices(data, columns["value_start"][:count], columns["value_end"][:count], index.value_nulls, None)
        return KeyValues(columns["offset"][:count], keys, values)

    def _make_room(self, count: int) -> None:
        self._columns = {
            name: ((c_int64 if code == "q" else c_int32) * count)() for name, code in INDEX_COLUMNS.items()
        }
        for name, column in self._columns.items():
            setattr(self._index, name, addressof(column))
        self._index.capacity = count


def _slices(data: bytes, starts: list[int], ends: list[int], nulls: int, null: N) -> list[bytes | N]:
    if nulls:
        return [data[start:end] if end >= 0 else null for start, end in zip(starts, ends, strict=True)]
    return [data[start:end] for start, end in zip(starts, ends, strict=True)]


def _body(buf: bytes | memoryview, pos: int, header: BatchHeader) -> bytes:
    data = decompress(header.compression, memoryview(buf)[pos + HEADER_SIZE : pos + header.size], MAX_BATCH_BYTES)
    return data if isinstance(data, bytes) else bytes(data)


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
