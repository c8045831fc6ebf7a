"""What a broker checks of a produced batch before it appends it, and the error it answers with.

First its envelope: header and checksum. Then its records, inflated within a limit and walked once (`walk.py`); what is
stored may differ from what came in its codec, its maximum timestamp and its timestamp type, as in Kafka.
"""

from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from kohort.protocol.errors import ErrorCode
from kohort.records import kernel
from kohort.records.batch import (
    ATTRIBUTES_POSITION,
    COMPRESSION_MASK,
    CRC_POSITION,
    CREATE_TIME,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    TIMESTAMP_TYPE_FLAG,
    BatchHeader,
    check_crc,
    iter_batches,
    read_header,
)
from kohort.records.checksum import crc32c
from kohort.records.compression import DEFAULT_MAX_SIZE, Buffer, Compression, compress, decompress_view
from kohort.records.errors import BatchTooLarge, CorruptBatch, InvalidBatch
from kohort.records.walk import CODEC, NO_KEY, Rules, Walked, walk

DEFAULT_MAX_MESSAGE_BYTES = 1024 * 1024 + 12
MAX_INFLATION = 32
"""A batch may inflate to this many times the largest batch that the topic takes."""
_ZSTD_SINCE_VERSION = 7
_ATTRIBUTES = Struct(">h")
_LENGTH = Struct(">i")
_CRC = Struct(">I")
_TIMESTAMP = Struct(">q")
_MAX_TIMESTAMP_POSITION = 35
_REASONS = {
    NO_KEY: "a compacted topic cannot accept a message without a key",
    CODEC: "a record within a compressed batch cannot have a codec of its own",
}


class TopicRules(NamedTuple):
    """What a topic asks of a batch. Timestamps are checked where `now_ms` is given."""

    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
    now_ms: int | None = None
    timestamp_type: int = CREATE_TIME
    timestamp_before_max_ms: int = 2**63 - 1
    timestamp_after_max_ms: int = 3_600_000
    compacted: bool = False
    codec: Compression | None = None
    """The codec that batches are stored in; None keeps the producer's."""
    codec_level: int | None = None

    @property
    def max_inflated_bytes(self) -> int:
        return min(self.max_message_bytes * MAX_INFLATION, DEFAULT_MAX_SIZE)


