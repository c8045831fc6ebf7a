"""Batches of keys and values alone: the same bytes as the general builder makes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.records.batch import Compression, Record, build_batch, build_key_values, check_crc, read_header

PAIRS = st.lists(
    st.tuples(st.binary(max_size=200), st.one_of(st.none(), st.binary(max_size=9_000))), min_size=1, max_size=80
)


@settings(deadline=None)
@given(PAIRS, st.integers(0, 2**50))
def test_the_same_bytes_as_build_batch(pairs: list[tuple[bytes, bytes | None]], timestamp: int) -> None:
    records = [Record(i, timestamp, key, value) for i, (key, value) in enumerate(pairs)]
    assert build_key_values(pairs, timestamp) == build_batch(records)


@pytest.mark.parametrize("codec", list(Compression))
def test_every_codec(codec: Compression) -> None:
    pairs = [(b"k%d" % i, b"v" * i) for i in range(50)]
    data = build_key_values(pairs, 7, codec)
    header = read_header(data)
    assert (header.compression, header.record_count, check_crc(data, 0, header)) == (codec, 50, True)
    assert data == build_batch([Record(i, 7, k, v) for i, (k, v) in enumerate(pairs)], compression=codec)
