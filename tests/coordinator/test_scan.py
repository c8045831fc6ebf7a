"""Keys and values out of batches: what the general reader finds, and CorruptBatch where it cannot be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.coordinator.scan import key_value_lists, key_values
from kohort.records.batch import Compression, Record, build_batch, read_header
from kohort.records.errors import CorruptBatch

BYTES = st.one_of(st.none(), st.binary(max_size=300))
RECORDS = st.lists(st.tuples(st.integers(0, 2**40), BYTES, BYTES, st.booleans()), min_size=1, max_size=200)


@given(RECORDS, st.sampled_from(list(Compression)), st.integers(0, 2**40))
def test_what_the_general_reader_finds(rows: list, codec: Compression, base_offset: int) -> None:
    records = [
        Record(base_offset + i, timestamp, key, value, (("h", b"x"),) if headers else ())
        for i, (timestamp, key, value, headers) in enumerate(rows)
    ]
    data = build_batch(records, compression=codec, base_offset=base_offset)
    header = read_header(data)
    found = list(key_values(data, 0, header))
    assert found == [(record.offset, record.key or b"", record.value) for record in records]
    for use_kernel in (True, False):
        assert list(zip(*key_value_lists(data, 0, header, use_kernel=use_kernel), strict=True)) == found


@given(st.data())
def test_damaged_records_are_corrupt_or_other_records(data: st.DataObject) -> None:
    records = [Record(i, 1_000, b"key-%d" % i, b"value" * i) for i in range(20)]
    batch = bytearray(build_batch(records))
    header = read_header(batch)
    for _ in range(data.draw(st.integers(1, 5))):
        batch[data.draw(st.integers(61, len(batch) - 1))] = data.draw(st.integers(0, 255))
    for read in (key_values, lambda *args: zip(*key_value_lists(*args), strict=True)):
        try:
            assert len(list(read(bytes(batch), 0, header))) == 20
        except CorruptBatch:
            pass


def test_a_batch_that_ends_too_early() -> None:
    data = build_batch([Record(i, 1_000, b"k", b"v" * 100) for i in range(5)])
    header = read_header(data)._replace(record_count=9)
    with pytest.raises(CorruptBatch):
        list(key_values(data, 0, header))
