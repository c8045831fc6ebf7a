"""Hostile bytes: every decoder refuses the same input, with one of two exceptions, and none reads past its buffers."""

from itertools import product
from typing import Any

import pyarrow as pa
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from kohort.records import kernel
from kohort.records.batch import Compression, Record, RecordsError, build_batch
from kohort.records.columns import decode_batches, select
from kohort.records.fetch import decode_records
from records.batches import batches, fetches, plain_records

COLUMNS = ("offset", "key", "value", "headers")
NEVER_ENDING = b"\xff" * 12


def resealed(batch: bytes) -> bytes:
    """The batch with a right length and checksum, so that what follows them is looked at."""
    batch = batch[:8] + (len(batch) - 12).to_bytes(4, "big") + batch[12:]
    return batch[:17] + crc32c(batch[21:]).to_bytes(4, "big") + batch[21:]


def with_records(body: bytes, count: int) -> bytes:
    """An uncompressed batch around any bytes."""
    batch = build_batch([], last_offset=max(count - 1, 0), max_timestamp=0) + body
    return resealed(batch[:57] + count.to_bytes(4, "big", signed=True) + batch[61:])


def outcomes(fetch: bytes) -> list[Any]:
    """What each decoder makes of it: the records, or the kind of error."""
    found: list[Any] = []
    paths = [True, False] if kernel.load() else [False]
    for use_kernel in paths:
        try:
            found.append(decode_records(fetch, use_kernel=use_kernel))
        except RecordsError as error:
            found.append(type(error))
        try:
            parts = list(decode_batches(fetch, columns=COLUMNS, use_kernel=use_kernel))
            table = pa.Table.from_batches(parts, schema=select(COLUMNS))
            headers = [[tuple(header.values()) for header in row or ()] for row in table["headers"].to_pylist()]
            found.append(list(zip(*(table[name].to_pylist() for name in COLUMNS[:3]), headers, strict=True)))
        except RecordsError as error:
            found.append(type(error))
    return found


def all_agree(fetch: bytes) -> Any:
    first, *others = outcomes(fetch)
    if isinstance(first, list):
        assert all(isinstance(other, list) for other in others), outcomes(fetch)
        simple = [(record.offset, record.key, record.value, list(record.headers)) for record in first]
        for other in others:
            if other and isinstance(other[0], Record):
                assert other == first
            else:
                assert other == simple
    else:
        assert all(other is first for other in others), outcomes(fetch)
    return first


@pytest.mark.parametrize("compression", Compression)
def test_truncated_at_every_position(compression: Compression) -> None:
    records = [Record(n, n, b"key", b"value" * 3, (("h", b"x"),)) for n in range(3)]
    batch = build_batch(records, compression=compression)
    for end in range(len(batch)):
        assert all_agree(batch[:end]) == []
        if end > 61:
            assert isinstance(all_agree(resealed(batch[:end])), type)


@given(batches(), st.data())
def test_flipped_bits_with_a_right_checksum(batch: bytes, data: st.DataObject) -> None:
    broken = bytearray(batch)
    for position in data.draw(st.lists(st.integers(21, len(batch) - 1), min_size=1, max_size=4)):
        broken[position] ^= 1 << data.draw(st.integers(0, 7))
    all_agree(resealed(bytes(broken)))


@given(fetches(max_batches=2), st.data())
def test_flipped_bits_anywhere(fetch: bytes, data: st.DataObject) -> None:
    broken = bytearray(fetch)
    for position in data.draw(st.lists(st.integers(0, max(len(fetch) - 1, 0)), max_size=3)) if fetch else ():
        broken[position] ^= 1 << data.draw(st.integers(0, 7))
    all_agree(bytes(broken))


@given(st.binary(max_size=120), st.integers(-2, 20))
def test_any_bytes_as_records(body: bytes, count: int) -> None:
    all_agree(with_records(body, count))


@given(st.binary(max_size=300))
def test_any_bytes_as_a_fetch(fetch: bytes) -> None:
    all_agree(fetch)


def test_absurd_record_counts_cost_nothing() -> None:
    for count in (-1, -(2**31), 2**31 - 1, 10_000_000, 2):
        assert isinstance(all_agree(with_records(b"\x0c\0\0\0\1\1\0", count)), type)
    many = b"".join(with_records(b"", 2**31 - 1) for _ in range(50))
    assert isinstance(all_agree(many), type)


def varint(value: int, pad: int = 0) -> bytes:
    """Zig-zag, with `pad` superfluous bytes."""
    raw = (value << 1) ^ (value >> 63)
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    for _ in range(pad):
        out[-1] |= 0x80
        out.append(0)
    return bytes(out)


LENGTHS = [varint(n) for n in (-2, -1, 0, 1, 5, 2**31 - 1, -(2**31))] + [varint(0, 3), varint(1, 5), NEVER_ENDING]


def test_absurd_lengths_in_a_record() -> None:
    header_counts = (varint(0), varint(1), varint(2**31 - 1), varint(0, 4), NEVER_ENDING, b"")
    for key, value, headers in product(LENGTHS, LENGTHS, header_counts):
        content = b"\0\0\0" + key + value + headers
        all_agree(with_records(varint(len(content)) + content, 1))


def test_absurd_record_sizes() -> None:
    content = b"\0\0\0\1\1\0"
    for size in (0, -5, 5, 7, 2**31 - 1, -(2**31)):
        assert isinstance(all_agree(with_records(varint(size) + content, 1)), type)


def test_long_varints_drop_what_does_not_fit_as_java_does() -> None:
    wide = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x7f"  # ten bytes, more than 64 bits
    content = b"\0" + wide + b"\x82\x80\x80\x80\x70" + b"\1\1\0"
    [record] = all_agree(with_records(varint(len(content)) + content, 1))
    assert record.offset == 1
    assert -(2**63) <= record.timestamp < 2**63


def test_header_lengths_beyond_the_record() -> None:
    for key, value in product(LENGTHS, LENGTHS):
        content = b"\0\0\0\1\1" + varint(2) + key + value + varint(1) + b"k" + varint(-1)
        all_agree(with_records(varint(len(content)) + content + b"\x0c\0\0\0\1\1\0", 2))


def test_a_bomb_is_refused_by_every_decoder() -> None:
    bomb = build_batch([Record(0, 0, None, bytes(30_000_000))], compression=Compression.ZSTD)
    for use_kernel in (True, False):
        with pytest.raises(RecordsError, match="1000000"):
            decode_records(bomb, max_size=1_000_000, use_kernel=use_kernel)
        with pytest.raises(RecordsError, match="1000000"):
            list(decode_batches(bomb, max_size=1_000_000, use_kernel=use_kernel))


def test_a_range_in_a_batch_of_many() -> None:
    batch = build_batch(plain_records(100))
    assert [record.offset for record in decode_records(batch, 98, 200)] == [98, 99]
