"""The control port: what a test can do with a broker, over HTTP with JSON, for tests in any language.

Off unless asked for, and on the loopback only: whoever reaches it can break the broker. A request is one connection.
What a browser sends on behalf of a web page is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

from kohort.broker.boot import RunningBroker, StartError
from kohort.broker.control_routes import Refused, Request, Routes

logger = logging.getLogger("kohort.control")

MAX_HEAD_BYTES = 16 * 1024
MAX_BODY_BYTES = 64 * 1024
PATIENCE_S = 30
_LOOPBACK = re.compile(r"(localhost|127\.0\.0\.1)(:\d+)?", re.IGNORECASE)


class Control:
    """`broker` gives the running broker; `restart` stops it and starts it again with the same data and port."""

    def __init__(self, broker: Callable[[], RunningBroker], restart: Callable[[], Awaitable[None]]) -> None:
        self._routes = Routes(broker, restart)
        self._server: asyncio.Server | None = None
        self.host, self.port = "127.0.0.1", 0

    async def start(self, port: int) -> None:
        try:
            self._server = await asyncio.start_server(self._connected, self.host, port, limit=MAX_HEAD_BYTES)
        except OSError as error:
            raise StartError(f"cannot listen on the control port {port}: {error.strerror or error}") from None
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()

    # HTTP.

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                request = await _read(reader)
            status, answer = await self._routes.answer(request)
        except Refused as refused:
            status, answer = refused.status, {"error": str(refused)}
        except (asyncio.IncompleteReadError, TimeoutError, ConnectionError):
            writer.close()
            return
        except Exception as error:
            logger.exception("a control request failed")
            status, answer = HTTPStatus.INTERNAL_SERVER_ERROR, {"error": str(error)}
        with contextlib.suppress(ConnectionError):
            writer.write(_response(status, answer))
            await writer.drain()
            writer.close()


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
    if "origin" in headers or not _LOOPBACK.fullmatch(headers.get("host", "localhost")):
        raise Refused(HTTPStatus.FORBIDDEN, "the control port is not for web pages")
    length = headers.get("content-length", "0")
    if not length.isdigit() or int(length) > MAX_BODY_BYTES:
        raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body has a length of at most {MAX_BODY_BYTES} bytes")
    return Request(words[0], words[1], headers, await reader.readexactly(int(length)))


def _response(status: HTTPStatus, answer: Any) -> bytes:
    body = json.dumps(answer).encode() + b"\n"
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body
