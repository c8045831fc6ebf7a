"""Drives a consumer's core on a thread of its own, over blocking sockets: for programs without an event loop.

The thread waits for answers, wake-ups and the time in `wait`; others reach it through `post` and `wake`. Connections
are opened on threads of their own, so that a slow broker never delays a heartbeat. It has no policy.
"""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from kohort.client import effects as fx
from kohort.client import events as ev
from kohort.client.blocking import BlockingTransport
from kohort.client.consumer_core import ConsumerCore
from kohort.client.driving import report, resolve
from kohort.client.errors import ConfigError, NotConnectedError
from kohort.protocol.errors import KafkaError

LONGEST_WAIT_MS = 1_000


def now_ms() -> int:
    return int(time.monotonic() * 1000)


class ThreadedDriver:
    """What the core has for its application goes to `give`, on the driver's thread."""

    def __init__(self, core: ConsumerCore, give: Callable[[fx.Effect], None], log: logging.Logger) -> None:
        self.core = core
        self._give = give
        self._log = log
        self._transports: dict[int, BlockingTransport | None] = {}
        """None while it is being opened."""
        self._events: deque[ev.Event] = deque()
        self._posted: deque[Callable[[], None]] = deque()
        self._busy = False
        self._asks: dict[int, Future[Any]] = {}
        self._last_ask = 0
        self._waker, self._woken = socket.socketpair()
        self._waker.setblocking(False)
        self._closed = False
        self._carriers: dict[type, Callable[[Any], None]] = {
            fx.Connect: self._connect,
            fx.Disconnect: self._disconnect,
            fx.Transmit: self._transmit,
            fx.Done: self._done,
            fx.Report: self._report,
        }

    # -- from any thread ----------------------------------------------------------------------------------------------

    def post(self, work: Callable[[], None]) -> None:
        """Have it done on the driver's thread."""
        self._posted.append(work)
        self.wake()

    def wake(self) -> None:
        with contextlib.suppress(OSError):
            self._waker.send(b"\0")

    # -- the driver's thread ------------------------------------------------------------------------------------------

    def tell(self, event: ev.Event) -> None:
        self._events.append(event)
        if self._busy:
            return
        self._busy = True
        try:
            while self._events:
                for effect in self.core.handle(self._events.popleft(), now_ms()):
                    self._carriers.get(type(effect), self._give)(effect)
        finally:
            self._busy = False

    def ask(self, make: Callable[[int], ev.Event]) -> Future[Any]:
        """Tell an event that ends with Done: its value or error to come."""
        self._last_ask += 1
        future: Future[Any] = Future()
        self._asks[self._last_ask] = future
        self.tell(make(self._last_ask))
        return future

    def wait(self, until_ms: int) -> None:
        """Handle what happens, until something did or the time has come."""
        if not self._posted:
            due_ms = self.core.next_deadline()
            until_ms = min(until_ms, now_ms() + LONGEST_WAIT_MS, until_ms if due_ms is None else due_ms)
            self._listen(max(until_ms - now_ms(), 0))
        while self._posted:
            self._posted.popleft()()
        due_ms = self.core.next_deadline()
        if due_ms is not None and due_ms <= now_ms():
            self.tell(ev.Tick())

    def close(self, error: KafkaError) -> None:
        """Whoever still waits for an answer gets the error."""
        self._closed = True
        for transport in self._transports.values():
            if transport is not None:
                transport.close()
        self._transports.clear()
        self._waker.close()
        self._woken.close()
        for ask_id in list(self._asks):
            self._done(fx.Done(ask_id, None, error))

    # -- sockets ------------------------------------------------------------------------------------------------------

    def _listen(self, wait_ms: int) -> None:
        sockets = {t.socket.fileno(): link_id for link_id, t in self._transports.items() if t is not None}
        poll = select.poll()
        for number in (self._woken.fileno(), *sockets):
            poll.register(number, select.POLLIN)
        for number, _ in poll.poll(wait_ms):
            if number == self._woken.fileno():
                self._woken.recv(4096)
            else:
                self._receive(sockets[number])

    def _receive(self, link_id: int) -> None:
        transport = self._transports.get(link_id)
        if transport is None:
            return
        try:
            answers = transport.take_answers()
        except KafkaError as error:
            self._lost(link_id, error)
            return
        for token, response in answers:
            self.tell(ev.Answered(token, response))

    def _lost(self, link_id: int, error: KafkaError) -> None:
        transport = self._transports.pop(link_id, None)
        if transport is not None:
            transport.close(str(error))
        self.tell(ev.Disconnected(link_id, error))

    def _connect(self, effect: fx.Connect) -> None:
        self._transports[effect.link_id] = None
        threading.Thread(target=self._open, args=(effect,), name="kohort-connect", daemon=True).start()

    def _open(self, effect: fx.Connect) -> None:
        """On a thread of its own."""
        try:
            transport = BlockingTransport(effect.host, effect.port, self.core.config)
        except (KafkaError, ConfigError, OSError, ValueError) as error:
            failure = error if isinstance(error, KafkaError) else NotConnectedError(str(error))
            self.post(lambda: self._lost(effect.link_id, failure))
        else:
            self.post(lambda: self._opened(effect.link_id, transport))
            if self._closed:
                transport.close()

    def _opened(self, link_id: int, transport: BlockingTransport) -> None:
        if self._closed or link_id not in self._transports:
            transport.close()
            return
        self._transports[link_id] = transport
        self.tell(ev.Connected(link_id))

    def _disconnect(self, effect: fx.Disconnect) -> None:
        transport = self._transports.pop(effect.link_id, None)
        if transport is not None:
            transport.close(effect.reason)

    def _transmit(self, effect: fx.Transmit) -> None:
        transport = self._transports.get(effect.link_id)
        if transport is None:
            return  # that it broke is on its way to the core
        try:
            transport.send_as(effect.token, effect.request, effect.min_version, effect.max_version)
        except Exception as error:
            if transport.closed:
                broken = error if isinstance(error, KafkaError) else NotConnectedError(str(error))
                self._transports.pop(effect.link_id, None)
                self._events.append(ev.Disconnected(effect.link_id, broken))
            else:
                self._events.append(ev.Refused(effect.token, error))

    # -- the rest -----------------------------------------------------------------------------------------------------

    def _done(self, effect: fx.Done) -> None:
        resolve(self._asks.pop(effect.ask_id, None), effect)

    def _report(self, effect: fx.Report) -> None:
        report(self._log, effect)
