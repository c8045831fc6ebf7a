"""What a produced batch is refused for, and with which error code."""

import pytest

from kohort.protocol.errors import ErrorCode
from kohort.records.batch import (
    LOG_APPEND_TIME,
    Compression,
    Record,
    RecordsError,
    UnsupportedMagic,
    build_batch,
    patch_batch,
    read_header,
)
from kohort.records.validate import validate_produce
from records.batches import NOW_MS, plain_records

GOOD = build_batch(plain_records(5))


def refusal(data: bytes | None, **rules: object) -> RecordsError:
    with pytest.raises(RecordsError) as caught:
        validate_produce(data, version=rules.pop("version", 9), **rules)  # type: ignore[arg-type]
    return caught.value


def patched(position: int, replacement: bytes, batch: bytes = GOOD) -> bytes:
    """`batch` with other bytes and a right checksum."""
    from crc32c import crc32c

    changed = bytearray(batch)
    changed[position : position + len(replacement)] = replacement
    changed[17:21] = crc32c(changed[21:]).to_bytes(4, "big")
    return bytes(changed)


@pytest.mark.parametrize("compression", Compression)
def test_a_good_batch_passes(compression: Compression) -> None:
    batch = build_batch(plain_records(5), compression=compression, producer_id=1, producer_epoch=0, base_sequence=0)
    assert validate_produce(batch, version=9, now_ms=NOW_MS, compacted=True, deep=True) == read_header(batch)


@pytest.mark.parametrize("data", [None, b""])
def test_a_partition_needs_a_batch(data: bytes | None) -> None:
    assert refusal(data).code == ErrorCode.INVALID_RECORD


def test_exactly_one_batch() -> None:
    assert refusal(GOOD + GOOD).code == ErrorCode.INVALID_RECORD
    assert refusal(GOOD + b"rest").code == ErrorCode.CORRUPT_MESSAGE


def test_truncation_at_every_position() -> None:
    for end in range(1, len(GOOD)):
        assert refusal(GOOD[:end]).code == ErrorCode.INVALID_RECORD


def test_older_formats() -> None:
    for magic in (0, 1):
        error = refusal(patched(16, bytes([magic])))
        assert isinstance(error, UnsupportedMagic)
        assert error.code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


def test_zstd_came_with_version_7() -> None:
    batch = build_batch(plain_records(5), compression=Compression.ZSTD)
    assert refusal(batch, version=6).code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert validate_produce(batch, version=7).compression == Compression.ZSTD
    assert refusal(patched(21, b"\0\x05")).code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_every_flipped_bit_behind_the_checksum_is_noticed() -> None:
    for position in range(17, len(GOOD)):
        broken = bytearray(GOOD)
        broken[position] ^= 0x10
        assert refusal(broken).code == ErrorCode.CORRUPT_MESSAGE


def test_size_limit() -> None:
    assert refusal(GOOD, max_message_bytes=len(GOOD) - 1).code == ErrorCode.MESSAGE_TOO_LARGE
    validate_produce(GOOD, version=9, max_message_bytes=len(GOOD))


def test_a_produced_batch_starts_at_offset_0() -> None:
    batch = bytearray(GOOD)
    patch_batch(batch, 0, 7, -1)
    assert refusal(batch).code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    ("position", "replacement"),
    [
        (23, (-1).to_bytes(4, "big", signed=True)),  # last offset delta
        (23, (5).to_bytes(4, "big")),
        (57, (0).to_bytes(4, "big")),  # record count
        (57, (-5).to_bytes(4, "big", signed=True)),
        (57, (4).to_bytes(4, "big")),
        (22, b"\x20"),  # control
        (43, (3).to_bytes(8, "big")),  # a producer id without a sequence
    ],
)
def test_headers_that_contradict_themselves(position: int, replacement: bytes) -> None:
    assert refusal(patched(position, replacement)).code == ErrorCode.INVALID_RECORD


def test_timestamps_too_far_from_now() -> None:
    late = refusal(GOOD, now_ms=NOW_MS - 3_700_000)
    assert late.code == ErrorCode.INVALID_TIMESTAMP
    early = refusal(GOOD, now_ms=NOW_MS + 10_000, timestamp_before_max_ms=5_000)
    assert early.code == ErrorCode.INVALID_TIMESTAMP
    validate_produce(GOOD, version=9, now_ms=NOW_MS - 3_700_000, timestamp_type=LOG_APPEND_TIME)
    validate_produce(build_batch([Record(0, -1, b"k")]), version=9, now_ms=NOW_MS, timestamp_before_max_ms=1)


def test_a_producer_cannot_claim_append_time() -> None:
    assert refusal(patched(22, b"\x08"), now_ms=NOW_MS).code == ErrorCode.INVALID_TIMESTAMP


def test_compacted_topics_need_keys() -> None:
    records = [Record(n, NOW_MS, None if n in (1, 3) else b"k", b"v") for n in range(4)]
    error = refusal(build_batch(records, compression=Compression.LZ4), compacted=True)
    assert error.code == ErrorCode.INVALID_RECORD
    assert [index for index, _ in error.record_errors] == [1, 3]  # type: ignore[attr-defined]


def test_deep_validation_reads_every_record() -> None:
    lying = patched(len(GOOD) - 1, b"\x02")  # the last record says it has a header
    validate_produce(lying, version=9)
    assert refusal(lying, deep=True).code == ErrorCode.INVALID_RECORD
    skipping = build_batch([Record(0, NOW_MS), Record(2, NOW_MS), Record(2, NOW_MS)])
    assert refusal(skipping, deep=True).code == ErrorCode.INVALID_RECORD
