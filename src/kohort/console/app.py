"""The console's web application: static files, JSON, and server-sent events about what changed. Reads one source.

Every answer about groups is JSON, text or a drawing in which all names are escaped; nothing from Kafka is ever HTML.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from kohort.console.drawing import timeline_svg
from kohort.console.guard import Guard, Rules
from kohort.console.report import report_html
from kohort.console.source import Source
from kohort.insight import views

STATIC = Path(__file__).parent / "static"
HOUR_MS = 3_600_000
TICK_S = 1.0
HEARTBEAT_TICKS = 15
MOST_NAMED = 500
MOST_IN_REPORT = 12
MOST_BODY = 64 * 1024
# No script runs in what is exported, wherever it is opened.
STILL = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox"}


class Refused(Exception):
    """The sentence that the reader gets, with the status."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Changes(Protocol):
    """What may be changed in a cluster. Both raise Refused; `execute` does what the same `preview` said, or refuses."""

    async def preview(self, asked: dict[str, Any]) -> dict[str, Any]: ...

    async def execute(self, asked: dict[str, Any], plan: str) -> dict[str, Any]: ...


class Console:
    def __init__(self, source: Source, changes: Changes | None = None) -> None:
        self._source, self._changes = source, changes
        self.stopping = asyncio.Event()

    # -- what is asked

    async def status(self, request: Request) -> Response:
        return JSONResponse(self._source.status() | {"changes": self._changes is not None})

    async def groups(self, request: Request) -> Response:
        since = _number(request, "since", 0)
        ledger = self._source.ledger
        revision = ledger.revision
        rows = ledger.rows(self._source.now_ms(), since)
        most = _number(request, "most", len(rows))
        return _json({"revision": revision, "rows": rows[:most], "total": len(ledger.groups), "more": len(rows) > most})

    async def group(self, request: Request) -> Response:
        return _json(await self._timeline(request))

    async def rebalance(self, request: Request) -> Response:
        past = self._past(request)
        detail = views.rebalance_detail(past, _number(request, "id", 0), self._source.now_ms())
        if detail is None:
            raise Refused(404, "no such rebalance is known; it may be too old to be kept in memory")
        return _json(detail)

    async def cluster(self, request: Request) -> Response:
        ledger = self._source.ledger
        return _json({**self._source.cluster, "topics": ledger.topics(), "talkers": ledger.talkers()})

    async def svg(self, request: Request) -> Response:
        drawn = timeline_svg(await self._timeline(request))
        return Response(drawn, media_type="image/svg+xml", headers={**STILL, **_saved("timeline.svg")})

    async def report(self, request: Request) -> Response:
        now_ms = self._source.now_ms()
        rows = self._source.ledger.rows(now_ms)
        if "group" in request.query_params:
            timelines = [await self._timeline(request)]
            rows = [row for row in rows if row["group"] == timelines[0]["group"]]
        else:
            worst = [self._source.ledger.groups[row["group"]] for row in rows[:MOST_IN_REPORT]]
            ends = self._source.ledger.ends
            timelines = [views.timeline(past, ends, now_ms - HOUR_MS, now_ms, now_ms) for past in worst]
        page = report_html(self._source.status(), rows, timelines)
        return Response(page, media_type="text/html", headers={**STILL, **_saved("kohort-report.html")})

    async def events(self, request: Request) -> Response:
        return StreamingResponse(self._stream(), media_type="text/event-stream")

    async def _stream(self) -> AsyncIterator[str]:
        seen = -1
        ticks = 0
        ledger = self._source.ledger
        while not self.stopping.is_set():
            if ledger.revision != seen:
                changed = ledger.changed(seen) if seen >= 0 else []
                seen = ledger.revision
                news = self._source.status() | {"changed": changed[:MOST_NAMED], "many": len(changed) > MOST_NAMED}
                yield f"data: {json.dumps(news)}\n\n"
            elif ticks % HEARTBEAT_TICKS == 0:
                yield f"data: {json.dumps(self._source.status() | {'changed': [], 'many': False})}\n\n"
            ticks += 1
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.stopping.wait(), TICK_S)

    # -- what is changed

    async def preview(self, request: Request) -> Response:
        return _json(await self._may_change().preview(await _body(request)))

    async def execute(self, request: Request) -> Response:
        asked = await _body(request)
        return _json(await self._may_change().execute(asked, str(asked.pop("plan", ""))))

    def _may_change(self) -> Changes:
        if self._changes is None:
            raise Refused(403, "nothing can be changed from here: start kohort console with --allow-changes")
        return self._changes

    # -- within

    def _past(self, request: Request) -> Any:
        past = self._source.ledger.groups.get(request.query_params.get("group", ""))
        if past is None:
            raise Refused(404, "no such group is known here")
        return past

    async def _timeline(self, request: Request) -> dict[str, Any]:
        past = self._past(request)
        await self._source.look_at(past.group_id)
        now_ms = self._source.now_ms()
        to_ms = _number(request, "to", now_ms)
        from_ms = _number(request, "from", to_ms - HOUR_MS)
        if from_ms >= to_ms:
            raise Refused(400, "from must be before to, both in milliseconds since 1970")
        return views.timeline(past, self._source.ledger.ends, from_ms, to_ms, now_ms)


def _number(request: Request, name: str, otherwise: int) -> int:
    given = request.query_params.get(name)
    if given is None:
        return otherwise
    try:
        number = int(given)
    except ValueError:
        number = -1
    if not 0 <= number < 2**53:
        raise Refused(400, f"{name} takes a whole number from 0")
    return number


def _json(value: Any) -> Response:
    """As JSONResponse, without its indents of time: some of these are large."""
    return Response(json.dumps(value, separators=(",", ":")), media_type="application/json")


def _saved(name: str) -> dict[str, str]:
    return {"content-disposition": f'attachment; filename="{name}"'}


async def _body(request: Request) -> dict[str, Any]:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MOST_BODY:
            raise Refused(413, f"a body has at most {MOST_BODY} bytes")
    try:
        asked = json.loads(body)
    except ValueError:
        asked = None
    if not isinstance(asked, dict):
        raise Refused(400, "a body is one JSON object")
    return asked


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return JSONResponse({"error": str(error)}, error.status)


async def _index(request: Request) -> Response:
    return FileResponse(STATIC / "index.html", media_type="text/html")


def make_app(console: Console, rules: Rules) -> Starlette:
    asked: dict[str, Callable[[Request], Awaitable[Response]]] = {
        "/api/status": console.status,
        "/api/groups": console.groups,
        "/api/group": console.group,
        "/api/rebalance": console.rebalance,
        "/api/cluster": console.cluster,
        "/api/events": console.events,
        "/api/timeline.svg": console.svg,
        "/api/report.html": console.report,
    }
    routes: list[Any] = [Route("/", _index), *(Route(path, answer) for path, answer in asked.items())]
    routes += [
        Route("/api/changes/preview", console.preview, methods=["POST"]),
        Route("/api/changes/execute", console.execute, methods=["POST"]),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    middleware = [Middleware(Guard, rules=rules), Middleware(GZipMiddleware, minimum_size=2_000, compresslevel=1)]
    return Starlette(routes=routes, middleware=middleware, exception_handlers={Refused: _refused})
