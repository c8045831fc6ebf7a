"""Drives a client's core over asyncio: sockets, the clock, one timer. It carries out effects and has no policy."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from kohort.client import effects as fx
from kohort.client import events as ev
from kohort.client.cluster_core import ClusterCore
from kohort.client.connection import Answer
from kohort.client.consumer_core import ConsumerCore
from kohort.client.driving import report, resolve
from kohort.client.errors import NotConnectedError
from kohort.client.security import ssl_context
from kohort.client.transport import AsyncTransport
from kohort.protocol.errors import KafkaError

log = logging.getLogger("kohort.client")


class AsyncDriver:
    """`tell` is how anything happens; `ask` is for what has an end to wait for."""

    def __init__(self, core: ClusterCore) -> None:
        self._core = core
        self._ssl = ssl_context(core.config)
        self._loop = asyncio.get_running_loop()
        self._transports: dict[int, AsyncTransport] = {}
        self._opening: dict[int, asyncio.Task[None]] = {}
        self._inbox: deque[ev.Event] = deque()
        self._busy = False
        self._timer: asyncio.TimerHandle | None = None
        self._due_ms: int | None = None
        self._asks: dict[int, asyncio.Future[Any]] = {}
        self._last_ask = 0
        self._closed = False
        self.broken: Exception | None = None
        """A bug: what the core raised where nobody waited for it."""
        self.recording: list[tuple[int, ev.Event]] | None = None
        """Set to a list, it gets every event with its time; `recording.replay` makes a run of it."""
        self._carriers: dict[type, Callable[[Any], None]] = {
            fx.Connect: self._connect,
            fx.Disconnect: self._disconnect,
            fx.Transmit: self._transmit,
            fx.Done: self._done,
            fx.Report: self._report,
        }

    def now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    # -- events -------------------------------------------------------------------------------------------------------

    def tell(self, event: ev.Event) -> None:
        """Raises what the core finds wrong with it."""
        self._inbox.append(event)
        if self._busy:
            return
        self._busy = True
        try:
            while self._inbox and not self._closed:
                self._handle(self._inbox.popleft())
        finally:
            self._busy = False
            self._arm()

    def _handle(self, event: ev.Event) -> None:
        now_ms = self.now_ms()
        if self.recording is not None:
            self.recording.append((now_ms, event))
        for effect in self._core.handle(event, now_ms):
            carrier = self._carriers.get(type(effect))
            if carrier is not None:
                carrier(effect)

    def _happened(self, event: ev.Event) -> None:
        """From the network or the clock: nobody is there to catch."""
        try:
            self.tell(event)
        except Exception as error:
            log.exception("the client's core failed")
            self.broken = error
            self.wake()

    def wake(self) -> None:
        """Something is there for whoever waits."""

    def ask(self, make: Callable[[int], ev.Event]) -> tuple[int, asyncio.Future[Any]]:
        """Tell an event that ends with Done: its number, and its value or error to come."""
        self._last_ask += 1
        ask_id, future = self._last_ask, self._loop.create_future()
        self._asks[ask_id] = future
        if self._closed:
            self._done(fx.Done(ask_id, None, NotConnectedError("the client is closed")))
        else:
            self.tell(make(ask_id))
        return ask_id, future

    async def wait_for(self, make: Callable[[int], ev.Event]) -> Any:
        """`ask` and wait; whoever is cancelled meanwhile is forgotten."""
        ask_id, future = self.ask(make)
        try:
            return await future
        except asyncio.CancelledError:
            self._asks.pop(ask_id, None)
            self._forget(ask_id)
            raise

    def _forget(self, ask_id: int) -> None:
        """Nobody waits for this any more."""

    # -- effects ------------------------------------------------------------------------------------------------------

    def _connect(self, effect: fx.Connect) -> None:
        link_id = effect.link_id

        def closed(error: KafkaError) -> None:
            if self._transports.pop(link_id, None) is not None:
                self._happened(ev.Disconnected(link_id, error))

        transport = AsyncTransport(
            f"{effect.host}:{effect.port}",
            self._core.config,
            lambda: self._happened(ev.Connected(link_id)),
            self._answered,
            closed,
        )
        self._transports[link_id] = transport

        async def open_it() -> None:
            try:
                await transport.open(effect.host, effect.port, self._ssl)
            except KafkaError as error:
                closed(error)
            finally:
                self._opening.pop(link_id, None)

        self._opening[link_id] = self._loop.create_task(open_it())

    def _answered(self, answers: list[Answer]) -> None:
        for token, response in answers:
            self._happened(ev.Answered(token, response))

    def _disconnect(self, effect: fx.Disconnect) -> None:
        if (task := self._opening.pop(effect.link_id, None)) is not None:
            task.cancel()
        if (transport := self._transports.pop(effect.link_id, None)) is not None:
            transport.close(effect.reason)

    def _transmit(self, effect: fx.Transmit) -> None:
        transport = self._transports.get(effect.link_id)
        if transport is None:
            return  # that it broke is on its way to the core
        try:
            transport.send(effect.token, effect.request, effect.min_version, effect.max_version, effect.answered)
        except Exception as error:
            self._inbox.append(ev.Refused(effect.token, error))
            return
        if not effect.answered:
            self._inbox.append(ev.Answered(effect.token, None))

    def _done(self, effect: fx.Done) -> None:
        resolve(self._asks.pop(effect.ask_id, None), effect)

    @staticmethod
    def _report(effect: fx.Report) -> None:
        report(log, effect)

    # -- time ---------------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        due_ms = None if self._closed else self._core.next_deadline()
        if due_ms == self._due_ms and self._timer is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._due_ms = due_ms
        if due_ms is not None:
            self._timer = self._loop.call_at(max(due_ms / 1000, self._loop.time()) + 0.001, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._happened(ev.Tick())

    async def close(self) -> None:
        self._closed = True
        self._arm()
        for transport in self._transports.values():
            transport.close("the client was closed")
        self._transports.clear()
        tasks = list(self._opening.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for ask_id in list(self._asks):
            self._done(fx.Done(ask_id, None, NotConnectedError("the client was closed")))


class ConsumerDriver(AsyncDriver):
    """What a consumer's core gives its application waits in `given`."""

    def __init__(self, core: ConsumerCore) -> None:
        super().__init__(core)
        self.core = core
        self.given: deque[fx.Effect] = deque()
        self.left = asyncio.Event()
        self._news = asyncio.Event()
        for kind in (fx.Records, fx.Chunks, fx.Fail, fx.Assign, fx.Revoke, fx.Lose):
            self._carriers[kind] = self._give
        self._carriers[fx.Ready] = lambda _: self.wake()
        self._carriers[fx.Left] = self._leave

    def _give(self, effect: fx.Effect) -> None:
        self.given.append(effect)
        self.wake()

    def _leave(self, effect: fx.Left) -> None:
        self.left.set()
        self.wake()

    def _forget(self, ask_id: int) -> None:
        self.tell(ev.Forget(ask_id))

    def wake(self) -> None:
        self._news.set()

    def expect_news(self) -> None:
        self._news.clear()

    async def news(self, deadline: float) -> bool:
        """False when the deadline (in loop time) passed without any since `expect_news`."""
        try:
            async with asyncio.timeout_at(deadline):
                await self._news.wait()
        except TimeoutError:
            return False
        return True
