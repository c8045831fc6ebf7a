"""HTTP/1.1 on a port of the broker (control, metrics): one request a connection, few connections, little patience.

What is asked and answered is others' business. A peer that sends slowly, too much or nothing loses its connection and
keeps nobody else from theirs.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

logger = logging.getLogger("kohort.http")

MAX_HEAD_BYTES = 16 * 1024
MAX_BODY_BYTES = 64 * 1024
MOST_CONNECTIONS = 64
PATIENCE_S = 10.0
Kinds = dict[str, type | tuple[type, ...]]
"""Names -> what their values are."""


class Refused(Exception):
    """A request that gets an error status and a sentence."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class Request:
    def __init__(self, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
        split = urlsplit(path)
        self.method = method
        self.path = [unquote(part) for part in split.path.strip("/").split("/")]
        self.query = dict(parse_qsl(split.query, keep_blank_values=True))
        self.headers = headers
        self.body = body

    def json(self, what: str, kinds: Kinds) -> dict[str, Any]:
        """The body, an object that has nothing but these."""
        try:
            given = json.loads(self.body or b"{}")
        except ValueError as error:
            raise Refused(HTTPStatus.BAD_REQUEST, f"the body is not JSON: {error}") from None
        if not isinstance(given, dict):
            raise Refused(HTTPStatus.BAD_REQUEST, "the body must be a JSON object")
        for name, value in given.items():
            wanted = kinds.get(name)
            if wanted is None:
                raise Refused(HTTPStatus.BAD_REQUEST, f"{what} has no {name}: it has {', '.join(kinds)}")
            if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
                raise Refused(HTTPStatus.BAD_REQUEST, f"{name} cannot be {value!r}")
        return given

    def asked(self, *known: str) -> dict[str, str]:
        """The query, which has nothing but these."""
        for name in self.query:
            if name not in known:
                raise Refused(HTTPStatus.BAD_REQUEST, f"there is no {name} to ask for: {', '.join(known)}")
        return self.query


class Reply(NamedTuple):
    status: HTTPStatus
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


Answer = Callable[[Request], Awaitable[Reply]]


class HttpPort:
    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        """OSError where nobody can listen there."""
        self._server = await asyncio.start_server(self._connected, host, port, limit=MAX_HEAD_BYTES)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for writer in list(self._open):
            writer.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= MOST_CONNECTIONS:
            writer.transport.abort()
            return
        self._open.add(writer)
        try:
            await self._serve(reader, writer)
        finally:
            self._open.discard(writer)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                request = await _read(reader)
            reply = await self._answer(request)
        except Refused as refused:
            reply = Reply(refused.status, f"{refused}\n".encode())
        except (asyncio.IncompleteReadError, TimeoutError, ConnectionError):
            return
        except Exception:
            logger.exception("a request failed")
            reply = Reply(HTTPStatus.INTERNAL_SERVER_ERROR, b"failed; the log of the broker says why\n")
        with contextlib.suppress(ConnectionError, TimeoutError):
            writer.write(_head(reply) + reply.body)
            async with asyncio.timeout(PATIENCE_S):
                await writer.drain()
                writer.close()
                await writer.wait_closed()


async def _read(reader: asyncio.StreamReader) -> Request:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        raise Refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the head is too large") from None
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise Refused(HTTPStatus.BAD_REQUEST, "this is not HTTP/1.1")
    headers = {}
    for line in lines[1:-2]:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit()) or int(length[:20]) > MAX_BODY_BYTES:
        raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body has a length of at most {MAX_BODY_BYTES} bytes")
    return Request(words[0], words[1], headers, await reader.readexactly(int(length)))


def _head(reply: Reply) -> bytes:
    return (
        f"HTTP/1.1 {reply.status.value} {reply.status.phrase}\r\ncontent-type: {reply.content_type}\r\n"
        f"content-length: {len(reply.body)}\r\nconnection: close\r\n\r\n"
    ).encode()
