"""What a produced batch is refused for, and with which error code."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.protocol.errors import ErrorCode
from kohort.records import kernel
from kohort.records.batch import (
    CREATE_TIME,
    LOG_APPEND_TIME,
    Compression,
    Record,
    RecordsError,
    UnsupportedMagic,
    build_batch,
    check_crc,
    patch_batch,
    read_header,
    read_records,
)
from kohort.records.compression import compress
from kohort.records.validate import Limits, TopicRules, check_records, is_sound, readable, validate_produce
from kohort.records.walk import Rules, _walk_python, walk
from records.batches import NOW_MS, plain_records

GOOD = build_batch(plain_records(5))


def refusal(data: bytes | None, **rules: object) -> RecordsError:
    with pytest.raises(RecordsError) as caught:
        validate_produce(data, version=rules.pop("version", 9), rules=TopicRules(**rules))  # type: ignore[arg-type]
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
    assert validate_produce(batch, version=9, rules=TopicRules(now_ms=NOW_MS, compacted=True)) == read_header(batch)


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
    validate_produce(GOOD, version=9, rules=TopicRules(max_message_bytes=len(GOOD)))


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
    validate_produce(GOOD, version=9, rules=TopicRules(now_ms=NOW_MS - 3_700_000, timestamp_type=LOG_APPEND_TIME))
    validate_produce(
        build_batch([Record(0, -1, b"k")]), version=9, rules=TopicRules(now_ms=NOW_MS, timestamp_before_max_ms=1)
    )


def test_a_producer_cannot_claim_append_time() -> None:
    claim = patched(22, b"\x08")
    assert refusal(claim, now_ms=NOW_MS, timestamp_type=LOG_APPEND_TIME).code == ErrorCode.INVALID_TIMESTAMP
    stored = validate_produce(claim, version=9, rules=TopicRules(now_ms=NOW_MS))
    assert stored.timestamp_type == CREATE_TIME


def test_the_maximum_timestamp_is_that_of_the_records() -> None:
    claim = patched(35, (NOW_MS + 10**9).to_bytes(8, "big"))
    stored, header = stored_as(claim, now_ms=NOW_MS)
    assert header.max_timestamp == read_header(GOOD).max_timestamp
    assert check_crc(stored, 0, header)


def test_compacted_topics_need_keys() -> None:
    records = [Record(n, NOW_MS, None if n in (1, 3) else b"k", b"v") for n in range(4)]
    error = refusal(build_batch(records, compression=Compression.LZ4), compacted=True)
    assert error.code == ErrorCode.INVALID_RECORD
    assert [index for index, _ in error.record_errors] == [1, 3]  # type: ignore[attr-defined]


def nonsense() -> dict[str, bytes]:
    """Batches with a right checksum and a plausible header whose records cannot be read."""
    body = GOOD[61:]
    found = {
        "more headers than bytes": patched(len(GOOD) - 1, b"\x02"),
        "a record longer than the batch": patched(61, b"\x7e"),
        "a record of no bytes": patched(61, b"\x00"),
        "offsets with a hole": build_batch([Record(0, NOW_MS), Record(2, NOW_MS), Record(2, NOW_MS)]),
        "offsets that stand still": build_batch([Record(0, NOW_MS), Record(0, NOW_MS)], last_offset=1),
        "fewer records than counted": resealed(GOOD[:61] + body, count=6),
        "more records than counted": resealed(GOOD[:61] + body, count=4),
        "a count that no bytes can hold": resealed(GOOD[:61] + body, count=2**31 - 1),
        "a varint without an end": resealed(GOOD[:61] + b"\xff" * 12, count=1),
        "no body": resealed(GOOD[:61], count=1),
    }
    for codec in (Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD):
        whole = build_batch(plain_records(5), compression=codec)
        found[f"no {codec.name}"] = resealed(whole[:61] + b"nonsense" * 4)
        found[f"half of a {codec.name}"] = resealed(whole[: 61 + (len(whole) - 61) // 2])
        found[f"{codec.name} of nonsense"] = resealed(whole[:61] + compress(codec, b"nonsense" * 9))
    return found


def resealed(batch: bytes, count: int | None = None) -> bytes:
    """With a length, a checksum and, where given, a count (and range) that fit."""
    changed = bytearray(batch)
    changed[8:12] = (len(changed) - 12).to_bytes(4, "big")
    if count is not None:
        changed[23:27] = (count - 1).to_bytes(4, "big")
        changed[57:61] = count.to_bytes(4, "big")
    return patched(0, b"", bytes(changed))


@pytest.mark.parametrize("name", nonsense())
@pytest.mark.parametrize("compiled", [True, False])
def test_records_that_cannot_be_read_are_refused(name: str, compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not compiled:
        monkeypatch.setattr(kernel, "load", lambda: None)
    assert refusal(nonsense()[name]).code == ErrorCode.INVALID_RECORD


@given(data=st.binary(max_size=60), position=st.integers(0, 200))
def test_kernel_and_python_agree_on_any_records(data: bytes, position: int) -> None:
    body = bytearray(GOOD[61:])
    body[position % len(body) : position % len(body) + len(data)] = data
    header, rules = read_header(GOOD), Rules(NOW_MS, NOW_MS + 3, keys_needed=True)
    assert outcome(walk, body, header, rules) == outcome(_walk_python, body, header, rules)


def outcome(function: Any, *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except RecordsError as error:
        return type(error)


def test_what_a_batch_inflates_to_is_limited() -> None:
    bomb = build_batch([Record(0, NOW_MS, b"k", b"\0" * 1_000_000)], compression=Compression.GZIP)
    assert refusal(bomb, max_message_bytes=20_000).code == ErrorCode.MESSAGE_TOO_LARGE
    validate_produce(bomb, version=9, rules=TopicRules(max_message_bytes=40_000))


@pytest.mark.parametrize("codec", Compression)
def test_a_batch_is_repacked_record_for_record(codec: Compression) -> None:
    given = build_batch(plain_records(5), compression=Compression.LZ4, producer_id=3, producer_epoch=1, base_sequence=7)
    stored, header = stored_as(given, codec=codec)
    assert header.compression == codec and header.producer_id == 3 and header.base_sequence == 7
    assert check_crc(stored, 0, header)
    assert read_records(stored, 0, header) == plain_records(5)


def test_a_batch_too_large_in_the_topics_codec() -> None:
    given = build_batch([Record(0, NOW_MS, b"k", b"\0" * 100_000)], compression=Compression.GZIP)
    assert refusal(given, codec=Compression.NONE, max_message_bytes=50_000).code == ErrorCode.MESSAGE_TOO_LARGE


def stored_as(batch: bytes, **rules: Any) -> Any:
    topic, header = TopicRules(**rules), read_header(batch)
    return check_records(batch, header, readable(batch, header, topic.max_inflated_bytes), topic)


SOUND = Limits(max_message_bytes=10_000, timestamp_before_max_ms=100, timestamp_after_max_ms=100, compacted=True)


def passes_step_by_step(batch: bytes, now_ms: int = NOW_MS) -> bool:
    """Whether the long way stores a plain batch as it came."""
    rules = TopicRules(
        SOUND.max_message_bytes,
        now_ms,
        timestamp_before_max_ms=SOUND.timestamp_before_max_ms,
        timestamp_after_max_ms=SOUND.timestamp_after_max_ms,
        compacted=True,
    )
    try:
        header = validate_produce(batch, version=9, rules=rules)
    except RecordsError:
        return False
    return header == read_header(batch) and header.compression == Compression.NONE


needs_kernel = pytest.mark.skipif(kernel.load() is None, reason="the kernel is not built")


@needs_kernel
@pytest.mark.parametrize("producer_id", [-1, 7])
def test_the_short_way_agrees_with_the_long_one_wherever_a_byte_is_another(producer_id: int) -> None:
    batch = build_batch(plain_records(5), producer_id=producer_id, producer_epoch=0, base_sequence=0)
    assert is_sound(batch, NOW_MS, SOUND)
    for position in range(len(batch)):
        for value in {0, 1, 2, 8, 16, 32, 127, 128, 255, batch[position] ^ 1}:
            changed = patched(position, bytes([value]), batch)
            assert is_sound(changed, NOW_MS, SOUND) == passes_step_by_step(changed), (position, value)


@needs_kernel
def test_the_short_way_takes_no_batch_that_is_damaged_cut_or_followed() -> None:
    for position in range(17, len(GOOD)):
        assert not is_sound(GOOD[:position] + bytes([GOOD[position] ^ 64]) + GOOD[position + 1 :], NOW_MS, SOUND)
    for size in range(len(GOOD)):
        assert not is_sound(GOOD[:size], NOW_MS, SOUND)
    assert not is_sound(GOOD + b"\0", NOW_MS, SOUND) and not is_sound(GOOD + GOOD, NOW_MS, SOUND)
    for name, batch in nonsense().items():
        assert not is_sound(batch, NOW_MS, SOUND), name


@needs_kernel
def test_the_short_way_keeps_to_the_rules_of_the_topic() -> None:
    for now_ms in range(NOW_MS - 110, NOW_MS + 110):
        assert is_sound(GOOD, now_ms, SOUND) == passes_step_by_step(GOOD, now_ms)
    assert not is_sound(GOOD, NOW_MS, SOUND._replace(max_message_bytes=len(GOOD) - 1))
    keyless = build_batch([Record(0, NOW_MS, None, b"v")])
    assert is_sound(keyless, NOW_MS, SOUND._replace(compacted=False)) and not is_sound(keyless, NOW_MS, SOUND)
    always = SOUND._replace(timestamp_before_max_ms=2**63 - 1, timestamp_after_max_ms=2**63 - 1)
    assert is_sound(GOOD, 2**62, always) and is_sound(GOOD, 0, always)


def test_the_short_way_is_not_taken_without_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "load", lambda: None)
    assert not is_sound(GOOD, NOW_MS, SOUND)