def check_envelope(records: Buffer | None, version: int, max_message_bytes: int) -> BatchHeader:
    """The header of the one batch in `records`; a RecordsError with the code to answer where it cannot be appended."""
    header = _only_batch(records, version)
    assert records is not None
    if header.base_offset != 0:
        raise InvalidBatch(f"the base offset of a produced batch must be 0, not {header.base_offset}")
    if header.size > max_message_bytes:
        raise BatchTooLarge(f"the batch of {header.size} bytes exceeds the maximum of {max_message_bytes}")
    if not check_crc(records, 0, header):
        raise CorruptBatch(f"the batch fails its checksum {header.crc:#010x}")
    if header.compression > Compression.ZSTD:
        raise InvalidBatch(f"no codec has the id {header.compression}", ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    _check_header(header)
    return header


class Limits(NamedTuple):
    """What a topic asks of a batch that `is_sound`; a maximum of timestamps that is not needed is as far as can be."""

    max_message_bytes: int
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    compacted: bool


def is_sound(records: bytes, now_ms: int, limits: Limits) -> bool:
    """Whether `check_envelope` and `check_records` have nothing against this plain batch and would store it as it came:
    in one call of the kernel, for small ones. Where it is False they are to tell."""
    size, loaded = len(records), kernel.load()
    if loaded is None or loaded.sound is None or size > limits[0]:
        return False
    return loaded.sound(records, size, now_ms, limits[1], limits[2], limits[3]) == 1


def inflated(records: Buffer, header: BatchHeader, max_size: int) -> Buffer:
    """The records of a batch as they are before compression; BatchTooLarge past the limit."""
    return decompress_view(header.compression, memoryview(records)[HEADER_SIZE : header.size], max_size)


def check_records(records: Buffer, header: BatchHeader, body: Buffer, rules: TopicRules) -> tuple[Buffer, BatchHeader]:
    """Walk the inflated `body` of a batch; the batch as it is to be stored. A RecordsError where it is refused."""
    try:
        walked = walk(body, header, _record_rules(rules))
    except CorruptBatch as error:
        raise InvalidBatch(error.message) from None
    if rules.timestamp_type == LOG_APPEND_TIME and header.timestamp_type == LOG_APPEND_TIME:
        raise InvalidBatch("a producer may not set the timestamp type LogAppendTime", ErrorCode.INVALID_TIMESTAMP)
    if walked.faults:
        raise _refusal(walked, rules)
    if rules.codec is not None and rules.codec != header.compression:
        records = _repacked(records, header, body, rules)
        header = read_header(records)
    if rules.timestamp_type == CREATE_TIME and (
        walked.max_timestamp != header.max_timestamp or header.timestamp_type != CREATE_TIME
    ):
        records = _retimed(records, header, walked.max_timestamp)
        header = read_header(records)
    return records, header


def validate_produce(records: Buffer | None, *, version: int, rules: TopicRules | None = None) -> BatchHeader:
    """Envelope and records, one after the other; the header of what would be stored."""
    rules = rules or TopicRules()
    header = check_envelope(records, version, rules.max_message_bytes)
    assert records is not None
    return check_records(records, header, readable(records, header, rules.max_inflated_bytes), rules)[1]


def readable(records: Buffer, header: BatchHeader, max_size: int) -> Buffer:
    """`inflated`, where a stream that is no stream is a refusal like any other."""
    try:
        return inflated(records, header, max_size)
    except CorruptBatch as error:
        raise InvalidBatch(error.message) from None


@lru_cache(maxsize=64)
def _record_rules(rules: TopicRules) -> Rules:
    if rules.timestamp_type == CREATE_TIME and rules.now_ms is not None:
        earliest, latest = rules.now_ms - rules.timestamp_before_max_ms, rules.now_ms + rules.timestamp_after_max_ms
        return Rules(earliest, latest, rules.compacted)
    return Rules(keys_needed=rules.compacted)


def _refusal(walked: Walked, rules: TopicRules) -> InvalidBatch:
    limits = _record_rules(rules)
    late = f"the timestamp is outside [{limits.earliest}, {limits.latest}]"
    listed = tuple((index, _REASONS.get(what, late)) for index, what in walked.listed)
    code = None if all(what in _REASONS for _, what in walked.listed) else ErrorCode.INVALID_TIMESTAMP
    return InvalidBatch(f"{walked.faults} records are refused; the first: {listed[0][1]}", code, listed)


def _repacked(records: Buffer, header: BatchHeader, body: Buffer, rules: TopicRules) -> bytes:
    """The same records, byte for byte, in the topic's codec."""
    assert rules.codec is not None
    packed = compress(rules.codec, body, rules.codec_level)
    head = bytearray(memoryview(records)[:HEADER_SIZE])
    _ATTRIBUTES.pack_into(head, ATTRIBUTES_POSITION, header.attributes & ~COMPRESSION_MASK | rules.codec)
    _LENGTH.pack_into(head, 8, HEADER_SIZE - LOG_OVERHEAD + len(packed))
    _CRC.pack_into(head, CRC_POSITION, crc32c(packed, crc32c(memoryview(head)[ATTRIBUTES_POSITION:])))
    if len(head) + len(packed) > rules.max_message_bytes:
        raise BatchTooLarge(
            f"in the topic's codec the batch has {len(head) + len(packed)} bytes, the maximum is "
            f"{rules.max_message_bytes}"
        )
    return b"".join((head, packed))


def _retimed(records: Buffer, header: BatchHeader, max_timestamp: int) -> bytearray:
    """With the maximum that its records have, and the type CreateTime."""
    batch = bytearray(records)
    _ATTRIBUTES.pack_into(batch, ATTRIBUTES_POSITION, header.attributes & ~TIMESTAMP_TYPE_FLAG)
    _TIMESTAMP.pack_into(batch, _MAX_TIMESTAMP_POSITION, max_timestamp)
    _CRC.pack_into(batch, CRC_POSITION, crc32c(memoryview(batch)[ATTRIBUTES_POSITION:]))
    return batch


def _only_batch(records: Buffer | None, version: int) -> BatchHeader:
    if not records:
        raise InvalidBatch(f"Produce version {version} needs one record batch per partition")
    batches = iter_batches(records)
    _, header = next(batches, (0, None))
    if header is None:
        raise InvalidBatch(f"Produce version {version} needs a whole record batch, this one is cut off")
    if version < _ZSTD_SINCE_VERSION and header.compression == Compression.ZSTD:
        raise InvalidBatch(f"Produce version {version} has no zstd", ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    if next(batches, None) is not None:
        raise InvalidBatch(f"Produce version {version} takes exactly one record batch per partition")
    if header.size != len(records):
        raise CorruptBatch(f"{len(records) - header.size} bytes follow the record batch")
    return header


def _check_header(header: BatchHeader) -> None:
    if header.last_offset_delta < 0:
        raise InvalidBatch(f"the batch has an invalid offset range [0, {header.last_offset_delta}]")
    if header.record_count <= 0:
        raise InvalidBatch(f"the batch has an invalid record count of {header.record_count}")
    if header.last_offset_delta + 1 != header.record_count:
        raise InvalidBatch(
            f"the batch's offset range [0, {header.last_offset_delta}] is inconsistent "
            f"with its record count of {header.record_count}"
        )
    if header.is_control:
        raise InvalidBatch("clients are not allowed to write control records")
    if header.has_producer_id and header.base_sequence < 0:
        raise InvalidBatch(f"the sequence number {header.base_sequence} of producer {header.producer_id} is invalid")
