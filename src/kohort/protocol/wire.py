"""The few things that compiled readers and writers call: varints, tags, rows that are written already, and what goes
wrong."""

from collections.abc import Callable, Iterable
from struct import Struct
from typing import Any


class DecodeError(ValueError):
    """The bytes are not a message of that version."""


class EncodeError(ValueError):
    """The value cannot be written in that version."""


class UnsupportedFieldError(EncodeError):
    """A field is set that the version cannot carry, and leaving it out would change the meaning."""

    def __init__(self, field: str, version: int) -> None:
        super().__init__(f"{field} is set, but version {version} cannot carry it")


class Encoded:
    """The elements of an array that were written already, some at a time: what they were made of is gone."""

    __slots__ = ("_count", "_write", "parts", "size")

    def __init__(self, write: Callable[[Any, Callable[[Any], None]], None]) -> None:
        self._write = write
        self._count = 0
        self.parts: list[bytes] = []
        self.size = 0  # in bytes

    def __len__(self) -> int:
        return self._count

    def add(self, rows: Iterable[Any]) -> None:
        parts: list[Any] = []
        for row in rows:
            self._write(row, parts.append)
            self._count += 1
        self.parts.append(b"".join(parts))
        self.size += len(self.parts[-1])


UVARINTS = [bytes([value]) for value in range(128)]
_SHORT = Struct(">h")
NULL_STRING = b"\xff\xff"
NULL_BYTES = b"\xff\xff\xff\xff"


def uvarint_tail(buf: bytes | memoryview, pos: int, value: int) -> tuple[int, int]:
    """The rest of an unsigned varint whose first byte, with the continuation bit set, was `value`."""
    value &= 0x7F
    for shift in (7, 14, 21, 28):
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 128:
            if value > 0x7FFFFFFF:
                break
            return value, pos
    raise DecodeError("unsigned varint over 31 bits")


def string_tail(buf: bytes | memoryview, pos: int, value: int) -> tuple[int, int]:
    """The same for the length of a string, counted from 1: no string is longer than what other versions can carry."""
    value, pos = uvarint_tail(buf, pos, value)
    if value > 32768:
        raise DecodeError("string longer than 32767 bytes")
    return value, pos


def uvarint(buf: bytes | memoryview, pos: int) -> tuple[int, int]:
    value = buf[pos]
    return (value, pos + 1) if value < 128 else uvarint_tail(buf, pos + 1, value)


def uvarint_bytes(value: int) -> bytes:
    if 0 <= value < 128:
        return UVARINTS[value]
    out = bytearray()
    while value > 127:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def short_string(text: str) -> bytes:
    """As versions that are not flexible have it: its length in two bytes, then UTF-8."""
    data = text.encode()
    return _SHORT.pack(len(data)) + data


def write_tags(tags: dict[int, bytes], put: Callable[[bytes], None]) -> None:
    put(uvarint_bytes(len(tags)))
    for tag in sorted(tags):
        put(uvarint_bytes(tag) + uvarint_bytes(len(tags[tag])))
        put(tags[tag])
