"""The wire format of a registered message: a zero byte, the schema's id, with Protobuf which message it is. Pure."""

from __future__ import annotations

import struct

from kohort.registry.errors import RegistryError

_HEAD = struct.Struct(">bi")
MAGIC = 0


def unpack(message: bytes) -> tuple[int, bytes]:
    """The schema's id and the payload."""
    if len(message) < _HEAD.size or message[0] != MAGIC:
        raise RegistryError(
            f"{message[:8].hex(' ') or 'an empty message'} is not how a registered message begins: a zero byte and the "
            "schema's id of four bytes"
        )
    _, schema_id = _HEAD.unpack_from(message)
    return schema_id, message[_HEAD.size :]


def pack(schema_id: int, payload: bytes) -> bytes:
    return _HEAD.pack(MAGIC, schema_id) + payload


def unpack_indexes(payload: bytes) -> tuple[tuple[int, ...], bytes]:
    """Protobuf: the place of the message in its file, from the outermost in, and the rest."""
    count, at = _varint(payload, 0)
    if count == 0:
        return (0,), payload[at:]
    if not 0 < count <= len(payload):
        raise RegistryError(f"{count} message indexes cannot be: is this Protobuf?")
    indexes = []
    for _ in range(count):
        index, at = _varint(payload, at)
        indexes.append(index)
    return tuple(indexes), payload[at:]


def pack_indexes(indexes: tuple[int, ...]) -> bytes:
    if indexes == (0,):
        return b"\0"
    return b"".join(_to_varint(number) for number in (len(indexes), *indexes))


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint, and where it ends."""
    value = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
    raise RegistryError("the message ends within its message indexes: is this Protobuf?")


def _to_varint(number: int) -> bytes:
    value, out = (number << 1) ^ (number >> 63), bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
