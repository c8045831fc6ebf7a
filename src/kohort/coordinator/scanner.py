"""Key and value of every record of a large batch at once, at the speed that a load needs: the C kernel finds them,
where there is one; whatever it refuses is read, or refused, without it (`scan.py`). Imported by the first load that has
such a batch.
"""

from ctypes import addressof, byref, c_int32, c_int64
from typing import Any, TypeVar

from kohort.coordinator.scan import KeyValues, body, one_by_one
from kohort.records import kernel as _kernel
from kohort.records.batch import BatchHeader
from kohort.records.fetch_plan import MAX_OFFSET, MIN_RECORD_SIZE
from kohort.records.kernel import INDEX_COLUMNS, Batch, Index, pinned

N = TypeVar("N", bytes, None)


class Scanner:
    """`key_values`, all at once. Has memory that it uses again and again: for one owner, on one thread at a time."""

    def __init__(self, *, use_kernel: bool = True) -> None:
        self._kernel = _kernel.load() if use_kernel else None
        self._batch, self._index = Batch(), Index()
        self._columns: dict[str, Any] = {}

    def key_values(self, buf: bytes | memoryview, pos: int, header: BatchHeader) -> KeyValues:
        data = body(buf, pos, header)
        found = self._indexed(data, header)
        if found is None:
            rows = list(one_by_one(data, header))
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
