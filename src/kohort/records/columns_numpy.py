"""The decoder of columns.py where there is no C kernel: record lengths walked in Python, everything else vectorised.

The walk is the only step per record; varints of all records are read at once with numpy, fields copied by pyarrow.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kohort.records.batch import HEADER_SIZE, LOG_APPEND_TIME, BatchHeader, Header, read_header_fields
from kohort.records.compression import Buffer, decompress_view
from kohort.records.errors import CorruptBatch
from kohort.records.fetch_plan import GROUP_BYTES, MIN_RECORD_SIZE, Wanted, wanted_batches
from kohort.records.kernel import MAX_SOURCE
from kohort.records.varint import read_varint

_PADDING = bytes(16)


class Columns(NamedTuple):
    """Decoded records; `timestamp` in milliseconds. Columns that nobody asked for are None."""

    offset: np.ndarray
    timestamp: np.ndarray
    timestamp_type: np.ndarray
    key: pa.BinaryArray | None
    value: pa.BinaryArray | None
    headers: pa.ListArray | None


def decode_plainly(buf: Buffer, wanted: Wanted, names: Sequence[str]) -> Iterator[Columns]:
    """The wanted records of a fetch in groups of about max_rows."""
    view = memoryview(buf)
    group: list[tuple[BatchHeader, Buffer]] = []
    rows = size = 0
    for pos, header in wanted_batches(buf, wanted):
        body = view[pos + HEADER_SIZE : pos + header.size]
        source = decompress_view(header.compression, body, min(wanted.max_size, MAX_SOURCE // 2))
        if header.record_count * MIN_RECORD_SIZE > len(source):
            raise CorruptBatch(f"{len(source)} bytes cannot hold {header.record_count} records")
        if group and (rows + header.record_count > wanted.max_rows or size >= GROUP_BYTES):
            yield _decode_group(group, wanted, names)
            group, rows, size = [], 0, 0
        group.append((header, source))
        rows += header.record_count
        size += len(source)
    if group:
        yield _decode_group(group, wanted, names)


def _decode_group(group: list[tuple[BatchHeader, Buffer]], wanted: Wanted, names: Sequence[str]) -> Columns:
    data = b"".join([source for _, source in group] + [_PADDING])
    buf = np.frombuffer(data, np.uint8)
    starts, ends = _extents(buf, _walk(data, group))
    counts = [header.record_count for header, _ in group]
    timestamp, pos = _varints(buf, starts + 1, ends, 10)
    delta, pos = _varints(buf, pos, ends, 5)
    key_start, key_end, pos = _fields(buf, pos, ends)
    value_start, value_end, pos = _fields(buf, pos, ends)
    header_count, pos = _varints(buf, pos, ends, 5)
    headers = _read_headers(data, pos, ends, header_count)

    offset = delta + _per_record([header.base_offset for header, _ in group], counts)
    with np.errstate(over="ignore"):
        timestamp += _per_record([header.base_timestamp for header, _ in group], counts)
    timestamp_type = _per_record([header.timestamp_type for header, _ in group], counts)
    append_time = _per_record([header.max_timestamp for header, _ in group], counts)
    timestamp = np.where(timestamp_type == LOG_APPEND_TIME, append_time, timestamp)

    keep = np.flatnonzero((offset >= wanted.from_offset) & (offset < wanted.to_offset))
    return Columns(
        offset[keep],
        timestamp[keep],
        timestamp_type[keep].astype(np.int32),
        _take(data, key_start[keep], key_end[keep]) if "key" in names else None,
        _take(data, value_start[keep], value_end[keep]) if "value" in names else None,
        _header_lists(keep, headers) if "headers" in names else None,
    )


def _per_record(values: list[int], counts: list[int]) -> np.ndarray:
    return np.repeat(np.array(values, np.int64), counts)


def _walk(data: bytes, group: list[tuple[BatchHeader, Buffer]]) -> np.ndarray:
    """Where each record starts: each says how long it is, so this is the one loop over records.

    Sizes that make no sense are for `_extents` to refuse; here they only must not lead backwards.
    """
    starts: list[int] = []
    append = starts.append
    pos = stop = 0
    try:
        for header, source in group:
            stop += len(source)
            for _ in range(header.record_count):
                append(pos)
                low = data[pos]
                if low < 0x80:
                    pos += 1 + (low >> 1)
                    continue
                high = data[pos + 1]
                if high < 0x80:
                    pos += 2 + (high << 6 | low >> 1 & 0x3F)
                else:
                    size, pos = read_varint(data, pos)
                    pos += max(size, 0)
            if pos != stop:
                raise CorruptBatch("the records of a batch do not end where the batch does")
    except IndexError:
        raise CorruptBatch("the records end within a record") from None
    return np.array(starts, np.int64)


def _extents(buf: np.ndarray, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Start and end of the content of each record."""
    size, content = _varints(buf, starts, np.full(len(starts), len(buf)), 5)
    ends = content + size
    if (size < 1).any() or (ends[:-1] != starts[1:]).any():
        raise CorruptBatch("a record has a size that makes no sense")
    return content, ends


