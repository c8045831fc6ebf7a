"""The network side of a simulated client: one connection per role, requests encoded and decoded by the real codec."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from kohort.protocol.apis import ApiKey
from kohort.protocol.frames import FrameSplitter, decode_response, encode_request, response_correlation_id
from kohort.sim.network import BROKER
from kohort.sim.scheduler import Event

if TYPE_CHECKING:
    from kohort.sim.network import Link
    from kohort.sim.world import World

CONNECT_BACKOFF_MS, CONNECT_BACKOFF_MAX_MS = 50, 1_000
RESPONSES = {int(api): api for api in ApiKey}


class Pending:
    __slots__ = ("message", "on_answer", "on_failed", "timer", "version")

    def __init__(self, message: Any, version: int, on_answer: Any, on_failed: Any, timer: Event) -> None:
        self.message = message
        self.version = version
        self.on_answer = on_answer
        self.on_failed = on_failed
        self.timer = timer


class Channel:
    """One connection, opened when there is something to send; whoever waits when it breaks is told."""

    def __init__(self, world: World, host: str, client_id: str, to: str = BROKER) -> None:
        self._world = world
        self._host = host
        self._to = to
        self._client_id = client_id
        self._link: Link | None = None
        self._opening = False
        self._queue: list[int] = []
        self._pending: dict[int, Pending] = {}
        self._correlation_id = 0
        self._splitter = FrameSplitter()
        self._life = 0
        self._failures = 0

    def request(
        self,
        message: Any,
        on_answer: Callable[[Any], None],
        on_failed: Callable[[str], None],
        timeout_ms: int,
        max_version: int | None = None,
    ) -> None:
        schema = type(message).SCHEMA
        version = type(message).MAX_VERSION - schema.latest_unstable
        if max_version is not None:
            version = min(version, max_version)
        self._correlation_id += 1
        timer = self._world.scheduler.after(timeout_ms, self._timed_out, self._correlation_id)
        self._pending[self._correlation_id] = Pending(message, version, on_answer, on_failed, timer)
        if self._link is not None:
            self._transmit(self._correlation_id)
            return
        self._queue.append(self._correlation_id)
        if not self._opening:
            self._opening = True
            self._world.network.connect(self._host, *self._handlers(self._life), self._to)

    def _handlers(self, life: int) -> tuple[Any, Any, Any, Any]:
        """Callbacks that count only while this life of the channel lasts."""

        def guarded(action: Callable[[Any], None]) -> Callable[[Any], None]:
            return lambda value: action(value) if life == self._life else None

        def opened(link: Link) -> None:
            if life == self._life:
                self._opened(link)
            else:
                link.close_by_client()

        return opened, guarded(self._broken), guarded(self._received), guarded(self._broken)

    def _opened(self, link: Link) -> None:
        self._link = link
        self._opening = False
        self._failures = 0
        queue, self._queue = self._queue, []
        for correlation_id in queue:
            if correlation_id in self._pending:
                self._transmit(correlation_id)

    def _transmit(self, correlation_id: int) -> None:
        assert self._link is not None
        pending = self._pending[correlation_id]
        parts = encode_request(correlation_id, self._client_id, pending.version, pending.message)
        self._link.to_broker(b"".join(parts))

    def _received(self, data: bytes) -> None:
        for frame in self._splitter.feed(data):
            pending = self._pending.pop(response_correlation_id(frame), None)
            if pending is None:
                continue
            pending.timer.cancel()
            response_class = RESPONSES[type(pending.message).API_KEY].response
            pending.on_answer(decode_response(frame, pending.version, response_class))

    def _timed_out(self, correlation_id: int) -> None:
        """As Kafka's client: a request that times out takes its connection with it."""
        if correlation_id in self._pending:
            self.close("a request timed out")

    def _broken(self, reason: str) -> None:
        backoff_ms = min(CONNECT_BACKOFF_MS << min(self._failures, 5), CONNECT_BACKOFF_MAX_MS)
        self._failures += 1
        self._world.scheduler.after(backoff_ms, self._fail_all, self._forget(), reason)

    def _forget(self) -> list[Pending]:
        self._life += 1
        self._link = None
        self._opening = False
        self._queue = []
        self._splitter = FrameSplitter()
        failed, self._pending = list(self._pending.values()), {}
        for pending in failed:
            pending.timer.cancel()
        return failed

    def _fail_all(self, failed: list[Pending], reason: str) -> None:
        for pending in failed:
            pending.on_failed(reason)

    def close(self, reason: str) -> None:
        """Give the connection up; who waits on it is told at once."""
        if self._link is not None:
            self._link.close_by_client()
        self._fail_all(self._forget(), reason)

    def vanish(self) -> None:
        """The process died: the system closes its connection, nobody is told anything."""
        if self._link is not None:
            self._link.close_by_client()
        self._forget()


class Caller:
    """Whoever sends requests of its own making in the simulated world, over one connection to each broker."""

    def __init__(self, world: World, name: str) -> None:
        self.name = name
        self._world = world
        self._scheduler = world.scheduler
        self._random: Random = world.random_for(name)
        self._routes = world.routes_for(name, self._random)

    @property
    def _channel(self) -> Channel:
        """To any broker."""
        return self._routes.to(None)
