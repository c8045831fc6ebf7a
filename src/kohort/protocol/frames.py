"""Frames: a 4-byte size, a header, a body. Splitting a stream into frames, reading and writing headers.

Header versions (KIP-482): a flexible request carries header v2, a flexible response header v1, except ApiVersions,
whose response always carries v0 so that any client can read it.
"""

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from kohort.protocol.wire import DecodeError, uvarint

_SIZE = struct.Struct(">i")
_REQUEST = struct.Struct(">hhih")
_RESPONSE = struct.Struct(">ii")
_FLEXIBLE_RESPONSE = struct.Struct(">iib")
API_VERSIONS = 18


class FrameTooLarge(DecodeError):
    """A frame announces more bytes than the limit, or less than none."""


class FrameSplitter:
    """Bytes as they arrive in, complete frames (without their size) out. Keeps at most one incomplete frame."""

    __slots__ = ("_buffer", "limit")

    def __init__(self, limit: int = 104_857_600) -> None:
        self.limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        buffer = self._buffer
        if buffer:
            buffer += data
            if len(buffer) < 4 or len(buffer) < 4 + self._size(buffer, 0):
                return
            data = bytes(buffer)
            buffer.clear()
        pos, end = 0, len(data)
        while end - pos >= 4:
            stop = pos + 4 + self._size(data, pos)
            if stop > end:
                break
            yield data[pos + 4 : stop]
            pos = stop
        if pos < end:
            buffer += data[pos:] if pos else data

    def _size(self, data: bytes | bytearray, pos: int) -> int:
        size: int = _SIZE.unpack_from(data, pos)[0]
        if not 0 <= size <= self.limit:
            raise FrameTooLarge(f"a frame of {size} bytes, the limit is {self.limit}")
        return size

    @property
    def pending(self) -> int:
        """Bytes of the incomplete frame held back."""
        return len(self._buffer)


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    client_id_end: int

    def body_offset(self, frame: bytes, flexible: bool) -> int:
        """Where the body begins: after the header's tagged fields where the request is flexible."""
        return skip_tags(frame, self.client_id_end) if flexible else self.client_id_end


def skip_tags(frame: bytes | memoryview, pos: int) -> int:
    try:
        if frame[pos] == 0:
            return pos + 1
        count, pos = uvarint(frame, pos)
        for _ in range(count):
            _, pos = uvarint(frame, pos)
            size, pos = uvarint(frame, pos)
            pos += size
    except IndexError:
        raise DecodeError("header past the end of the frame") from None
    return pos


def parse_request_header(frame: bytes) -> RequestHeader:
    try:
        api_key, version, correlation_id, length = _REQUEST.unpack_from(frame)
        end = 10 + max(length, 0)
        if end > len(frame):
            raise DecodeError("client id past the end of the frame")
        client_id = None if length < 0 else str(frame[10:end], "utf-8")
    except (struct.error, UnicodeDecodeError) as error:
        raise DecodeError(f"request header: {error}") from None
    return RequestHeader(api_key, version, correlation_id, client_id, end)


def encode_request(correlation_id: int, client_id: str | None, version: int, message: Any) -> list[Any]:
    """A whole request frame as chunks, size first."""
    name = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(name)
    head = _REQUEST.pack(message.API_KEY, version, correlation_id, length) + name
    if message.flexible(version):
        head += b"\0"
    parts = message.encode_parts(version)
    size = len(head) + sum(map(len, parts))
    return [_SIZE.pack(size) + head, *parts]


def encode_response(correlation_id: int, version: int, message: Any) -> list[Any]:
    """A whole response frame as chunks, size first."""
    parts = message.encode_parts(version)
    size = sum(map(len, parts))
    if message.API_KEY != API_VERSIONS and message.flexible(version):
        return [_FLEXIBLE_RESPONSE.pack(size + 5, correlation_id, 0), *parts]
    return [_RESPONSE.pack(size + 4, correlation_id), *parts]


def response_correlation_id(frame: bytes) -> int:
    if len(frame) < 4:
        raise DecodeError("a response shorter than its header")
    correlation_id: int = _SIZE.unpack_from(frame)[0]
    return correlation_id


def decode_response(frame: bytes | memoryview, version: int, message: Any) -> Any:
    """The body of a response frame as a message of the given class."""
    pos = 4
    if message.API_KEY != API_VERSIONS and message.flexible(version):
        pos = skip_tags(frame, pos)
    return message.decode(frame, version, pos)
