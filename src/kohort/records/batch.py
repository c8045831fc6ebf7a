"""Record batches of magic 2: header, checksum, records in, records out. No I/O, no clock; columns are in columns.py.

A batch is a 61-byte header followed by its records, compressed together if at all. Base offset, length and partition
leader epoch precede the CRC and are outside it, so a broker patches them without touching the rest.
"""

from collections.abc import Iterable, Iterator
from struct import Struct
from struct import error as struct_error
from typing import NamedTuple, TypeAlias

from kohort.records.checksum import crc32c
from kohort.records.compression import DEFAULT_MAX_SIZE, Buffer, Compression, compress, decompress
from kohort.records.errors import BatchTooLarge, CorruptBatch, InvalidBatch, RecordsError, UnsupportedMagic
from kohort.records.varint import NULL, SMALL, encode_varint, read_varint, read_varlong

__all__ = [
    "CREATE_TIME",
    "HEADER_SIZE",
    "LOG_APPEND_TIME",
    "LOG_OVERHEAD",
    "NO_TIMESTAMP",
    "BatchHeader",
    "BatchTooLarge",
    "Compression",
    "CorruptBatch",
    "Header",
    "InvalidBatch",
    "Record",
    "RecordsError",
    "Summary",
    "UnsupportedMagic",
    "build_batch",
    "build_key_values",
    "check_crc",
    "encode_records",
    "frame_batch",
    "frame_in_place",
    "iter_batches",
    "iter_records",
    "next_offset",
    "patch_batch",
    "read_body",
    "read_header",
    "read_records",
]

Header: TypeAlias = tuple[str, bytes | None]
HeaderFields: TypeAlias = tuple[int, int, int, int, int, int, int, int]
"""Of a batch: attributes, last offset delta, base and maximum timestamp, producer id, epoch, base sequence, number of
records."""

CREATE_TIME = 0
LOG_APPEND_TIME = 1
NO_TIMESTAMP = -1
HEADER_SIZE = 61
LOG_OVERHEAD = 12

CRC_POSITION = 17
ATTRIBUTES_POSITION = 21
_MAX_TIMESTAMP_POSITION = 35
_MAGIC_POSITION = 16
_LEGACY_MIN_LENGTH = 14
_MAX_BASE_OFFSET = 2**63 - 2**32

COMPRESSION_MASK = 0x07
TIMESTAMP_TYPE_FLAG = 0x08
TRANSACTIONAL_FLAG = 0x10
CONTROL_FLAG = 0x20
DELETE_HORIZON_FLAG = 0x40

_HEADER = Struct(">qiibIhiqqqhii")
_EXTENT = Struct(">qi11xi")
_AFTER_CRC = Struct(">hiqqqhii")
_PREFIX = Struct(">qiibI")
_LENGTH = Struct(">i")
_OFFSET = Struct(">q")
_ATTRIBUTES = Struct(">h")
_CRC = Struct(">I")
_tuple = tuple.__new__
_SMALL_COUNT = len(SMALL)
_PARTS_AT_ONCE = 4096


class Record(NamedTuple):
    """One record; in `build_batch` the offset is absolute too."""

    offset: int
    timestamp: int
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[Header, ...] = ()


class Summary(NamedTuple):
    """What the header of a batch says of its records."""

    records: int
    first_timestamp: int = NO_TIMESTAMP
    max_timestamp: int = NO_TIMESTAMP
    last_offset: int = -1


