"""How the console begins and ends: what is sent at once, what fails is told, and it stops whatever its source does."""

import asyncio
import contextlib
import http.client
import re
import socket

import pytest

from console_running import PATIENCE_S, Running
from kohort.client.errors import NotConnectedError
from kohort.console import server
from kohort.console.app import STATIC
from kohort.console.live import LiveSource
from kohort.console.source import Source


def test_small_answers_are_sent_at_once():
    with contextlib.closing(server.listen("127.0.0.1", 0)) as listening:
        assert listening.proto == socket.IPPROTO_TCP, "asyncio leaves Nagle's delay on where it does not know"


def test_the_rows_of_the_table_are_asked_for_before_any_script_runs():
    index, script = (STATIC / "index.html").read_text(), (STATIC / "app.js").read_text()
    (first,) = re.findall(r"FIRST_ROWS = (\d+)", script)
    assert f'<link rel="preload" href="/api/groups?most={first}" as="fetch" crossorigin>' in index
    assert "uplot" not in index, "the table needs no charts"


class Deaf(Source):
    """Misses the first two times that it is told to stop."""

    async def run(self):
        for _ in range(2):
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(3600)
        await asyncio.sleep(3600)


def test_it_stops_with_a_source_that_misses_a_cancellation_and_a_page_that_listens(monkeypatch):
    monkeypatch.setattr(server, "CANCEL_EVERY_S", 0.01)
    with Running(Deaf) as console:
        listening = http.client.HTTPConnection("127.0.0.1", console.port, timeout=PATIENCE_S)
        listening.request("GET", "/api/events")
        assert listening.getresponse().readline().startswith(b"data: ")
        idle = http.client.HTTPConnection("127.0.0.1", console.port, timeout=PATIENCE_S)
        idle.request("GET", "/api/status")
        idle.getresponse().read()
    listening.close()
    idle.close()


def test_a_source_that_never_ends_is_named(monkeypatch, caplog):
    monkeypatch.setattr(server, "CANCEL_EVERY_S", 0.01)

    async def main():
        free = asyncio.Event()

        async def never():
            while not free.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await free.wait()

        task = asyncio.create_task(never())
        await asyncio.sleep(0)
        await server._end([task])
        free.set()
        await task

    asyncio.run(main())
    assert "does not end, though it was cancelled 10 times" in caplog.text and "in never" in caplog.text


@pytest.mark.parametrize("step", ["_look", "_follow"])
def test_an_error_of_the_moment_of_a_cancellation_does_not_keep_a_live_source(monkeypatch, step):
    async def fails_when_cancelled(self, *_):
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            raise NotConnectedError("the connection broke") from None

    async def main():
        monkeypatch.setattr(LiveSource, step, fails_when_cancelled)
        source = LiveSource(settings={"bootstrap.servers": "127.0.0.1:1"})
        task = asyncio.create_task(source.run())
        for _ in range(5):
            await asyncio.sleep(0)
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=PATIENCE_S)
        assert done and task.cancelled()

    asyncio.run(main())


class Failing(Source):
    async def run(self):
        raise ZeroDivisionError("a fault")


def test_a_source_that_fails_says_so_on_the_page():
    with Running(lambda: Failing(what="here")) as console:
        (notice,) = console.get("status")["notices"]
    assert notice["severity"] == "problem" and "here failed: ZeroDivisionError('a fault')" in notice["text"]
    assert "Start the console anew" in notice["advice"]
