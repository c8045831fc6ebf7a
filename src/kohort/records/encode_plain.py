"""Single records to the records of a batch, by the C kernel: those without headers, whose keys and whose values are all
there or all null. No numpy and no pyarrow in here; for all others there is `encode_records`.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from ctypes import byref
from itertools import accumulate

from kohort.records import kernel as _kernel
from kohort.records.batch import HEADER_SIZE, Record
from kohort.records.compression import Compression
from kohort.records.encoded import EncodedRecords
from kohort.records.kernel import Columns, Field, error, pinned

_FEW = 8
"""So many are encoded as quickly without the kernel."""
_MOST_OVERHEAD = 36
"""The varints of a record, all at their longest."""
_MOST_BYTES = 2**30


def encode_plain(records: Sequence[Record]) -> EncodedRecords | None:
    """Records with the offsets 0, 1, 2, ...; None where they are not plain, or few, or there is no kernel."""
    count, kernel = len(records), _kernel.load()
    if count < _FEW or kernel is None or kernel.encode is None:
        return None
    _, times, keys, values, headers = zip(*records, strict=True)
    columns = _column(keys), _column(values)
    if any(headers) or None in columns:
        return None
    (key, key_ends), (value, value_ends) = columns  # type: ignore[misc]
    stamps, capacity = array("q", times), len(key) + len(value) + _MOST_OVERHEAD * count
    out = bytearray(HEADER_SIZE + capacity)
    with pinned(key) as key_at, pinned(value) as value_at, pinned(out) as start:
        made = Columns(
            rows=count,
            key=Field(data=key_at, offset=_address(key_ends)),
            value=Field(data=value_at, offset=_address(value_ends)),
            timestamp=_address(stamps),
        )
        size = kernel.encode(byref(made), None, 0, count, times[0], start + HEADER_SIZE, capacity)
    if size < 0:
        raise error(size)
    frame = memoryview(out)[: HEADER_SIZE + size]
    return EncodedRecords(count, times[0], max(times), Compression.NONE, frame[HEADER_SIZE:], frame)


def _column(fields: Sequence[bytes | None]) -> tuple[bytes, array[int] | None] | None:
    """All of them one after the other, and where each ends; no ends: all are null. None where only some are, or where
    they are too long together."""
    nulls = fields.count(None)
    if nulls:
        return (b"", None) if nulls == len(fields) else None
    joined = b"".join(fields)  # type: ignore[arg-type]
    if len(joined) > _MOST_BYTES:
        return None
    return joined, array("i", accumulate(map(len, fields), initial=0))  # type: ignore[arg-type]


def _address(numbers: array[int] | None) -> int | None:
    return None if numbers is None else numbers.buffer_info()[0]
