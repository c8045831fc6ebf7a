"""The control port: faults, time, restarts and group stories over HTTP with JSON, for tests in any language.

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
from urllib.parse import unquote, urlsplit

from kohort.broker.boot import RunningBroker, StartError
from kohort.broker.faults import Fault

logger = logging.getLogger("kohort.control")

MAX_HEAD_BYTES = 16 * 1024
MAX_BODY_BYTES = 64 * 1024
PATIENCE_S = 30
_LOOPBACK = re.compile(r"(localhost|127\.0\.0\.1)(:\d+)?", re.IGNORECASE)
_FAULT_KEYS = {
    "action": str,
    "api": str,
    "code": (str, int),
    "seconds": (int, float),
    "before": bool,
    "times": (int, type(None)),
    "after": int,
    "group": str,
    "client": str,
    "topic": str,
    "partition": int,
}


class Refused(Exception):
    """A request that gets an error status and a sentence."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class Request:
    def __init__(self, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
        self.method = method
        self.path = [unquote(part) for part in urlsplit(path).path.strip("/").split("/")]
        self.headers = headers
        self.body = body

    def json(self) -> dict[str, Any]:
        try:
            value = json.loads(self.body or b"{}")
        except ValueError as error:
            raise Refused(HTTPStatus.BAD_REQUEST, f"the body is not JSON: {error}") from None
        if not isinstance(value, dict):
            raise Refused(HTTPStatus.BAD_REQUEST, "the body must be a JSON object")
        return value


class Control:
    """`broker` gives the running broker; `restart` stops it and starts it again with the same data and port."""

    def __init__(self, broker: Callable[[], RunningBroker], restart: Callable[[], Awaitable[None]]) -> None:
        self._broker = broker
        self._restart = restart
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
            status, answer = await self._answer(request)
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

    # Routes.

    async def _answer(self, request: Request) -> tuple[HTTPStatus, Any]:
        match request.method, *request.path:
            case "GET", "faults":
                return HTTPStatus.OK, {"faults": [fault.to_dict() for fault in self._broker().core.faults]}
            case "POST", "faults":
                return HTTPStatus.CREATED, self._add_fault(request.json())
            case "DELETE", "faults":
                return HTTPStatus.OK, self._clear_faults()
            case "DELETE", "faults", number:
                return HTTPStatus.OK, self._remove_fault(number)
            case "GET", "clock":
                return HTTPStatus.OK, {"now_ms": self._broker().clock.now_ms()}
            case "POST", "clock", "advance":
                return HTTPStatus.OK, await self._advance(request.json())
            case "GET", "groups", name, "story":
                story = self._broker().story(name)
                return HTTPStatus.OK, {"group": name, "events": [event.to_dict() for event in story]}
            case "POST", "broker", "restart":
                await self._restart()
                return HTTPStatus.OK, {"bootstrap_servers": f"{self._broker().host}:{self._broker().port}"}
        raise Refused(HTTPStatus.NOT_FOUND, f"there is no {request.method} /{'/'.join(request.path)}")

    def _add_fault(self, given: dict[str, Any]) -> dict[str, Any]:
        for name, value in given.items():
            wanted = _FAULT_KEYS.get(name)
            if wanted is None:
                raise Refused(HTTPStatus.BAD_REQUEST, f"a fault has no {name}: it has {', '.join(_FAULT_KEYS)}")
            if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
                raise Refused(HTTPStatus.BAD_REQUEST, f"{name} cannot be {value!r}")
        if "action" not in given:
            raise Refused(HTTPStatus.BAD_REQUEST, "action is missing: fail, delay, drop or disconnect")
        try:
            return self._broker().core.faults.add(Fault(**given)).to_dict()
        except ValueError as error:
            raise Refused(HTTPStatus.BAD_REQUEST, str(error)) from None

    def _clear_faults(self) -> dict[str, Any]:
        running = self._broker()
        running.core.faults.clear(running.core, running.clock.now_ms())
        running.server.end_turn()
        return {"faults": []}

    def _remove_fault(self, number: str) -> dict[str, Any]:
        faults = self._broker().core.faults
        for fault in faults:
            if str(fault.id) == number:
                faults.remove(fault)
                return fault.to_dict()
        raise Refused(HTTPStatus.NOT_FOUND, f"there is no fault {number}")

    async def _advance(self, given: dict[str, Any]) -> dict[str, Any]:
        seconds = given.get("seconds")
        if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not 0 <= seconds <= 1e9:
            raise Refused(HTTPStatus.BAD_REQUEST, 'write {"seconds": 45}: how far, not negative')
        await self._broker().server.advance(seconds)
        return {"now_ms": self._broker().clock.now_ms()}


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
