"""Connections to brokers, sans-IO: which are open, what is on its way on each, when to give up and when to try again.

A link is one connection of one role to one node, from the wish for it to its end. Requests wait in it until it is open.
A request without an answer in time takes its link with it, as answers come in order. Frames and versions are in
`connection`, what requests mean is no business of this file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from kohort.client.config import Config
from kohort.client.effects import Connect, Disconnect, Effect, Outbox, Role, Transmit
from kohort.client.errors import KafkaTimeoutError, NotConnectedError
from kohort.client.timing import Backoff
from kohort.protocol.apis import ApiKey
from kohort.protocol.errors import KafkaError

OF_THE_GROUP = (Role.COORDINATOR, Role.COORDINATOR_ASIDE)


class LinkState(Enum):
    BACKING_OFF = "waits before it connects again"
    CONNECTING = "is being opened, versions agreed on, authenticated"
    OPEN = "takes requests"
    GONE = "closed"


LINK_MOVES: dict[LinkState, frozenset[LinkState]] = {
    LinkState.BACKING_OFF: frozenset({LinkState.CONNECTING, LinkState.GONE}),
    LinkState.CONNECTING: frozenset({LinkState.OPEN, LinkState.GONE}),
    LinkState.OPEN: frozenset({LinkState.GONE}),
    LinkState.GONE: frozenset(),
}


class Place(NamedTuple):
    """Where a request can go."""

    role: Role
    node_id: int
    host: str
    port: int

    @property
    def key(self) -> tuple[Role, int]:
        return self.role, self.node_id


@dataclass(slots=True)
class Flight:
    """A request on its way. `elsewhere` is where it may go when a connection cannot be made."""

    token: int
    request: Any
    timeout_ms: int
    min_version: int = 0
    max_version: int | None = None
    answered: bool = True
    deadline_ms: int = 0
    """Set when it is sent."""
    elsewhere: list[Place] = field(default_factory=list)


class Link:
    __slots__ = ("due_ms", "flights", "last_used_ms", "link_id", "place", "queue", "state")

    def __init__(self, link_id: int, place: Place, state: LinkState, due_ms: int) -> None:
        self.link_id = link_id
        self.place = place
        self.state = state
        self.due_ms = due_ms
        """The end of the backoff, or the latest time to be connected."""
        self.queue: list[Flight] = []
        self.flights: dict[int, Flight] = {}
        self.last_used_ms = 0

    def transition_to(self, state: LinkState) -> None:
        if state not in LINK_MOVES[self.state]:
            raise RuntimeError(f"link to {self.name}: {self.state.name} -> {state.name}")
        self.state = state

    @property
    def name(self) -> str:
        return f"{self.place.host}:{self.place.port}"

    @property
    def load(self) -> int:
        return len(self.flights) + len(self.queue)


class Links:
    """Requests without an answer are in `failed`, connections that broke in `lost`, until somebody takes them."""

    def __init__(self, config: Config, uniform: Callable[[], float], out: Outbox[Effect]) -> None:
        self._config = config
        self._uniform = uniform
        self._out = out
        self._last_id = 0
        self._links: dict[tuple[Role, int], Link] = {}
        self._by_id: dict[int, Link] = {}
        self._by_token: dict[int, Link] = {}
        self._backoffs: dict[tuple[Role, int], tuple[Backoff, int]] = {}
        self.failed: list[tuple[int, Exception]] = []
        self.lost: list[tuple[Place, Exception]] = []

    # -- requests -----------------------------------------------------------------------------------------------------

    def send(self, flight: Flight, place: Place, now_ms: int) -> None:
        self._put(flight, self.open(place, now_ms), now_ms)

    def send_to_any(self, flight: Flight, places: Iterable[Place], now_ms: int) -> None:
        """To the least loaded of these that is connected, else to the first (in a random order) that can be."""
        places = list(places)
        link = self._least_loaded(places)
        if link is not None:
            self._put(flight, link, now_ms)
            return
        flight.elsewhere = self._by_chance(places)
        self._try_next(flight, NotConnectedError("no broker is known"), now_ms)

    def _by_chance(self, places: Iterable[Place]) -> list[Place]:
        """Nodes before bootstrap servers, and of each what is being opened already before the rest."""
        return sorted(
            places, key=lambda place: (place.role is Role.BOOTSTRAP, place.key not in self._links, self._uniform())
        )

    def _least_loaded(self, places: list[Place]) -> Link | None:
        """Load is counted per node over all of its connections; within the node the one with the least is used. Nodes
        of the cluster come before what was only given to find it, and among equals chance decides: whoever is cut off
        from the others must not be the only one that is asked about them."""
        known = {place[2:] for place in places if place.role is not Role.BOOTSTRAP} or {place[2:] for place in places}
        loads: dict[tuple[str, int], int] = {}
        for link in self._links.values():
            address = link.place[2:]
            loads[address] = loads.get(address, 0) + link.load
        usable = [
            link
            for link in self._links.values()
            if link.state is LinkState.OPEN and link.place.role not in OF_THE_GROUP and link.place[2:] in known
        ]
        return min(usable, key=lambda link: (loads[link.place[2:]], link.load, self._uniform()), default=None)

    def _try_next(self, flight: Flight, error: Exception, now_ms: int) -> None:
        if flight.elsewhere:
            self.send(flight, flight.elsewhere.pop(0), now_ms)
        else:
            self.failed.append((flight.token, error))

    def _put(self, flight: Flight, link: Link, now_ms: int) -> None:
        if link.state is LinkState.OPEN:
            self._transmit(flight, link, now_ms)
        else:
            link.queue.append(flight)

    def _transmit(self, flight: Flight, link: Link, now_ms: int) -> None:
        link.last_used_ms = now_ms
        flight.deadline_ms = now_ms + flight.timeout_ms
        link.flights[flight.token] = flight
        self._by_token[flight.token] = link
        self._out.add(
            Transmit(
                link.link_id, flight.token, flight.request, flight.min_version, flight.max_version, flight.answered
            )
        )

    def answered(self, token: int) -> Flight | None:
        """What was waited for, if it was."""
        link = self._by_token.pop(token, None)
        return None if link is None else link.flights.pop(token, None)

    # -- connections --------------------------------------------------------------------------------------------------

    def open(self, place: Place, now_ms: int) -> Link:
        """The link of a role to a node, begun if there is none, after the backoff of earlier failures."""
        found = self._links.get(place.key)
        if found is not None:
            if found.place == place:
                return found
            self._close(found, NotConnectedError(f"node {place.node_id} has moved to {place.host}:{place.port}"))
        self._last_id += 1
        not_before_ms = self._backoffs[place.key][1] if place.key in self._backoffs else 0
        link = Link(self._last_id, place, LinkState.BACKING_OFF, not_before_ms)
        self._links[place.key] = self._by_id[link.link_id] = link
        if now_ms >= not_before_ms:
            self._connect(link, now_ms)
        return link

    def _connect(self, link: Link, now_ms: int) -> None:
        link.transition_to(LinkState.CONNECTING)
        link.due_ms = now_ms + self._config["socket.connection.setup.timeout.ms"]
        self._out.add(Connect(link.link_id, link.place.host, link.place.port, link.place.role))

    def connected(self, link_id: int, now_ms: int) -> None:
        link = self._by_id.get(link_id)
        if link is None:
            return
        link.transition_to(LinkState.OPEN)
        link.last_used_ms = now_ms
        self._backoffs.pop(link.place.key, None)
        queue, link.queue = link.queue, []
        for flight in queue:
            self._transmit(flight, link, now_ms)

    def disconnected(self, link_id: int, error: KafkaError, now_ms: int) -> None:
        """It broke, or could not be made."""
        link = self._by_id.get(link_id)
        if link is not None:
            self._lose(link, error, now_ms)

    def drop(self, roles: Iterable[Role], reason: str) -> list[Flight]:
        """Close the links of these roles; nobody waits for what is on its way on them, which is returned."""
        dropped: list[Flight] = []
        for link in [link for link in self._links.values() if link.place.role in roles]:
            if link.state is not LinkState.BACKING_OFF:
                self._out.add(Disconnect(link.link_id, reason))
            dropped += self._remove(link)
        return dropped

    def close_idle(self, now_ms: int) -> None:
        limit_ms = now_ms - self._config["connections.max.idle.ms"]
        for link in list(self._links.values()):
            if link.state is LinkState.OPEN and not link.load and link.last_used_ms < limit_ms:
                self._out.add(Disconnect(link.link_id, "idle"))
                self._remove(link)

    def _lose(self, link: Link, error: KafkaError, now_ms: int) -> None:
        key = link.place.key
        was_open = link.state is LinkState.OPEN
        backoff = self._new_backoff() if was_open or key not in self._backoffs else self._backoffs[key][0]
        self._backoffs[key] = backoff, now_ms + backoff.next_ms()
        self.lost.append((link.place, error))
        for flight in self._remove(link):
            if was_open:
                self.failed.append((flight.token, error))
            else:
                self._try_next(flight, error, now_ms)

    def _new_backoff(self) -> Backoff:
        return Backoff(self._config["reconnect.backoff.ms"], self._config["reconnect.backoff.max.ms"], self._uniform)

    def _close(self, link: Link, error: KafkaError) -> None:
        if link.state is not LinkState.BACKING_OFF:
            self._out.add(Disconnect(link.link_id, str(error)))
        self.failed += [(flight.token, error) for flight in self._remove(link)]

    def _remove(self, link: Link) -> list[Flight]:
        link.transition_to(LinkState.GONE)
        self._links.pop(link.place.key, None)
        self._by_id.pop(link.link_id, None)
        for token in link.flights:
            self._by_token.pop(token, None)
        return [*link.flights.values(), *link.queue]

    # -- time ---------------------------------------------------------------------------------------------------------

    def on_time(self, now_ms: int) -> None:
        for link in list(self._links.values()):
            if link.state is LinkState.OPEN:
                late = next((flight for flight in link.flights.values() if flight.deadline_ms <= now_ms), None)
                if late is not None:
                    title = ApiKey(late.request.API_KEY).title
                    self._give_up(link, f"no answer to {title} within {late.timeout_ms / 1000:g} s", now_ms)
            elif link.due_ms > now_ms:
                continue
            elif link.state is LinkState.BACKING_OFF:
                self._connect(link, now_ms)
            else:
                patience = self._config["socket.connection.setup.timeout.ms"] / 1000
                self._give_up(link, f"no connection to {link.name} within {patience:g} s", now_ms)

    def _give_up(self, link: Link, reason: str, now_ms: int) -> None:
        self._out.add(Disconnect(link.link_id, reason))
        error = KafkaTimeoutError(reason) if link.state is LinkState.OPEN else NotConnectedError(reason)
        self._lose(link, error, now_ms)

    def next_deadline(self) -> int | None:
        due: int | None = None
        for link in self._links.values():
            if link.state is LinkState.OPEN:
                for flight in link.flights.values():
                    if due is None or flight.deadline_ms < due:
                        due = flight.deadline_ms
            elif due is None or link.due_ms < due:
                due = link.due_ms
        return due
