"""What a broker checks of a produced batch before it appends it, and the error it answers with.

Cheap by default: the header and the checksum. The records themselves are only read where a rule needs them.
"""

from kohort.protocol.errors import ErrorCode
from kohort.records.batch import (
    CREATE_TIME,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    BatchHeader,
    check_crc,
    iter_batches,
    read_records,
)
from kohort.records.compression import DEFAULT_MAX_SIZE, Buffer, Compression
from kohort.records.errors import BatchTooLarge, CorruptBatch, InvalidBatch

DEFAULT_MAX_MESSAGE_BYTES = 1024 * 1024 + 12
_ZSTD_SINCE_VERSION = 7


def validate_produce(
    records: Buffer | None,
    *,
    version: int,
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES,
    now_ms: int | None = None,
    timestamp_type: int = CREATE_TIME,
    timestamp_before_max_ms: int = 2**63 - 1,
    timestamp_after_max_ms: int = 3_600_000,
    compacted: bool = False,
    deep: bool = False,
    max_size: int = DEFAULT_MAX_SIZE,
) -> BatchHeader:
    """The header of the one batch in `records` if it may be appended; else a RecordsError with the code to answer.

    Timestamps are checked where `now_ms` is given. `compacted` topics need a key in every record, which takes a look at
    the records themselves, as does `deep` (record by record, as Kafka does it).
    """
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
    if timestamp_type == CREATE_TIME and now_ms is not None:
        _check_timestamps(header, now_ms, timestamp_before_max_ms, timestamp_after_max_ms)
    if compacted or deep:
        _check_records(records, header, compacted, max_size)
    return header


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


def _check_timestamps(header: BatchHeader, now_ms: int, before_max_ms: int, after_max_ms: int) -> None:
    """The batch's extremes stand for its records: the latest is in the header, the first record's is the base."""
    if header.timestamp_type == LOG_APPEND_TIME:
        raise InvalidBatch("a producer may not set the timestamp type LogAppendTime", ErrorCode.INVALID_TIMESTAMP)
    for timestamp in (header.base_timestamp, header.max_timestamp):
        if timestamp != NO_TIMESTAMP and not now_ms - before_max_ms <= timestamp <= now_ms + after_max_ms:
            raise InvalidBatch(
                f"the timestamp {timestamp} is outside [{now_ms - before_max_ms}, {now_ms + after_max_ms}]",
                ErrorCode.INVALID_TIMESTAMP,
                ((0, f"timestamp {timestamp} is out of range"),),
            )


def _check_records(records: Buffer, header: BatchHeader, compacted: bool, max_size: int) -> None:
    try:
        read = read_records(records, 0, header, max_size)
    except CorruptBatch as error:
        raise InvalidBatch(error.message) from None
    if compacted:
        missing = tuple(
            (index, "a compacted topic cannot accept a message without a key")
            for index, record in enumerate(read)
            if record.key is None
        )
        if missing:
            raise InvalidBatch(f"{len(missing)} records have no key, which a compacted topic needs", None, missing)
    for index, record in enumerate(read):
        if record.offset != index:
            raise InvalidBatch(f"record {index} says its offset is {record.offset}")
