"""Whole fetches to Python records: the C kernel and the pure Python path give the same."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.records import kernel
from kohort.records.batch import (
    Compression,
    CorruptBatch,
    Record,
    UnsupportedMagic,
    build_batch,
    iter_batches,
    read_records,
)
from kohort.records.control import ControlType, build_marker
from kohort.records.fetch import decode_lists, decode_records
from records.batches import NOW_MS, fetches, plain_records

needs_kernel = pytest.mark.skipif(kernel.load() is None, reason="no compiler was there to build the kernel")
both_paths = pytest.mark.parametrize("use_kernel", [pytest.param(True, marks=needs_kernel), False])


def read_batch_by_batch(fetch: bytes, low: int, high: int) -> list[Record]:
    return [
        record
        for pos, header in iter_batches(fetch)
        if not header.is_control
        for record in read_records(fetch, pos, header)
        if low <= record.offset < high
    ]


@both_paths
@given(fetch=fetches(), low=st.integers(0, 30_000), span=st.integers(0, 40_000))
def test_an_offset_range_of_a_fetch(use_kernel: bool, fetch: bytes, low: int, span: int) -> None:
    expected = read_batch_by_batch(fetch, low, low + span)
    assert decode_records(fetch, low, low + span, use_kernel=use_kernel) == expected
    assert decode_records(memoryview(bytearray(fetch)), low, low + span, use_kernel=use_kernel) == expected


@both_paths
def test_lists_hold_one_field_each(use_kernel: bool) -> None:
    records = [Record(0, 10, None, b"a"), Record(1, 11, b"k", None, (("h", None), ("é", b"x")))]
    lists = decode_lists(build_batch(records, compression=Compression.ZSTD), use_kernel=use_kernel)
    assert lists.offsets == [0, 1]
    assert lists.timestamps == [10, 11]
    assert lists.timestamp_types == [0, 0]
    assert lists.keys == [None, b"k"]
    assert lists.values == [b"a", None]
    assert lists.headers == [(), (("h", None), ("é", b"x"))]


@both_paths
def test_more_batches_and_records_than_one_scan_takes(use_kernel: bool) -> None:
    fetch = b"".join(build_batch(plain_records(2, 2 * n), base_offset=2 * n) for n in range(3000))
    fetch += build_batch(plain_records(70_000, 6000, b""), base_offset=6000)
    offsets = decode_lists(fetch, use_kernel=use_kernel).offsets
    assert offsets == list(range(76_000))


@both_paths
def test_aborted_transactions_are_left_out(use_kernel: bool) -> None:
    def data(offset: int, producer: int, transactional: bool = True) -> bytes:
        records = [Record(offset, NOW_MS, b"%d" % producer), Record(offset + 1, NOW_MS, b"%d" % producer)]
        return build_batch(records, base_offset=offset, producer_id=producer, transactional=transactional)

    def marker(offset: int, producer: int, kind: ControlType) -> bytes:
        return build_marker(
            kind, timestamp=NOW_MS, producer_id=producer, producer_epoch=0, coordinator_epoch=0, base_offset=offset
        )

    fetch = b"".join(
        [
            data(0, 1),
            data(2, 2),
            data(4, 1),
            data(6, 3, transactional=False),
            marker(8, 1, ControlType.ABORT),
            data(9, 1),
            marker(11, 2, ControlType.COMMIT),
            marker(12, 1, ControlType.COMMIT),
            data(13, 2),
            marker(15, 2, ControlType.ABORT),
        ]
    )
    everything = [record.offset for record in decode_records(fetch, use_kernel=use_kernel)]
    assert everything == [0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 13, 14]
    committed = decode_records(fetch, aborted=[(2, 13), (1, 0)], use_kernel=use_kernel)
    assert [record.offset for record in committed] == [2, 3, 6, 7, 9, 10]


@both_paths
def test_a_wrong_checksum(use_kernel: bool) -> None:
    fetch = bytearray(build_batch(plain_records(3)))
    fetch[80] ^= 1
    with pytest.raises(CorruptBatch, match="checksum"):
        decode_records(fetch, use_kernel=use_kernel)
    assert len(decode_records(fetch, check_crc=False, use_kernel=use_kernel)) == 3


@both_paths
def test_batches_out_of_range_are_not_even_checked(use_kernel: bool) -> None:
    fetch = bytearray(build_batch(plain_records(3)) + build_batch(plain_records(3, 3), base_offset=3))
    fetch[80] ^= 1
    assert [record.offset for record in decode_records(fetch, 3, use_kernel=use_kernel)] == [3, 4, 5]


@both_paths
def test_older_formats(use_kernel: bool) -> None:
    fetch = bytearray(build_batch(plain_records(3)))
    fetch[16] = 1
    with pytest.raises(UnsupportedMagic):
        decode_records(fetch, use_kernel=use_kernel)


def outcome(fetch: bytes, use_kernel: bool, **options: Any) -> Any:
    """The records, or the kind of refusal."""
    try:
        return decode_records(fetch, use_kernel=use_kernel, **options)
    except (CorruptBatch, UnsupportedMagic) as error:
        return type(error)
