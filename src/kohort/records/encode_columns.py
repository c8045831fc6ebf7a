"""Arrow columns to records, without a Python object per row: the reverse of columns.py. Needs numpy and pyarrow.

`Rows` are the columns of one RecordBatch, checked and laid out for the C kernel; without it the same records are made
one by one, in Python. What each column may be is said where it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from ctypes import byref
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kohort.records import kernel as _kernel
from kohort.records.batch import HEADER_SIZE, Header, Record, encode_records
from kohort.records.checksum import crc32c
from kohort.records.compression import Compression
from kohort.records.encoded import EncodedRecords
from kohort.records.kernel import Columns, Field, error

COLUMNS = ("key", "value", "headers", "timestamp", "partition")
MOST_ROWS, ENOUGH_BYTES = 65_536, 32 * 1024 * 1024
MOST_BYTES = 2**30
"""Of `Rows`, whose offsets take four bytes."""
RECORD_OVERHEAD, HEADER_OVERHEAD = 21, 10
_MOST_OVERHEAD = 36
"""The varints of a record, all at their longest."""


class RowError(ValueError):
    """A row that cannot be a record, because of what it has in `column`."""

    def __init__(self, column: str, text: str) -> None:
        self.column = column
        super().__init__(text)


def pieces(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """The table in parts that can be `Rows`; small parts are put together."""
    group: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in table.to_batches(max_chunksize=MOST_ROWS):
        if group and (rows + batch.num_rows > MOST_ROWS or size + batch.nbytes > ENOUGH_BYTES):
            yield from _pieces(group)
            group, rows, size = [], 0, 0
        group.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
    yield from _pieces(group)


def _pieces(group: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if len(group) > 1:
        group = pa.Table.from_batches(group).combine_chunks().to_batches()
    for batch in group:
        if batch.nbytes > MOST_BYTES and batch.num_rows > 1:
            middle = batch.num_rows // 2
            yield from _pieces([batch.slice(0, middle)])
            yield from _pieces([batch.slice(middle)])
        elif batch.num_rows:
            yield batch


def longest(name: str, column: pa.ChunkedArray) -> int:
    """Bytes of the longest value of a column."""
    return max((pc.max(pc.binary_length(_as_binary(name, chunk))).as_py() or 0 for chunk in column.chunks), default=0)


class Binary:
    """A column of bytes: offsets that begin at 0, data, and which rows are null."""

    __slots__ = ("array", "data", "field", "offsets")

    def __init__(self, name: str, array: Any) -> None:
        self.array = _as_binary(name, array)
        valid, offsets, data = self.array.buffers()
        first, rows = self.array.offset, len(self.array)
        width = np.int64 if self.array.type == pa.large_binary() else np.int32
        found = np.frombuffer(offsets, width)[first : first + rows + 1] if rows else np.zeros(1, width)
        self.offsets = (found - found[0]).astype(np.int32) if width is np.int64 else found
        start = int(found[0]) if width is np.int64 else 0
        self.data = data
        has_nulls = self.array.null_count and valid is not None
        self.field = Field(
            data=None if data is None else data.address + start,
            offset=self.offsets.ctypes.data,
            valid=valid.address if has_nulls else None,
            bit=first,
        )

    def lengths(self) -> np.ndarray:
        """Bytes of each row, 0 for a null."""
        found = np.diff(self.offsets)
        if self.array.null_count:
            found[np.asarray(self.array.is_null())] = 0
        return found


def _as_binary(name: str, array: Any) -> Any:
    kind = array.type
    if pa.types.is_dictionary(kind):
        return _as_binary(name, array.dictionary_decode())
    if kind in (pa.binary(), pa.string()):
        made = array.view(pa.binary())
    elif kind in (pa.large_binary(), pa.large_string()):
        made = array.view(pa.large_binary())
    elif pa.types.is_null(kind) or _is_bytes(kind):
        made = array.cast(pa.large_binary())
    else:
        raise TypeError(f"column {name} must be binary or string, not {kind}: cast it")
    made.validate(full=True)  # offsets that lead elsewhere would be followed
    return made


def _is_bytes(kind: pa.DataType) -> bool:
    tests = ("is_fixed_size_binary", "is_binary_view", "is_string_view")
    return any(getattr(pa.types, test, lambda _: False)(kind) for test in tests)


class Headers:
    """The headers of all rows one after the other, and where those of each row begin."""

    __slots__ = ("key", "starts", "value")

    def __init__(self, array: Any, places: Sequence[int]) -> None:
        kind = array.type
        is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
        if (
            not is_list
            or not pa.types.is_struct(kind.value_type)
            or {f.name for f in kind.value_type} != {"key", "value"}
        ):
            raise TypeError(f"column headers must be list<struct<key: string, value: binary>>, not {kind}: cast it")
        array.validate(full=True)
        counts = np.asarray(pc.fill_null(pc.list_value_length(array), 0)).astype(np.int64)
        self.starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        pairs = array.flatten()
        key, value = pairs.field("key"), pairs.field("value")
        if pairs.null_count or key.null_count:
            entry = int(np.flatnonzero(np.asarray(pc.or_(pairs.is_null(), key.is_null())))[0])
            row = int(np.searchsorted(self.starts, entry, side="right")) - 1
            text = "a null header, or one with a null key, and Kafka has none such: leave it out"
            raise RowError("headers", f"row {places[row]} has {text}")
        self.key, self.value = Binary("headers", _text(key)), Binary("headers", value)

    def sizes(self) -> np.ndarray:
        """Bytes of each row's headers at most."""
        each = np.concatenate([[0], np.cumsum(self.key.lengths() + self.value.lengths() + HEADER_OVERHEAD)])
        return np.diff(each[self.starts])


