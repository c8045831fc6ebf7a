"""A whole fetch to Python records as fast as Python allows: the C kernel finds the fields, Python only slices them.

Needs neither numpy nor pyarrow. Without the kernel a pure Python loop gives the same records.
"""

from collections.abc import Iterable
from ctypes import addressof, byref, c_int32, c_int64
from itertools import repeat
from typing import NamedTuple

from kohort.records import kernel as _kernel
from kohort.records.batch import Header, Record, read_header_fields, read_records
from kohort.records.compression import DEFAULT_MAX_SIZE, Buffer
from kohort.records.fetch_plan import MAX_OFFSET, Run, Wanted, plan_groups, wanted_batches
from kohort.records.kernel import INDEX_COLUMNS, Index, Kernel, error, pinned


class RecordLists(NamedTuple):
    """The records of a fetch, one list a field, all of one length: zip what you need."""

    offsets: list[int]
    timestamps: list[int]
    timestamp_types: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[tuple[Header, ...]]


def decode_records(
    buf: Buffer,
    from_offset: int = 0,
    to_offset: int = MAX_OFFSET,
    *,
    aborted: Iterable[tuple[int, int]] = (),
    check_crc: bool = True,
    max_size: int = DEFAULT_MAX_SIZE,
    use_kernel: bool = True,
) -> list[Record]:
    """The records of [from_offset, to_offset) in a fetched buffer; control records are left out.

    `aborted` are the (producer id, first offset) pairs of a read_committed fetch. A consumer that makes records of its
    own is faster with `decode_lists`.
    """
    lists = decode_lists(
        buf, from_offset, to_offset, aborted=aborted, check_crc=check_crc, max_size=max_size, use_kernel=use_kernel
    )
    return list(
        map(
            tuple.__new__,
            repeat(Record),
            zip(lists.offsets, lists.timestamps, lists.keys, lists.values, lists.headers, strict=True),
        )
    )


def decode_lists(
    buf: Buffer,
    from_offset: int = 0,
    to_offset: int = MAX_OFFSET,
    *,
    aborted: Iterable[tuple[int, int]] = (),
    check_crc: bool = True,
    max_size: int = DEFAULT_MAX_SIZE,
    use_kernel: bool = True,
) -> RecordLists:
    """Like `decode_records`, as one list per field."""
    wanted = Wanted(from_offset, to_offset, tuple(aborted), check_crc, max_size=max_size)
    lists = RecordLists([], [], [], [], [], [])
    kernel = _kernel.load() if use_kernel else None
    if kernel is None:
        _decode_plainly(buf, wanted, lists)
    else:
        data = buf if isinstance(buf, bytes) else bytes(buf)
        with pinned(data) as address:
            for group in plan_groups(kernel, data, address, wanted):
                for run in group:
                    _decode_run(kernel, run, wanted, lists)
    return lists


def _decode_plainly(buf: Buffer, wanted: Wanted, lists: RecordLists) -> None:
    low, high = wanted.from_offset, wanted.to_offset
    for pos, header in wanted_batches(buf, wanted):
        records = read_records(buf, pos, header, wanted.max_size)
        records = [record for record in records if low <= record.offset < high]
        lists.timestamp_types.extend(repeat(header.timestamp_type, len(records)))
        for record in records:
            lists.offsets.append(record.offset)
            lists.timestamps.append(record.timestamp)
            lists.keys.append(record.key)
            lists.values.append(record.value)
            lists.headers.append(record.headers)


def _decode_run(kernel: Kernel, run: Run, wanted: Wanted, lists: RecordLists) -> None:
    data = run.source if isinstance(run.source, bytes) else bytes(run.source)
    capacity = min(run.rows, wanted.to_offset - wanted.from_offset)
    index = Index(capacity=capacity)
    columns = {}
    for name, code in INDEX_COLUMNS.items():
        columns[name] = ((c_int64 if code == "q" else c_int32) * capacity)()
        setattr(index, name, addressof(columns[name]))
    with pinned(data) as address:
        result = kernel.index(
            address, len(data), run.batches, run.batch_count, wanted.from_offset, wanted.to_offset, byref(index)
        )
    if result < 0:
        raise error(result)
    rows = index.rows
    lists.offsets.extend(columns["offset"][:rows])
    lists.timestamps.extend(columns["timestamp"][:rows])
    lists.timestamp_types.extend(columns["timestamp_type"][:rows])
    lists.keys.extend(_slices(data, columns["key_start"][:rows], columns["key_end"][:rows], index.key_nulls))
    lists.values.extend(_slices(data, columns["value_start"][:rows], columns["value_end"][:rows], index.value_nulls))
    lists.headers.extend(
        _headers(data, columns["header_start"][:rows], columns["header_count"][:rows], index.header_rows)
    )


def _slices(data: bytes, starts: list[int], ends: list[int], nulls: int) -> Iterable[bytes | None]:
    if nulls == 0:
        return [data[start:end] for start, end in zip(starts, ends, strict=True)]
    if nulls == len(starts):
        return repeat(None, nulls)
    return [data[start:end] if end >= 0 else None for start, end in zip(starts, ends, strict=True)]


def _headers(data: bytes, starts: list[int], counts: list[int], rows_with_headers: int) -> Iterable[tuple[Header, ...]]:
    if rows_with_headers == 0:
        return repeat((), len(starts))
    end = len(data)
    return [
        read_header_fields(data, start, end, count)[0] if count else ()
        for start, count in zip(starts, counts, strict=True)
    ]