class BatchHeader(NamedTuple):
    """The fixed fields of a batch, in wire order."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch, header included."""
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record; sequences wrap from 2^31 - 1 to 0."""
        return -1 if self.base_sequence < 0 else (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def compression(self) -> int:
        """A `Compression`, or a number that no codec has."""
        return self.attributes & COMPRESSION_MASK

    @property
    def timestamp_type(self) -> int:
        return (self.attributes & TIMESTAMP_TYPE_FLAG) >> 3

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_FLAG)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When tombstones and markers of the batch may go; it takes the place of the base timestamp (KIP-534)."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_FLAG else None

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id >= 0


def read_header(buf: Buffer, pos: int = 0) -> BatchHeader:
    """The header at `pos`. Only what makes the rest readable is checked: length, magic and offset range."""
    try:
        header = _tuple(BatchHeader, _HEADER.unpack_from(buf, pos))  # `_make` without its call: for every batch
    except struct_error:
        _check_prefix(buf, pos)
        raise CorruptBatch(f"a batch header needs {HEADER_SIZE} bytes, {max(len(buf) - pos, 0)} are left") from None
    if header.magic != 2 or header.batch_length < HEADER_SIZE - LOG_OVERHEAD:
        _check_prefix(buf, pos)
    if not 0 <= header.base_offset <= _MAX_BASE_OFFSET:
        raise CorruptBatch(f"a batch cannot start at offset {header.base_offset}")
    return header


def _check_prefix(buf: Buffer, pos: int) -> None:
    """Raise what the length and the magic of a batch that is not a complete magic 2 header deserve."""
    left = len(buf) - pos
    if left < LOG_OVERHEAD:
        return
    (length,) = _LENGTH.unpack_from(buf, pos + 8)
    if length < _LEGACY_MIN_LENGTH:
        raise CorruptBatch(f"a batch length of {length} is less than any message needs")
    if left <= _MAGIC_POSITION:
        return
    magic = buf[pos + _MAGIC_POSITION]
    if magic < 2:
        raise UnsupportedMagic(f"message format {magic} is not supported: use a client of Kafka 0.11 or newer")
    if magic > 2:
        raise CorruptBatch(f"no record batch has magic {magic}")
    if length < HEADER_SIZE - LOG_OVERHEAD:
        raise CorruptBatch(f"a batch length of {length} is less than its header needs")


def iter_batches(buf: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of every complete batch; a cut-off batch at the end, as fetches may have, is left out."""
    pos, end = 0, len(buf)
    while end - pos >= HEADER_SIZE:
        header = read_header(buf, pos)
        next_pos = pos + header.batch_length + LOG_OVERHEAD
        if next_pos > end:
            return
        yield pos, header
        pos = next_pos
    if pos < end:
        _check_prefix(buf, pos)


def next_offset(buf: Buffer) -> int | None:
    """Where a consumer goes on after this fetch: past its last complete batch, or None if it has none. Headers only."""
    pos, end, offset = 0, len(buf), None
    while end - pos >= HEADER_SIZE:
        base_offset, length, last_offset_delta = _EXTENT.unpack_from(buf, pos)
        next_pos = pos + length + LOG_OVERHEAD
        if next_pos > end:
            break
        if length < HEADER_SIZE - LOG_OVERHEAD:
            raise CorruptBatch(f"a batch length of {length} is less than its header needs")
        offset = base_offset + last_offset_delta + 1
        pos = next_pos
    return offset


def check_crc(buf: Buffer, pos: int, header: BatchHeader) -> bool:
    """Whether the whole batch is there and its CRC-32C is right."""
    end = pos + header.size
    return end <= len(buf) and crc32c(memoryview(buf)[pos + ATTRIBUTES_POSITION : end]) == header.crc


def read_records(buf: Buffer, pos: int, header: BatchHeader, max_size: int = DEFAULT_MAX_SIZE) -> list[Record]:
    """The records of one batch, control records included. The CRC is the caller's to check."""
    return list(iter_records(read_body(buf, pos, header, max_size), header))


def read_body(buf: Buffer, pos: int, header: BatchHeader, max_size: int = DEFAULT_MAX_SIZE) -> bytes:
    """The records of one batch as they are encoded, inflated."""
    if header.record_count < 0:
        raise CorruptBatch(f"a batch cannot have {header.record_count} records")
    if pos + header.size > len(buf):
        raise CorruptBatch(f"the batch needs {header.size} bytes, {len(buf) - pos} are left")
    if header.record_count == 0:
        return b""
    return decompress(header.compression, memoryview(buf)[pos + HEADER_SIZE : pos + header.size], max_size)


def iter_records(data: bytes, header: BatchHeader) -> Iterator[Record]:
    """One by one, for batches with more records than there should be objects. CorruptBatch where one cannot be read."""
    if header.record_count == 0:
        return
    # A record takes at least 7 bytes: a count that cannot be right is refused before it costs anything.
    count, total = header.record_count, len(data)
    if count * 7 > total:
        raise CorruptBatch(f"{total} bytes cannot hold {count} records")
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    append_time = header.max_timestamp if header.timestamp_type == LOG_APPEND_TIME else None
    pos = 0
    try:
        for _ in range(count):
            size, pos = read_varint(data, pos)
            end = pos + size
            if size < 1 or end > total:
                raise CorruptBatch(f"a record of {size} bytes does not fit the {total - pos} bytes left")
            delta, pos = read_varlong(data, pos + 1)
            timestamp = _wrap(base_timestamp + delta) if append_time is None else append_time
            delta, pos = read_varint(data, pos)
            key, pos = _read_bytes(data, pos, end)
            value, pos = _read_bytes(data, pos, end)
            headers: tuple[Header, ...] = ()
            if data[pos] == 0:
                pos += 1
            else:
                headers, pos = _read_headers(data, pos, end)
            if pos != end:
                raise CorruptBatch("a record is longer or shorter than it says")
            yield Record(base_offset + delta, timestamp, key, value, headers)
    except IndexError:
        raise CorruptBatch("the records end within a record") from None
    if pos != total:
        raise CorruptBatch(f"{total - pos} bytes follow the last record of a batch")