class Rows:
    """Rows of one RecordBatch; `sizes` are an upper bound of the bytes of each. In sentences they are named by their
    `places`, which may be those in a larger table."""

    def __init__(self, batch: pa.RecordBatch, now_ms: int, places: Sequence[int] | None = None) -> None:
        columns = {name: batch.column(name) for name in batch.schema.names}
        self.count = batch.num_rows
        named = range(self.count) if places is None else places
        self.key = Binary("key", columns["key"]) if "key" in columns else None
        self.value = Binary("value", columns["value"]) if "value" in columns else None
        self.headers = _headers(columns.get("headers"), named)
        self.timestamp = _timestamps(columns.get("timestamp"), named, now_ms)
        self._has_times = "timestamp" in columns
        self.partition = _partitions(columns.get("partition"), named)
        self.sizes = np.full(self.count, RECORD_OVERHEAD, np.int64)
        for found in (self.key, self.value):
            if found is not None:
                self.sizes += found.lengths()
        if self.headers is not None:
            self.sizes += self.headers.sizes()
        self._columns = Columns(
            rows=self.count, timestamp=self.timestamp.ctypes.data, partition=self.partition.ctypes.data
        )
        for name, found in (("key", self.key), ("value", self.value)):
            if found is not None:
                setattr(self._columns, name, found.field)
        if self.headers is not None:
            self._columns.header_start = self.headers.starts.ctypes.data
            self._columns.header_key, self._columns.header_value = self.headers.key.field, self.headers.value.field

    def encode(self, order: np.ndarray, *, use_kernel: bool = True) -> EncodedRecords:
        """These rows, in this order, as the records of one batch."""
        base = int(self.timestamp[order[0]])
        newest = int(self.timestamp[order].max()) if self._has_times else base
        order = np.ascontiguousarray(order, np.int64)
        kernel = _kernel.load() if use_kernel else None
        if kernel is None or kernel.encode is None:
            body: Any = encode_records(self._records(order), 0, base)
            return EncodedRecords(len(order), base, newest, Compression.NONE, body)
        capacity = int(self.sizes[order].sum()) + (_MOST_OVERHEAD - RECORD_OVERHEAD) * len(order)
        out = np.empty(HEADER_SIZE + capacity, np.uint8)
        start = out.ctypes.data + HEADER_SIZE
        size = kernel.encode(byref(self._columns), order.ctypes.data, 0, len(order), base, start, capacity)
        if size < 0:
            raise error(size)
        frame = out.data[: HEADER_SIZE + size]
        return EncodedRecords(len(order), base, newest, Compression.NONE, frame[HEADER_SIZE:], frame)

    def partitions(self, count: int, of_key: Callable[[bytes, int], int], *, use_kernel: bool = True) -> np.ndarray:
        """Where each row goes: to the partition it names, else to that of its key; -1 where it has neither. `of_key` is
        murmur2, as the kernel has it too."""
        found = self.partition.copy()
        kernel = _kernel.load() if use_kernel else None
        if kernel is not None and kernel.encode is not None:
            kernel.partition(byref(self._columns), count, found.ctypes.data)
        elif self.key is not None:
            for row, key in enumerate(self.key.array.to_pylist()):
                if key is not None and found[row] < 0:
                    found[row] = of_key(key, count)
        return found

    def digest(self, topic: str, *, use_kernel: bool = True) -> int:
        """A sum over the rows, their times left out: the same for the same rows, in whatever process and order."""
        seed = crc32c(topic.encode())
        kernel = _kernel.load() if use_kernel else None
        if kernel is not None and kernel.encode is not None:
            return kernel.digest(byref(self._columns), seed)
        order = np.arange(self.count)
        rows = zip(self.partition.tolist(), self._records(order), strict=True)
        return sum(_row_digest(seed, partition, record) for partition, record in rows) & (2**63 - 1)

    def _records(self, order: np.ndarray) -> Iterator[Record]:
        nothing = [None] * len(order)
        keys = nothing if self.key is None else self.key.array.take(pa.array(order)).to_pylist()
        values = nothing if self.value is None else self.value.array.take(pa.array(order)).to_pylist()
        for place, (row, key, value) in enumerate(zip(order.tolist(), keys, values, strict=True)):
            yield Record(place, int(self.timestamp[row]), key, value, self._headers_of(row))

    def _headers_of(self, row: int) -> tuple[Header, ...]:
        if self.headers is None:
            return ()
        first, end = int(self.headers.starts[row]), int(self.headers.starts[row + 1])
        keys, values = (part.array[first:end].to_pylist() for part in (self.headers.key, self.headers.value))
        return tuple((key.decode(), value) for key, value in zip(keys, values, strict=True))


