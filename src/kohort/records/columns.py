"""A fetch straight to Arrow, without a Python object per record. Only this module and its fallback need pyarrow.

The columns are those of Spark's Kafka source. With the C kernel the fields are found and copied in C; without it numpy
reads the varints of all records at once and pyarrow copies (columns_numpy.py). The output is the same.
"""

from collections.abc import Iterable, Iterator, Sequence
from ctypes import byref
from functools import lru_cache

import numpy as np
import pyarrow as pa

from kohort.records import kernel as _kernel
from kohort.records.columns_numpy import Columns, decode_plainly
from kohort.records.compression import DEFAULT_MAX_SIZE, Buffer
from kohort.records.fetch_plan import MAX_OFFSET, Run, Wanted, plan_groups
from kohort.records.kernel import INDEX_COLUMNS, Headers, Index, Kernel, error, pinned

DEFAULT_MAX_ROWS = 32768

HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
        ("headers", HEADERS_TYPE),
    ]
)
DEFAULT_COLUMNS = tuple(name for name in SCHEMA.names if name != "headers")

_SHARED_ROWS = 2 * DEFAULT_MAX_ROWS
_MAX_MICROSECONDS = (2**63 - 1) // 1000


def decode_batches(
    buf: Buffer,
    from_offset: int = 0,
    to_offset: int = MAX_OFFSET,
    *,
    topic: str = "",
    partition: int = 0,
    columns: Sequence[str] = DEFAULT_COLUMNS,
    aborted: Iterable[tuple[int, int]] = (),
    check_crc: bool = True,
    max_rows: int = DEFAULT_MAX_ROWS,
    max_size: int = DEFAULT_MAX_SIZE,
    use_kernel: bool = True,
) -> Iterator[pa.RecordBatch]:
    """The records of [from_offset, to_offset) in a fetched buffer as RecordBatches of at most `max_rows` rows.

    `columns` are names of SCHEMA in the order wanted; the fewer, the faster. Control records are left out, and with
    `aborted`, the (producer id, first offset) pairs of a read_committed fetch, what aborted transactions wrote.
    A record without headers has null there, as in Spark; timestamps that microseconds cannot hold are clamped.
    """
    schema = select(columns)
    wanted = Wanted(from_offset, to_offset, tuple(aborted), check_crc, max_rows, max_size)
    kernel = _kernel.load() if use_kernel else None
    if kernel is None:
        decoded = decode_plainly(buf, wanted, schema.names)
    else:
        decoded = _decode_groups(kernel, buf, wanted, schema.names)
    for part in decoded:
        rows = len(part.offset)
        if rows:
            arrays = [_array(part, name, topic, partition) for name in schema.names]
            batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
            yield from (batch.slice(start, max_rows) for start in range(0, rows, max_rows))


def select(columns: Sequence[str]) -> pa.Schema:
    """The part of SCHEMA with these columns, in this order."""
    unknown = [name for name in columns if name not in SCHEMA.names]
    if unknown or not columns:
        raise ValueError(f"unknown columns {unknown}: choose from {', '.join(SCHEMA.names)}")
    if len(set(columns)) < len(columns):
        raise ValueError(f"a column is named twice in {', '.join(columns)}")
    return pa.schema([SCHEMA.field(name) for name in columns])


def _array(part: Columns, name: str, topic: str, partition: int) -> pa.Array:
    rows = len(part.offset)
    if name == "key":
        return part.key
    if name == "value":
        return part.value
    if name == "headers":
        return _with_valid_keys(part.headers)
    if name == "topic":
        return _constant(topic, rows)
    if name == "partition":
        return _constant(partition, rows)
    if name == "offset":
        return pa.array(part.offset)
    if name == "timestampType":
        return pa.array(part.timestamp_type)
    microseconds = np.clip(part.timestamp, -_MAX_MICROSECONDS, _MAX_MICROSECONDS, out=part.timestamp)
    microseconds *= 1000
    return pa.Array.from_buffers(SCHEMA.field("timestamp").type, rows, [None, pa.py_buffer(microseconds)])


def _constant(value: str | int, rows: int) -> pa.Array:
    """A column of one value. Arrow data never changes, so batches share one column and take a slice of it."""
    if rows > _SHARED_ROWS:
        return _repeated(value, rows)
    return _shared(value).slice(0, rows)


@lru_cache(maxsize=8)
def _shared(value: str | int) -> pa.Array:
    return _repeated(value, _SHARED_ROWS)


def _repeated(value: str | int, rows: int) -> pa.Array:
    if isinstance(value, int):
        return pa.array(np.full(rows, value, np.int32))
    encoded = value.encode()
    offsets = np.arange(rows + 1, dtype=np.int32) * np.int32(len(encoded))
    return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(encoded * rows)])


