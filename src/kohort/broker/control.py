"""The control port: what a test can do with a broker, over HTTP with JSON, for tests in any language.

Off unless asked for, and on the loopback only: whoever reaches it, and has the token where there is one, can break the
broker. What a browser sends on behalf of a web page is refused.
"""

from __future__ import annotations

import hmac
import json
import logging
import re
from http import HTTPStatus
from typing import Any

from kohort.broker.boot import StartError
from kohort.broker.control_routes import Answering
from kohort.broker.http_port import HttpPort, Refused, Reply, Request

logger = logging.getLogger("kohort.control")

_LOOPBACK = re.compile(r"(localhost|127\.0\.0\.1)(:\d+)?", re.IGNORECASE)


class Control:
    def __init__(self, routes: Answering, token: str | None = None) -> None:
        self._routes = routes
        self._token = token
        self._http = HttpPort(self._answer)
        self.host = "127.0.0.1"

    @property
    def port(self) -> int:
        return self._http.port

    async def start(self, port: int) -> None:
        try:
            await self._http.start(self.host, port)
        except OSError as error:
            raise StartError(f"cannot listen on the control port {port}: {error.strerror or error}") from None

    async def stop(self) -> None:
        await self._http.stop()

    async def _answer(self, request: Request) -> Reply:
        try:
            self._check(request)
            status, answer = await self._routes.answer(request)
        except Refused as refused:
            status, answer = refused.status, {"error": str(refused)}
        except Exception as error:
            logger.exception("a control request failed")
            status, answer = HTTPStatus.INTERNAL_SERVER_ERROR, {"error": str(error)}
        return _json(status, answer)

    def _check(self, request: Request) -> None:
        headers = request.headers
        if "origin" in headers or not _LOOPBACK.fullmatch(headers.get("host", "localhost")):
            raise Refused(HTTPStatus.FORBIDDEN, "the control port is not for web pages")
        given = headers.get("authorization", "").removeprefix("Bearer ")
        if self._token is not None and not hmac.compare_digest(given.encode(), self._token.encode()):
            raise Refused(HTTPStatus.UNAUTHORIZED, "the control port wants its token: Authorization: Bearer TOKEN")


def _json(status: HTTPStatus, answer: Any) -> Reply:
    return Reply(status, json.dumps(answer).encode() + b"\n", "application/json")
