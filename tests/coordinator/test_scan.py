"""Keys and values out of batches: what the general reader finds, and CorruptBatch where it cannot be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.coordinator.scan import key_values
from kohort.coordinator.scanner import Scanner
from kohort.records.batch import Compression, Record, build_batch, read_header
from kohort.records.errors import CorruptBatch

BYTES = st.one_of(st.none(), st.binary(max_size=300))
RECORDS = st.lists(st.tuples(st.integers(0, 2**40), BYTES, BYTES, st.booleans()), min_size=1, max_size=200)

SCANNERS = [Scanner(), Scanner(use_kernel=False)]  # used again and again, as by a load


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
    for scanner in SCANNERS:
        assert list(zip(*scanner.key_values(data, 0, header), strict=True)) == found


@given(st.data())
def test_damaged_records_are_corrupt_or_other_records(data: st.DataObject) -> None:
    records = [Record(i, 1_000, b"key-%d" % i, b"value" * i) for i in range(20)]
    batch = bytearray(build_batch(records))
    header = read_header(batch)
    for _ in range(data.draw(st.integers(1, 5))):
        batch[data.draw(st.integers(61, len(batch) - 1))] = data.draw(st.integers(0, 255))
    for read in (key_values, *(lambda *args, scanner=scanner: scanner.key_values(*args).keys for scanner in SCANNERS)):
        try:
            assert len(list(read(bytes(batch), 0, header))) == 20
        except CorruptBatch:
            pass


def test_a_batch_that_ends_too_early() -> None:
    data = build_batch([Record(i, 1_000, b"k", b"v" * 100) for i in range(5)])
    header = read_header(data)._replace(record_count=9)
    for read in (key_values, SCANNERS[0].key_values, SCANNERS[1].key_values):
        with pytest.raises(CorruptBatch):
            list(read(data, 0, header))


def test_a_count_that_no_bytes_could_hold_costs_no_memory() -> None:
    data = build_batch([Record(0, 1_000, b"k", b"v")])
    with pytest.raises(CorruptBatch):
        Scanner().key_values(data, 0, read_header(data)._replace(record_count=2**31 - 1))