def _with_valid_keys(headers: pa.ListArray) -> pa.ListArray:
    """Header keys come from producers unchecked; Arrow and Spark need UTF-8."""
    keys = headers.values.field("key")
    try:
        keys.validate(full=True)
        return headers
    except pa.ArrowInvalid:
        repaired = [key.decode("utf-8", "replace") for key in keys.view(pa.binary()).to_pylist()]
    pairs = pa.StructArray.from_arrays(
        [pa.array(repaired, pa.string()), headers.values.field("value")], fields=list(HEADERS_TYPE.value_type)
    )
    return pa.Array.from_buffers(HEADERS_TYPE, len(headers), headers.buffers()[:2], children=[pairs])


def _decode_groups(kernel: Kernel, buf: Buffer, wanted: Wanted, names: Sequence[str]) -> Iterator[Columns]:
    with pinned(buf) as address:
        for group in plan_groups(kernel, buf, address, wanted):
            yield _decode_group(kernel, group, wanted, names)


def _decode_group(kernel: Kernel, group: list[Run], wanted: Wanted, names: Sequence[str]) -> Columns:
    capacity = sum(run.rows for run in group)
    index = Index(capacity=capacity)
    found = {name: np.empty(capacity, np.int64 if code == "q" else np.int32) for name, code in INDEX_COLUMNS.items()}
    for name, values in found.items():
        setattr(index, name, values.ctypes.data)
    ends = []
    for run in group:
        with pinned(run.source) as address:
            result = kernel.index(
                address,
                len(run.source),
                run.batches,
                run.batch_count,
                wanted.from_offset,
                wanted.to_offset,
                byref(index),
            )
        if result < 0:
            raise error(result)
        ends.append((run.source, index.rows))
    rows = index.rows
    return Columns(
        found["offset"][:rows],
        found["timestamp"][:rows],
        found["timestamp_type"][:rows],
        _gather(kernel, ends, found, "key", index) if "key" in names else None,
        _gather(kernel, ends, found, "value", index) if "value" in names else None,
        _gather_headers(kernel, ends, found, index) if "headers" in names else None,
    )


def _gather(
    kernel: Kernel, ends: list[tuple[Buffer, int]], found: dict[str, np.ndarray], name: str, index: Index
) -> pa.BinaryArray:
    """Keys or values as one Arrow column; `ends` are the sources with the row after the last of each."""
    rows, size, nulls = index.rows, getattr(index, f"{name}_bytes"), getattr(index, f"{name}_nulls")
    starts, stops = found[f"{name}_start"], found[f"{name}_end"]
    offsets = np.empty(rows + 1, np.int32)
    offsets[0] = 0
    data = np.empty(size, np.uint8)
    valid = np.zeros((rows + 7) // 8, np.uint8) if nulls else None
    row = filled = 0
    for source, end in ends:
        with pinned(source) as address:
            filled = kernel.gather(
                address,
                len(source),
                starts[row:].ctypes.data,
                stops[row:].ctypes.data,
                end - row,
                row,
                offsets.ctypes.data,
                data.ctypes.data,
                filled,
                size,
                None if valid is None else valid.ctypes.data,
            )
        if filled < 0:
            raise error(filled)
        row = end
    validity = None if valid is None else pa.py_buffer(valid)
    return pa.Array.from_buffers(pa.binary(), rows, [validity, pa.py_buffer(offsets), pa.py_buffer(data)], nulls)


def _gather_headers(
    kernel: Kernel, ends: list[tuple[Buffer, int]], found: dict[str, np.ndarray], index: Index
) -> pa.ListArray:
    rows, count = index.rows, index.headers
    arrays = {
        "list_offset": np.zeros(rows + 1, np.int32),
        "list_valid": np.zeros((rows + 7) // 8, np.uint8),
        "key_offset": np.zeros(count + 1, np.int32),
        "key_data": np.empty(index.header_key_bytes, np.uint8),
        "value_offset": np.zeros(count + 1, np.int32),
        "value_data": np.empty(index.header_value_bytes, np.uint8),
        "value_valid": np.zeros((count + 7) // 8, np.uint8),
    }
    filling = Headers(rows=rows, headers=count, key_bytes=index.header_key_bytes, value_bytes=index.header_value_bytes)
    for name, values in arrays.items():
        setattr(filling, name, values.ctypes.data)
    row = 0
    for source, end in ends:
        starts, counts = found["header_start"][row:], found["header_count"][row:]
        with pinned(source) as address:
            result = kernel.gather_headers(
                address, len(source), starts.ctypes.data, counts.ctypes.data, end - row, byref(filling)
            )
        if result < 0:
            raise error(result)
        row = end
    parts = {name: pa.py_buffer(values) for name, values in arrays.items()}
    keys = pa.Array.from_buffers(pa.string(), count, [None, parts["key_offset"], parts["key_data"]])
    contents = pa.Array.from_buffers(
        pa.binary(), count, [parts["value_valid"], parts["value_offset"], parts["value_data"]]
    )
    pairs = pa.StructArray.from_arrays([keys, contents], fields=list(HEADERS_TYPE.value_type))
    return pa.Array.from_buffers(HEADERS_TYPE, rows, [parts["list_valid"], parts["list_offset"]], children=[pairs])
