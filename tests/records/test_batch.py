"""Record batches: round trips, what the header says, patching, and foreign writers and readers as oracles."""

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AioBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from hypothesis import given
from hypothesis import strategies as st
from kafka.record import MemoryRecords

from kohort.protocol.errors import ErrorCode
from kohort.records.batch import (
    CREATE_TIME,
    LOG_APPEND_TIME,
    BatchHeader,
    Compression,
    CorruptBatch,
    Record,
    UnsupportedMagic,
    build_batch,
    check_crc,
    iter_batches,
    next_offset,
    patch_batch,
    read_header,
    read_records,
)
from records.batches import NOW_MS, plain_records, record_lists, sane_timestamps


@given(record_lists(), st.sampled_from(Compression))
def test_records_come_back_as_they_were(records: list[Record], compression: Compression) -> None:
    batch = build_batch(records, compression=compression)
    [(pos, header)] = iter_batches(batch)
    assert pos == 0
    assert header.size == len(batch)
    assert header.compression == compression
    assert header.record_count == len(records)
    assert header.last_offset == records[-1].offset
    assert header.max_timestamp == max(record.timestamp for record in records)
    assert check_crc(batch, 0, header)
    assert read_records(batch, 0, header) == records


def test_the_header_says_what_was_asked_for() -> None:
    batch = build_batch(
        plain_records(3, base_offset=40),
        base_offset=40,
        timestamp_type=LOG_APPEND_TIME,
        max_timestamp=99,
        partition_leader_epoch=5,
        producer_id=11,
        producer_epoch=2,
        base_sequence=2**31 - 2,
        transactional=True,
    )
    header = read_header(batch)
    assert isinstance(header, BatchHeader)
    assert (header.base_offset, header.last_offset, header.next_offset) == (40, 42, 43)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (11, 2, 2**31 - 2)
    assert header.last_sequence == 0  # sequences wrap to 0, not to the negative
    assert header.partition_leader_epoch == 5
    assert header.is_transactional and not header.is_control and header.has_producer_id
    assert header.delete_horizon_ms is None
    assert [record.timestamp for record in read_records(batch, 0, header)] == [99, 99, 99]


def test_a_compacted_batch_keeps_its_offset_range_and_a_delete_horizon() -> None:
    batch = build_batch(
        [Record(12, NOW_MS, b"k", None)], base_offset=10, last_offset=20, max_timestamp=NOW_MS + 9, delete_horizon_ms=77
    )
    header = read_header(batch)
    assert (header.base_offset, header.last_offset, header.record_count) == (10, 20, 1)
    assert header.delete_horizon_ms == 77
    assert header.max_timestamp == NOW_MS + 9
    assert read_records(batch, 0, header) == [Record(12, NOW_MS, b"k", None)]


def test_an_emptied_batch_has_no_records() -> None:
    batch = build_batch([], base_offset=10, last_offset=20, max_timestamp=5, compression=Compression.LZ4)
    header = read_header(batch)
    assert check_crc(batch, 0, header)
    assert header.last_offset == 20
    assert read_records(batch, 0, header) == []
    with pytest.raises(ValueError, match="last_offset"):
        build_batch([])


def test_offset_and_epoch_are_patched_outside_the_checksum() -> None:
    batch = bytearray(build_batch(plain_records(4)))
    crc = read_header(batch).crc
    patch_batch(batch, 0, 1000, 3)
    header = read_header(batch)
    assert (header.base_offset, header.partition_leader_epoch, header.crc) == (1000, 3, crc)
    assert check_crc(batch, 0, header)
    assert [record.offset for record in read_records(batch, 0, header)] == [1000, 1001, 1002, 1003]


def test_an_append_time_replaces_every_timestamp() -> None:
    first, second = build_batch(plain_records(2)), build_batch(plain_records(3))
    batch = bytearray(first + second)
    patch_batch(batch, len(first), 2, 0, append_time_ms=NOW_MS + 500)
    header = read_header(batch, len(first))
    assert header.timestamp_type == LOG_APPEND_TIME
    assert check_crc(batch, len(first), header)
    assert {record.timestamp for record in read_records(batch, len(first), header)} == {NOW_MS + 500}
    assert read_header(batch).timestamp_type == CREATE_TIME
    assert batch[: len(first)] == first


def test_a_cut_off_batch_at_the_end_of_a_fetch_is_left_out() -> None:
    first, second = build_batch(plain_records(2)), build_batch(plain_records(3, 2), base_offset=2)
    fetch = first + second
    for end in range(len(first), len(fetch)):
        assert [pos for pos, _ in iter_batches(fetch[:end])] == [0]
        assert next_offset(fetch[:end]) == 2
    assert [pos for pos, _ in iter_batches(fetch)] == [0, len(first)]
    assert next_offset(fetch) == 5
    assert next_offset(fetch[: len(first) - 1]) is None


@pytest.mark.parametrize("magic", [0, 1])
def test_older_formats_are_named_as_such(magic: int) -> None:
    batch = bytearray(build_batch(plain_records(1)))
    batch[16] = magic
    for read in (read_header, lambda data: list(iter_batches(data))):
        with pytest.raises(UnsupportedMagic) as refusal:
            read(batch)
        assert refusal.value.code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


@pytest.mark.parametrize(
    ("position", "replacement"), [(16, b"\x03"), (8, b"\xff\xff\xff\xff"), (8, b"\0\0\0\x30"), (0, b"\xff")]
)
def test_nonsense_is_corrupt(position: int, replacement: bytes) -> None:
    batch = bytearray(build_batch(plain_records(1)))
    batch[position : position + len(replacement)] = replacement
    with pytest.raises(CorruptBatch) as refusal:
        list(iter_batches(batch))
    assert refusal.value.code == ErrorCode.CORRUPT_MESSAGE


@given(record_lists(timestamps=sane_timestamps))
def test_kafka_python_reads_what_we_write(records: list[Record]) -> None:
    for compression in (Compression.NONE, Compression.GZIP):
        foreign = MemoryRecords(build_batch(records, compression=compression)).next_batch()
        assert foreign.validate_crc()
        read = [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in foreign]
        assert read == records


@given(record_lists())
def test_aiokafka_reads_what_we_write(records: list[Record]) -> None:
    foreign = AioBatch(bytes(build_batch(records)))
    assert foreign.validate_crc()
    assert [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in foreign] == records


@pytest.mark.parametrize("compression", Compression)
def test_we_read_what_aiokafka_writes(compression: Compression) -> None:
    builder = AioBuilder(2, compression, 0, -1, -1, -1, 100_000)
    expected = []
    for n in range(50):
        record = Record(n, NOW_MS + n, None if n % 3 else b"k", b"v" * n, (("h", b"x"),) if n % 2 else ())
        builder.append(n, record.timestamp, record.key, record.value, list(record.headers))
        expected.append(record)
    batch = bytes(builder.build())
    header = read_header(batch)
    assert check_crc(batch, 0, header)
    assert read_records(batch, 0, header) == expected
    if compression == Compression.NONE:
        assert build_batch(expected) == batch
