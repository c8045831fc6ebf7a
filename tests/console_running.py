"""A console in a thread of this process, over any source, and a client that asks it."""

from __future__ import annotations

import asyncio
import http.client
import io
import json
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest

pytest.importorskip("starlette", reason="pip install 'kohort[console]'")
pytest.importorskip("uvicorn", reason="pip install 'kohort[console]'")

from kohort.console import server
from kohort.console.guard import CHANGE_HEADER, Rules

PATIENCE_S = 60
MARKUP = '<img src=x onerror="alert(1)">\x1b[31m\u202e'


def until(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not in {PATIENCE_S} s: {what}"
        time.sleep(0.02)
    return found


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Running:
    """Use `with`; `make_source` runs in the console's own thread."""

    def __init__(self, make_source: Callable[[], Any], changes: Any = None, rules: Rules | None = None) -> None:
        self._make_source, self._changes, self.rules = make_source, changes, rules or Rules()
        self._listening = server.listen("127.0.0.1", 0)
        self.port = self._listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._up = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    async def _run(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self.source = self._make_source()
        await server.serve(self.source, self._listening, self.rules, self._changes, self._up.set, stop=self._stop)

    def __enter__(self) -> Running:
        self._thread.start()
        assert self._up.wait(PATIENCE_S)
        return self

    def __exit__(self, *exc: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), self._where_it_waits()

    def _where_it_waits(self) -> str:
        frame = sys._current_frames()[self._thread.ident or 0]
        said = io.StringIO("".join(traceback.format_stack(frame)))
        said.seek(0, io.SEEK_END)
        for task in asyncio.all_tasks(self._loop):
            task.print_stack(file=said)
        return f"the console does not stop:\n{said.getvalue()}"

    def ask(
        self, path: str, headers: dict[str, str] | None = None, method: str = "GET", body: Any = None, **query: Any
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        given = dict(headers or {})
        data = None if body is None else json.dumps(body).encode()
        if body is not None:
            given = {"content-type": "application/json", CHANGE_HEADER: "1"} | given
        try:
            connection.request(method, f"{path}?{urlencode(query)}" if query else path, data, given)
            response = connection.getresponse()
            return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()

    def get(self, what: str, **query: Any) -> Any:
        answer = self.ask(f"/api/{what}", **query)
        assert answer.status == 200, answer
        return answer.json()

    def row(self, group: str) -> Any:
        return next((row for row in self.get("groups")["rows"] if row["group"] == group), None)