def _read_bytes(data: bytes, pos: int, end: int) -> tuple[bytes | None, int]:
    raw = data[pos]
    if raw == 1:
        return None, pos + 1
    length, pos = (raw >> 1, pos + 1) if raw < 0x80 and not raw & 1 else read_varint(data, pos)
    if length < 0:
        return None, pos
    if length > end - pos:
        raise CorruptBatch(f"a field of {length} bytes does not fit the {end - pos} bytes left in its record")
    return data[pos : pos + length], pos + length


def _read_headers(data: bytes, pos: int, end: int) -> tuple[tuple[Header, ...], int]:
    count, pos = read_varint(data, pos)
    if count < 0 or count > end - pos:
        raise CorruptBatch(f"a record with {end - pos} bytes left cannot have {count} headers")
    return read_header_fields(data, pos, end, count)


def read_header_fields(data: bytes, pos: int, end: int, count: int) -> tuple[tuple[Header, ...], int]:
    """`count` record headers at `pos` and the position after them. Keys are read as UTF-8, errors replaced."""
    headers: list[Header] = []
    for _ in range(count):
        key, pos = _read_bytes(data, pos, end)
        if key is None:
            raise CorruptBatch("a header has no key")
        value, pos = _read_bytes(data, pos, end)
        headers.append((key.decode("utf-8", "replace"), value))
    return tuple(headers), pos


def _wrap(value: int) -> int:
    """Two's complement in 64 bits, as Java adds longs."""
    return value if -(2**63) <= value < 2**63 else (value + 2**63) % 2**64 - 2**63


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    compression: Compression = Compression.NONE,
    compression_level: int | None = None,
    timestamp_type: int = CREATE_TIME,
    partition_leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    delete_horizon_ms: int | None = None,
    last_offset: int | None = None,
    max_timestamp: int | None = None,
    summary: Summary | None = None,
) -> bytes:
    """A batch of `records`, whose offsets lie at or above `base_offset`.

    `last_offset` and `max_timestamp` are taken from the records unless given: a compacted batch keeps its old ones, and
    for LOG_APPEND_TIME `max_timestamp` is the append time. Where the `summary` is known, records are taken one by one.
    """
    if summary is None:
        records = list(records)
        summary = _summary(records)
    if not summary.records and (last_offset is None or max_timestamp is None):
        raise ValueError("a batch without records needs a last_offset and a max_timestamp")
    base_timestamp = summary.first_timestamp if delete_horizon_ms is None else delete_horizon_ms
    body: Buffer = encode_records(records, base_offset, base_timestamp)
    if compression != Compression.NONE and summary.records:
        body = compress(compression, body, compression_level)
    attributes = (
        compression
        | (TIMESTAMP_TYPE_FLAG if timestamp_type == LOG_APPEND_TIME else 0)
        | (TRANSACTIONAL_FLAG if transactional else 0)
        | (CONTROL_FLAG if control else 0)
        | (DELETE_HORIZON_FLAG if delete_horizon_ms is not None else 0)
    )
    delta = (summary.last_offset if last_offset is None else last_offset) - base_offset
    latest = summary.max_timestamp if max_timestamp is None else max_timestamp
    fields = attributes, delta, base_timestamp, latest, producer_id, producer_epoch, base_sequence, summary.records
    return frame_batch(body, fields, base_offset, partition_leader_epoch)


def frame_in_place(buf: memoryview, fields: HeaderFields) -> None:
    """Write the header of a batch before its body, which begins after the room for it."""
    _AFTER_CRC.pack_into(buf, ATTRIBUTES_POSITION, *fields)
    _PREFIX.pack_into(buf, 0, 0, len(buf) - LOG_OVERHEAD, -1, 2, crc32c(buf[ATTRIBUTES_POSITION:]))


