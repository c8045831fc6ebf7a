"""Zig-zag varints of Kafka's records: at most 5 bytes for an int, 10 for a long, excess bits dropped as in Java."""

from struct import unpack

from kohort.protocol.wire import uvarint_bytes
from kohort.records.errors import CorruptBatch


def _encode(value: int) -> bytes:
    return uvarint_bytes((value << 1) ^ (value >> 63))


def _small() -> tuple[bytes, ...]:
    """Of 0 and up, in one and two bytes; cut out of one string, as this runs at every start of a process."""
    pairs = bytearray(2 * 64 * 127)
    pairs[::2] = bytes(range(128, 256, 2)) * 127
    pairs[1::2] = b"".join(bytes((high,)) * 64 for high in range(1, 128))
    return unpack("1s" * 64, bytes(range(0, 128, 2))) + unpack("2s" * 64 * 127, pairs)


SMALL = _small()
NULL = _encode(-1)


def encode_varint(value: int) -> bytes:
    """`value` must fit in a signed 64-bit integer."""
    if 0 <= value < 8192:
        return SMALL[value]
    return _encode(value)


def read_varint(buf: bytes | memoryview, pos: int) -> tuple[int, int]:
    """A 32-bit varint at `pos` and the position after it; IndexError where the buffer ends."""
    raw = buf[pos]
    if raw < 0x80:
        return (raw >> 1) ^ -(raw & 1), pos + 1
    high = buf[pos + 1]
    if high < 0x80:
        raw = raw & 0x7F | high << 7
        return (raw >> 1) ^ -(raw & 1), pos + 2
    raw, pos = _read_unsigned(buf, pos, 5)
    raw &= 0xFFFFFFFF
    return (raw >> 1) ^ -(raw & 1), pos


def read_varlong(buf: bytes | memoryview, pos: int) -> tuple[int, int]:
    """A 64-bit varint at `pos` and the position after it; IndexError where the buffer ends."""
    raw = buf[pos]
    if raw < 0x80:
        return (raw >> 1) ^ -(raw & 1), pos + 1
    raw, pos = _read_unsigned(buf, pos, 10)
    raw &= 0xFFFFFFFFFFFFFFFF
    return (raw >> 1) ^ -(raw & 1), pos


def _read_unsigned(buf: bytes | memoryview, pos: int, max_bytes: int) -> tuple[int, int]:
    raw = shift = 0
    for _ in range(max_bytes):
        byte = buf[pos]
        pos += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return raw, pos
        shift += 7
    raise CorruptBatch(f"a varint does not end within {max_bytes} bytes")
