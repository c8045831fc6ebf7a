"""The console running: a source that fills its ledger, and uvicorn that serves it, until somebody stops it."""

from __future__ import annotations

import asyncio
import io
import logging
import secrets
import socket
import sys
from collections.abc import Callable, Iterable

import uvicorn

from kohort.console.app import Changes, Console, make_app
from kohort.console.guard import Rules, is_loopback
from kohort.console.source import Source

log = logging.getLogger("kohort.console")
CANCELS, CANCEL_EVERY_S = 10, 1.0


def listen(host: str, port: int) -> socket.socket:
    """Raises OSError where that cannot be."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    # asyncio turns Nagle's delay off where it is told that the socket is TCP: else every small answer takes 40 ms.
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(128)
    except BaseException:
        listening.close()
        raise
    return listening


def rules_for(host: str, token: str | None = None) -> Rules:
    """A token where others than this machine can reach it."""
    return Rules(token) if token or is_loopback(host) else Rules(secrets.token_urlsafe(24))


def address(host: str, port: int, rules: Rules) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}/" + (f"?token={rules.token}" if rules.token else "")


async def serve(
    source: Source,
    listening: socket.socket,
    rules: Rules,
    changes: Changes | None = None,
    ready: Callable[[], None] = lambda: None,
    end_with_stdin: bool = False,
    stop: asyncio.Event | None = None,
) -> None:
    """Until SIGINT, SIGTERM or `stop`; `end_with_stdin`: or until whoever started it is gone."""
    console = Console(source, changes)
    config = uvicorn.Config(
        make_app(console, rules), log_level="warning", access_log=False, lifespan="off", timeout_graceful_shutdown=2
    )
    server = uvicorn.Server(config)
    filling = asyncio.create_task(_fill(source))
    stopping = asyncio.create_task(_tell(server, console, stop or asyncio.Event()))
    saying = asyncio.create_task(_say(server, ready))
    beside = [filling, stopping, saying, *([asyncio.create_task(_until_stdin_ends(server))] if end_with_stdin else [])]
    try:
        await server.serve(sockets=[listening])
    finally:
        await _end(beside)


async def _say(server: uvicorn.Server, ready: Callable[[], None]) -> None:
    """When signals are listened to: whoever reads where the console is may end it at once."""
    while not server.started:
        await asyncio.sleep(0.01)
    ready()


async def _fill(source: Source) -> None:
    try:
        await source.run()
    except Exception as error:
        log.exception("what fills the console failed")
        text = f"The reading of {source.what} failed: {error!r}."
        source.notice("source", "problem", text, "What is shown is what was known before. Start the console anew.")


async def _end(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancelled until they are over: a cancellation can be lost, to an error of the very same moment for one."""
    waiting = set(tasks)
    for _ in range(CANCELS):
        for task in waiting:
            task.cancel()
        _, waiting = await asyncio.wait(waiting, timeout=CANCEL_EVERY_S)
        if not waiting:
            return
    for task in waiting:
        task.print_stack(file=(stack := io.StringIO()))
        log.error("does not end, though it was cancelled %d times:\n%s", CANCELS, stack.getvalue())


async def _tell(server: uvicorn.Server, console: Console, stop: asyncio.Event) -> None:
    """Streams end when the server is asked to: they would keep it for ever."""
    while not server.should_exit:
        if stop.is_set():  # and never the other way round: a signal may set it at any moment
            server.should_exit = True
        await asyncio.sleep(0.1)
    console.stopping.set()


async def _until_stdin_ends(server: uvicorn.Server) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await reader.read()
    server.should_exit = True
