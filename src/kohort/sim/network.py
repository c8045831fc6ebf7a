"""Connections between simulated hosts: ordered within one, delayed, cut, or silent while a host is partitioned away.

What is sent to or from a partitioned host is held back, as TCP would, and arrives when the partition heals, unless the
connection was given up meanwhile. A connection that is closed loses what was still on its way.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Protocol

from kohort.sim.scheduler import Scheduler

BROKER = "broker"
"""The host of the one broker, where there is one."""


class Acceptor(Protocol):
    """Who listens: a broker's host."""

    def accept(self, link: Link) -> bool: ...
    def receive(self, link: Link, data: bytes) -> None: ...
    def disconnected(self, link: Link) -> None: ...


Held = tuple[Callable[..., None], tuple[Any, ...]]


class Link:
    """One connection. The client end hears through `on_data` and `on_closed`, the broker end through the acceptor."""

    __slots__ = (
        "_arrives_ms",
        "broker_closed",
        "client_closed",
        "connection",
        "host",
        "network",
        "on_closed",
        "on_data",
        "to",
    )

    def __init__(
        self, network: Network, host: str, to: str, on_data: Callable[[bytes], None], on_closed: Callable[[str], None]
    ) -> None:
        self.network = network
        self.host = host
        self.to = to
        self.on_data = on_data
        self.on_closed = on_closed
        self.connection: Any = None
        self.client_closed = False
        self.broker_closed = False
        self._arrives_ms = {True: 0, False: 0}

    def to_broker(self, data: bytes) -> None:
        if not self.client_closed:
            self._send(True, data)

    def to_client(self, data: bytes) -> None:
        if not self.broker_closed:
            self._send(False, data)

    def close_by_client(self) -> None:
        if not self.client_closed:
            self.client_closed = True
            self._send(True, None)

    def close_by_broker(self) -> None:
        if not self.broker_closed:
            self.broker_closed = True
            self._send(False, None)

    def _send(self, to_broker: bool, data: bytes | None) -> None:
        network = self.network
        at_ms = max(self._arrives_ms[to_broker], network.scheduler.now_ms + network.delay_ms())
        self._arrives_ms[to_broker] = at_ms
        network.scheduler.at(at_ms, self._arrive, to_broker, data)

    def _arrive(self, to_broker: bool, data: bytes | None) -> None:
        if self.network.hold_back(self.host, True, self._arrive, to_broker, data):
            return
        if self.network.hold_back(self.to, False, self._arrive, to_broker, data):
            return
        if to_broker:
            if self.broker_closed:
                return
            if data is not None:
                self.network.acceptors[self.to].receive(self, data)
            else:
                self.broker_closed = True
                self.network.acceptors[self.to].disconnected(self)
        elif not self.client_closed:
            if data is not None:
                self.on_data(data)
            else:
                self.client_closed = True
                self.on_closed("the broker closed the connection")

    def cut(self) -> None:
        """The connection breaks: both ends notice by themselves, nothing on its way arrives."""
        was_open = not self.client_closed
        broker_open = not self.broker_closed
        self.client_closed = self.broker_closed = True
        if broker_open and self.connection is not None:
            self.network.acceptors[self.to].disconnected(self)
        if was_open:
            self.network.scheduler.after(self.network.delay_ms(), self.on_closed, "the connection broke")


class Network:
    def __init__(self, scheduler: Scheduler, random: Random, max_delay_ms: int) -> None:
        self.scheduler = scheduler
        self.random = random
        self.max_delay_ms = max_delay_ms
        self.acceptors: dict[str, Acceptor] = {}
        self.links: list[Link] = []
        self._partitioned: dict[str, list[Held]] = {}
        self._again: dict[str, list[Held]] | None = None  # while a host heals: what another holds back now

    def delay_ms(self) -> int:
        return self.random.randint(0, self.max_delay_ms)

    def connect(
        self,
        host: str,
        on_open: Callable[[Link], None],
        on_failed: Callable[[str], None],
        on_data: Callable[[bytes], None],
        on_closed: Callable[[str], None],
        to: str = BROKER,
    ) -> None:
        link = Link(self, host, to, on_data, on_closed)
        self.scheduler.after(self.delay_ms(), self._connected, link, on_open, on_failed)

    def _connected(self, link: Link, on_open: Callable[[Link], None], on_failed: Callable[[str], None]) -> None:
        if link.host in self._partitioned or link.to in self._partitioned:
            self.scheduler.after(1000, on_failed, "no route to the broker")
        elif not self.acceptors[link.to].accept(link):
            on_failed("connection refused")
        else:
            self.links = [other for other in self.links if not (other.client_closed and other.broker_closed)]
            self.links.append(link)
            on_open(link)

    # Faults.

    def partition(self, host: str) -> None:
        self._partitioned.setdefault(host, [])

    def heal(self, host: str) -> None:
        """What was held back arrives at once and in order, before anything that was sent later; what the client's end
        holds back now was sent before all that it has held back so far."""
        self._again = {}
        for action, arguments in self._partitioned.pop(host, []):
            action(*arguments)
        again, self._again = self._again, None
        for other, held in again.items():
            self._partitioned[other][:0] = held

    def heal_all(self) -> None:
        for host in list(self._partitioned):
            self.heal(host)

    def hold_back(self, host: str, is_client: bool, action: Callable[..., None], *arguments: Any) -> bool:
        if host not in self._partitioned:
            return False
        held = self._partitioned[host]
        if is_client and self._again is not None:
            held = self._again.setdefault(host, [])
        held.append((action, arguments))
        return True

    def cut_one(self) -> None:
        alive = [link for link in self.links if not link.client_closed]
        if alive:
            self.random.choice(alive).cut()
