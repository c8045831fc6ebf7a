"""Drives a consumer's core in the simulated world: its network and its virtual time. It has no policy of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kohort.client import effects as fx
from kohort.client import events as ev
from kohort.client.connection import Connection
from kohort.client.consumer_core import ConsumerCore
from kohort.client.errors import NotConnectedError
from kohort.protocol.errors import KafkaError
from kohort.sim.scheduler import Event, Stall

if TYPE_CHECKING:
    from kohort.sim.network import Link
    from kohort.sim.world import World


class SimTransport:
    """The real connection over a simulated link; deaf once it was closed from here."""

    def __init__(self, driver: SimDriver, link_id: int, host: str, to: str) -> None:
        self._driver = driver
        self._link_id = link_id
        self._link: Link | None = None
        self._closed = False
        self.connection = Connection(host, driver.core.config["client.id"])
        driver.world.network.connect(host, self._opened, self._broken, self._received, self._broken, to)

    def _opened(self, link: Link) -> None:
        if self._closed:
            link.close_by_client()
            return
        self._link = link
        self.connection.start()
        self._flush()

    def _flush(self) -> None:
        output = self.connection.take_output()
        if output and self._link is not None:
            self._link.to_broker(output)

    def send(self, effect: fx.Transmit) -> None:
        self.connection.send(effect.token, effect.request, effect.min_version, effect.max_version)
        self._flush()

    def _received(self, data: bytes) -> None:
        if self._closed or self._driver.stall.holds(self._received, data):
            return
        was_ready = self.connection.ready
        answers = []
        while data:
            room = self.connection.get_buffer()
            piece, data = data[: len(room)], data[len(room) :]
            room[: len(piece)] = piece
            answers += self.connection.received(len(piece))
        self._flush()
        if self.connection.ready and not was_ready:
            self._driver.tell(ev.Connected(self._link_id))
        for token, response in answers:
            self._driver.tell(ev.Answered(token, response))

    def _broken(self, reason: str) -> None:
        if not self._closed and not self._driver.stall.holds(self._broken, reason):
            self._closed = True
            self._driver.lost(self._link_id, NotConnectedError(reason))

    def close(self) -> None:
        self._closed = True
        if self._link is not None:
            self._link.close_by_client()


class SimDriver:
    """What the core has for its application goes to `give`; `watch` sees what is sent and answered."""

    def __init__(
        self,
        world: World,
        core: ConsumerCore,
        give: Callable[[fx.Effect], None],
        watch: Callable[[fx.Transmit | ev.Answered], None],
        host_of: Callable[[fx.Connect], str],
    ) -> None:
        self.world = world
        self.core = core
        self.stall = Stall(world.scheduler)
        self._give = give
        self._watch = watch
        self._host_of = host_of
        self._transports: dict[int, SimTransport] = {}
        self._events: deque[ev.Event] = deque()
        self._busy = False
        self._timer: Event | None = None
        self._gone = False
        self._carriers: dict[type, Callable[[Any], None]] = {
            fx.Connect: self._connect,
            fx.Disconnect: self._disconnect,
            fx.Transmit: self._transmit,
        }

    def tell(self, event: ev.Event) -> None:
        self._events.append(event)
        if self._busy:
            return
        self._busy = True
        try:
            while self._events and not self._gone:
                self._handle(self._events.popleft())
        finally:
            self._busy = False
        self._arm()

    def _handle(self, event: ev.Event) -> None:
        if isinstance(event, ev.Answered):
            self._watch(event)
        for effect in self.core.handle(event, self.world.scheduler.now_ms):
            if not self._gone:
                self._carriers.get(type(effect), self._give)(effect)

    def vanish(self) -> None:
        """The process is gone: the system closes its connections, nothing of it happens any more."""
        self._gone = True
        self.stall.forget()
        for transport in self._transports.values():
            transport.close()
        self._transports.clear()
        if self._timer is not None:
            self._timer.cancel()

    # Effects.

    def _connect(self, effect: fx.Connect) -> None:
        self._transports[effect.link_id] = SimTransport(self, effect.link_id, self._host_of(effect), effect.host)

    def _disconnect(self, effect: fx.Disconnect) -> None:
        transport = self._transports.pop(effect.link_id, None)
        if transport is not None:
            transport.close()

    def _transmit(self, effect: fx.Transmit) -> None:
        transport = self._transports.get(effect.link_id)
        if transport is None:
            return
        self._watch(effect)
        try:
            transport.send(effect)
        except KafkaError as error:
            self._events.append(ev.Refused(effect.token, error))

    def lost(self, link_id: int, error: KafkaError) -> None:
        self._transports.pop(link_id, None)
        self.tell(ev.Disconnected(link_id, error))

    # Time.

    def _arm(self) -> None:
        due_ms = None if self._gone else self.core.next_deadline()
        at_ms = None if due_ms is None else max(due_ms, self.world.scheduler.now_ms + 1)
        if self._timer is not None and self._timer.action is not None:
            if self._timer.at_ms == at_ms:
                return
            self._timer.cancel()
        self._timer = None if at_ms is None else self.world.scheduler.at(at_ms, self._tick)

    def _tick(self) -> None:
        if not self._gone and not self.stall.holds(self._tick):
            self.tell(ev.Tick())
