"""The metrics port: `/metrics` for Prometheus, `/health` and `/ready` for whoever starts, stops and routes.

A snapshot is taken on the loop; its text is made on another thread, one at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus

from kohort.broker.health import Health, text
from kohort.broker.http_port import HttpPort, Refused, Reply, Request
from kohort.broker.metrics import Exposition, Snapshot


class MetricsPort:
    """`take` gives a snapshot, None while there is no broker; `health` says how it is."""

    def __init__(self, take: Callable[[], Snapshot | None], health: Callable[[], Health]) -> None:
        self._take = take
        self._health = health
        self._exposition = Exposition()
        self._scraping = asyncio.Lock()
        self._http = HttpPort(self._answer)

    @property
    def port(self) -> int:
        return self._http.port

    async def start(self, host: str, port: int) -> None:
        await self._http.start(host, port)

    async def stop(self) -> None:
        await self._http.stop()

    async def _answer(self, request: Request) -> Reply:
        if request.method not in ("GET", "HEAD"):
            raise Refused(HTTPStatus.METHOD_NOT_ALLOWED, "only GET")
        path = "/".join(request.path)
        if path == "metrics":
            return await self._metrics()
        health = self._health()
        if path == "health":
            return _reply(health.is_healthy, "healthy", "failing", health.failures)
        if path == "ready":
            return _reply(health.is_ready, "ready", "not ready", health.waits_for)
        raise Refused(HTTPStatus.NOT_FOUND, "there are /metrics, /health and /ready")

    async def _metrics(self) -> Reply:
        async with self._scraping:
            found = self._take()
            if found is None:
                raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, "the broker is starting or stopping")
            body = await asyncio.to_thread(self._exposition.text, found)
        return Reply(HTTPStatus.OK, body, Exposition.content_type)


def _reply(is_good: bool, good: str, bad: str, reasons: list[str]) -> Reply:
    status = HTTPStatus.OK if is_good else HTTPStatus.SERVICE_UNAVAILABLE
    return Reply(status, text(good if is_good else bad, reasons))