def frame_batch(
    body: Buffer,
    fields: HeaderFields,
    base_offset: int = 0,
    partition_leader_epoch: int = -1,
) -> bytes:
    """Header and body."""
    checked = _AFTER_CRC.pack(*fields)
    length = HEADER_SIZE - LOG_OVERHEAD + len(body)
    prefix = _PREFIX.pack(base_offset, length, partition_leader_epoch, 2, crc32c(body, crc32c(checked)))
    return b"".join((prefix, checked, body))


def _summary(records: list[Record]) -> Summary:
    if not records:
        return Summary(0)
    last = records[-1].offset
    return Summary(len(records), records[0].timestamp, max(record.timestamp for record in records), last)


def encode_records(records: Iterable[Record], base_offset: int, base_timestamp: int) -> Buffer:
    """As they are in a batch, without its header."""
    whole, parts = bytearray(), list[bytes]()
    for offset, timestamp, key, value, headers in records:
        fields = [b"\x00", encode_varint(_wrap(timestamp - base_timestamp)), encode_varint(offset - base_offset)]
        fields += (NULL,) if key is None else (encode_varint(len(key)), key)
        fields += (NULL,) if value is None else (encode_varint(len(value)), value)
        fields.append(encode_varint(len(headers)))
        for name, content in headers:
            encoded = name.encode()
            fields += (encode_varint(len(encoded)), encoded)
            fields += (NULL,) if content is None else (encode_varint(len(content)), content)
        body = b"".join(fields)
        parts += (encode_varint(len(body)), body)
        if len(parts) >= _PARTS_AT_ONCE:
            whole += b"".join(parts)
            parts.clear()
    return whole + b"".join(parts) if whole else b"".join(parts)


def build_key_values(
    pairs: list[tuple[bytes, bytes | None]],
    timestamp: int,
    compression: Compression = Compression.NONE,
    producer: tuple[int, int] | None = None,
    control: bool = False,
) -> bytes:
    """`build_batch` for what a coordinator writes all day: keys and values of one time, offsets from 0, no headers.
    With a producer's id and epoch it is part of its transaction, with `control` the end of it."""
    parts: list[bytes] = []
    for delta, (key, value) in enumerate(pairs):
        offset = SMALL[delta] if delta < _SMALL_COUNT else encode_varint(delta)
        key_len = len(key)
        key_size = SMALL[key_len] if key_len < _SMALL_COUNT else encode_varint(key_len)
        if value is None:
            value_size, value, value_len = NULL, b"", 0
        else:
            value_len = len(value)
            value_size = SMALL[value_len] if value_len < _SMALL_COUNT else encode_varint(value_len)
        size = 3 + len(offset) + len(key_size) + key_len + len(value_size) + value_len
        parts += (encode_varint(size), b"\x00\x00", offset, key_size, key, value_size, value, b"\x00")
    body: Buffer = b"".join(parts)
    if compression != Compression.NONE:
        body = compress(compression, body)
    attributes: int = compression
    producer_id, epoch = -1, -1
    if producer is not None:
        producer_id, epoch = producer
        attributes |= TRANSACTIONAL_FLAG | (CONTROL_FLAG if control else 0)
    checked = _AFTER_CRC.pack(attributes, len(pairs) - 1, timestamp, timestamp, producer_id, epoch, -1, len(pairs))
    length = HEADER_SIZE - LOG_OVERHEAD + len(body)
    prefix = _PREFIX.pack(0, length, -1, 2, crc32c(body, crc32c(checked)))
    return b"".join((prefix, checked, body))


def patch_batch(
    buf: bytearray | memoryview, pos: int, base_offset: int, leader_epoch: int, append_time_ms: int | None = None
) -> None:
    """Give a batch its place in the log. An append time also changes type and maximum timestamp, and so the CRC."""
    _OFFSET.pack_into(buf, pos, base_offset)
    _LENGTH.pack_into(buf, pos + LOG_OVERHEAD, leader_epoch)
    if append_time_ms is None:
        return
    (length,) = _LENGTH.unpack_from(buf, pos + 8)
    (attributes,) = _ATTRIBUTES.unpack_from(buf, pos + ATTRIBUTES_POSITION)
    _ATTRIBUTES.pack_into(buf, pos + ATTRIBUTES_POSITION, attributes | TIMESTAMP_TYPE_FLAG)
    _OFFSET.pack_into(buf, pos + _MAX_TIMESTAMP_POSITION, append_time_ms)
    checked = memoryview(buf)[pos + ATTRIBUTES_POSITION : pos + length + LOG_OVERHEAD]
    _CRC.pack_into(buf, pos + CRC_POSITION, crc32c(checked))