def _varints(buf: np.ndarray, pos: np.ndarray, ends: np.ndarray, max_bytes: int) -> tuple[np.ndarray, np.ndarray]:
    """A zig-zag varint at each of `pos`, none of which is past its record's end, and the positions after them."""
    # Up to 10 bytes are read from at most the end of the data: the padding keeps that inside.
    byte = buf[pos]
    raw = (byte & 0x7F).astype(np.uint64)
    pos = pos + 1
    more = np.flatnonzero(byte & 0x80)
    for number in range(1, max_bytes):
        if not more.size:
            break
        byte = buf[pos[more]]
        raw[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(7 * number)
        pos[more] += 1
        more = more[(byte & 0x80) != 0]
    if more.size or (pos > ends).any():
        raise CorruptBatch("a varint does not end within its record")
    if max_bytes == 5:
        raw &= np.uint64(0xFFFFFFFF)
    values = (raw >> np.uint64(1)).astype(np.int64)
    values ^= -(raw & np.uint64(1)).astype(np.int64)
    return values, pos


def _fields(buf: np.ndarray, pos: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Start and end of a length-prefixed field of each record, the end -1 for null, and the positions after them."""
    length, start = _varints(buf, pos, ends, 5)
    after = start + np.maximum(length, 0)
    if (after > ends).any():
        raise CorruptBatch("a field does not fit its record")
    return start, np.where(length < 0, -1, after), after


def _read_headers(data: bytes, pos: np.ndarray, ends: np.ndarray, counts: np.ndarray) -> dict[int, tuple[Header, ...]]:
    """The headers of those records that have any, by record; also checks that every record ends where it says."""
    if (counts < 0).any() or (counts > ends - pos).any():
        raise CorruptBatch("a record has a header count that its bytes cannot hold")
    if (pos[counts == 0] != ends[counts == 0]).any():
        raise CorruptBatch("a record is longer than its content")
    headers = {}
    for row in np.flatnonzero(counts).tolist():
        try:
            headers[row], after = read_header_fields(data, int(pos[row]), int(ends[row]), int(counts[row]))
        except IndexError:
            raise CorruptBatch("the records end within a record") from None
        if after != ends[row]:
            raise CorruptBatch("a record is longer or shorter than it says")
    return headers


def _take(data: bytes, start: np.ndarray, end: np.ndarray) -> pa.BinaryArray:
    """The slices as a column: every other element of one binary array over all the data, copied out by Arrow."""
    rows = len(start)
    null = end < 0
    bounds = np.empty(2 * rows, np.int32)
    bounds[0::2] = start
    bounds[1::2] = np.where(null, start, end)
    if not rows:
        return pa.array([], pa.binary())
    everything = pa.Array.from_buffers(pa.binary(), 2 * rows - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)])
    wanted = np.arange(0, 2 * rows, 2)
    return everything.take(pa.array(wanted, mask=null) if null.any() else pa.array(wanted))


def _header_lists(keep: np.ndarray, headers: dict[int, tuple[Header, ...]]) -> pa.ListArray:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    lists = ([{"key": key, "value": value} for key, value in headers.get(row, ())] or None for row in keep.tolist())
    return pa.array(lists, kind)