def _text(keys: Any) -> Any:
    """Kafka's headers are named by strings; Arrow's bytes may be anything."""
    if keys.type not in (pa.binary(), pa.large_binary()):
        return keys
    try:
        return keys.cast(pa.large_string())
    except pa.ArrowInvalid:
        raise RowError("headers", "a header has a key that is no text: encode it as UTF-8") from None


def _headers(array: Any, places: Sequence[int]) -> Headers | None:
    return None if array is None or array.null_count == len(array) else Headers(array, places)


def _timestamps(array: Any, places: Sequence[int], now_ms: int) -> np.ndarray:
    """Of type timestamp, or milliseconds since 1970 as int64; null: now."""
    if array is None or pa.types.is_null(array.type):
        return np.full(len(places), now_ms, np.int64)
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.timestamp("ms", array.type.tz), safe=False).view(pa.int64())
    elif array.type != pa.int64():
        raise TypeError(f"column timestamp must be a timestamp, or milliseconds as int64, not {array.type}: cast it")
    times = np.array(pc.fill_null(array, now_ms), np.int64)
    if len(times) and times.min() < 0:
        row = int(np.argmin(times >= 0))
        text = f"has the timestamp {times[row]}, which is before 1970: give another, or null for now"
        raise RowError("timestamp", f"row {places[row]} {text}")
    return times


def _partitions(array: Any, places: Sequence[int]) -> np.ndarray:
    """Integers; null: none is given."""
    if array is None or pa.types.is_null(array.type):
        return np.full(len(places), -1, np.int32)
    if not pa.types.is_integer(array.type):
        raise TypeError(f"column partition must be int32, not {array.type}: cast it")
    wrong = pc.fill_null(pc.or_(pc.less(array, 0), pc.greater(array, 2**31 - 1)), False)
    if pc.any(wrong).as_py():
        row = int(np.argmax(np.asarray(wrong)))
        text = f"names partition {array[row]}: none has that number; null leaves it to the key"
        raise RowError("partition", f"row {places[row]} {text}")
    return np.array(pc.fill_null(array.cast(pa.int32()), -1), np.int32)


def _row_digest(seed: int, partition: int, record: Record) -> int:
    crc = _digest_number(seed, partition)
    crc = _digest_field(_digest_field(crc, record.key), record.value)
    crc = _digest_number(crc, len(record.headers))
    for name, content in record.headers:
        crc = _digest_field(_digest_field(crc, name.encode()), content)
    return crc


def _digest_number(crc: int, number: int) -> int:
    return crc32c(number.to_bytes(4, "little", signed=True), crc)


def _digest_field(crc: int, content: bytes | None) -> int:
    if content is None:
        return _digest_number(crc, -1)
    return crc32c(content, _digest_number(crc, len(content)))
