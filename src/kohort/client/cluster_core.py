"""A client of a cluster, sans-IO: connections, metadata, single requests. Consumers, producers and admins stand on it.

An event goes in, effects come out; what answers mean is up to those who asked.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, ClassVar

from kohort.client import events as ev
from kohort.client.config import Config
from kohort.client.effects import Done, Effect, MetadataChanged, Outbox, Role
from kohort.client.errors import NotConnectedError
from kohort.client.links import Flight, Links, Place
from kohort.client.metadata import Metadata, MetadataKeeper
from kohort.protocol.errors import ErrorCode, KafkaError


class Owner(Enum):
    """Which part of a core a request belongs to."""

    METADATA = "metadata"
    QUESTION = "question"
    MEMBER = "member"
    FETCHER = "fetcher"


class ClusterCore:
    """`handle` is the only way in; `next_deadline` says when it wants a Tick."""

    def __init__(self, config: Config, uniform: Callable[[], float]) -> None:
        self.config = config
        self._uniform = uniform
        self._out: Outbox[Effect] = Outbox()
        self._links = Links(config, uniform, self._out)
        self._keeper = MetadataKeeper(config, uniform)
        self._now_ms = 0
        self._token = 0
        self._owners: dict[int, tuple[Owner, int]] = {}

    @property
    def metadata(self) -> Metadata:
        return self._keeper.metadata

    @property
    def servers(self) -> str:
        return self._keeper.servers

    # -- the contract -------------------------------------------------------------------------------------------------

    def handle(self, event: ev.Event, now_ms: int) -> list[Effect]:
        self._now_ms = now_ms
        self.HANDLERS[type(event)](self, event, now_ms)
        self._settle(now_ms)
        return self._out.drain()

    def next_deadline(self) -> int | None:
        return min((at for at in self._deadlines() if at is not None), default=None)

    def _deadlines(self) -> list[int | None]:
        return [self._links.next_deadline(), self._keeper.next_deadline()]

    def _settle(self, now_ms: int) -> None:
        """Whatever follows from what happened, until nothing does."""
        while True:
            self._deliver_failures(now_ms)
            if self._keeper.due(now_ms):
                self._send(Owner.METADATA, 0, self._keeper.request(), None, now_ms)
            for ask_id, error in self._take_refreshed():
                self._out.add(Done(ask_id, None if error is not None else self.metadata, error))
            if not self._links.failed and not self._links.lost:
                return

    def _take_refreshed(self) -> list[tuple[int, Exception | None]]:
        finished, self._keeper.finished = self._keeper.finished, []
        return finished

    # -- requests -----------------------------------------------------------------------------------------------------

    def _send(
        self,
        owner: Owner,
        number: int,
        request: Any,
        place: Place | None,
        now_ms: int,
        timeout_ms: int | None = None,
        min_version: int = 0,
        max_version: int | None = None,
        answered: bool = True,
    ) -> None:
        """The owner hears of the end under `number`. No place: the least loaded node."""
        self._token += 1
        self._owners[self._token] = owner, number
        patience_ms = self.config["request.timeout.ms"] if timeout_ms is None else timeout_ms
        flight = Flight(self._token, request, patience_ms, min_version, max_version, answered)
        if place is None:
            self._links.send_to_any(flight, self._places(), now_ms)
        else:
            self._links.send(flight, place, now_ms)

    def _places(self) -> list[Place]:
        nodes = [Place(Role.DATA, node.node_id, node.host, node.port) for node in self.metadata.nodes.values()]
        servers = self.config["bootstrap.servers"]
        return nodes + [Place(Role.BOOTSTRAP, number, host, port) for number, (host, port) in enumerate(servers)]

    def _place(self, node_id: int, role: Role) -> Place:
        node = self.metadata.nodes.get(node_id)
        if node is None:
            raise NotConnectedError(f"node {node_id} is not in the cluster's metadata")
        return Place(role, node_id, node.host, node.port)

    def _answered(self, event: ev.Answered, now_ms: int) -> None:
        flight = self._links.answered(event.token)
        if flight is not None:
            self._measure(flight, event.response, now_ms)
            self._deliver(*self._owners.pop(event.token), event.response, None, now_ms)

    def _measure(self, flight: Flight, response: Any, now_ms: int) -> None:
        """Before anything is made of the answer."""

    def _refused(self, event: ev.Refused, now_ms: int) -> None:
        self._links.answered(event.token)
        if (owner := self._owners.pop(event.token, None)) is not None:
            self._deliver(*owner, None, event.error, now_ms)

    def _deliver_failures(self, now_ms: int) -> None:
        lost, self._links.lost = self._links.lost, []
        for place, error in lost:
            self._link_lost(place, error, now_ms)
        while self._links.failed:
            token, error = self._links.failed.pop(0)
            if (owner := self._owners.pop(token, None)) is not None:
                self._deliver(*owner, None, error, now_ms)

    def _link_lost(self, place: Place, error: Exception, now_ms: int) -> None:
        """A connection broke or could not be made; the requests on it hear of it themselves."""

    def _deliver(self, owner: Owner, number: int, response: Any, error: Exception | None, now_ms: int) -> None:
        """The end of a request: with a response, or with an error."""
        if owner is Owner.QUESTION:
            self._out.add(Done(number, response, error))
        elif error is None:
            self._metadata_arrived(self._keeper.received(response, now_ms), now_ms)
            self._links.close_idle(now_ms)
        else:
            failure = error if isinstance(error, KafkaError) else KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
            level = "WARNING" if self._keeper.failed(failure, now_ms) else "DEBUG"
            self._out.report(f"no metadata, trying again: {failure}", level)

    def _metadata_arrived(self, metadata: Metadata, now_ms: int) -> None:
        self._out.add(MetadataChanged())

    # -- events -------------------------------------------------------------------------------------------------------

    def _connected(self, event: ev.Connected, now_ms: int) -> None:
        self._links.connected(event.link_id, now_ms)

    def _disconnected(self, event: ev.Disconnected, now_ms: int) -> None:
        self._links.disconnected(event.link_id, event.error, now_ms)

    def _tick(self, event: ev.Tick, now_ms: int) -> None:
        self._links.on_time(now_ms)
        self._keeper.on_time(now_ms)

    def _request(self, event: ev.Request, now_ms: int) -> None:
        place = event.to
        if isinstance(place, int):
            try:
                place = self._place(place, Role.LOOKUP if event.lookup else Role.DATA)
            except KafkaError as error:
                self._out.add(Done(event.ask_id, None, error))
                return
        limits = event.timeout_ms, event.min_version, event.max_version, event.answered
        self._send(Owner.QUESTION, event.ask_id, event.request, place, now_ms, *limits)

    def _refresh(self, event: ev.Refresh, now_ms: int) -> None:
        self._keeper.wait(event.ask_id, event.topics, event.timeout_ms, now_ms)

    def _refresh_soon(self, event: ev.RefreshSoon, now_ms: int) -> None:
        self._keeper.want()

    def _watch(self, event: ev.Watch, now_ms: int) -> None:
        self._keeper.watch(event.topics)

    HANDLERS: ClassVar[dict[type, Callable[[Any, Any, int], None]]] = {
        ev.Connected: _connected,
        ev.Disconnected: _disconnected,
        ev.Answered: _answered,
        ev.Refused: _refused,
        ev.Tick: _tick,
        ev.Request: _request,
        ev.Refresh: _refresh,
        ev.RefreshSoon: _refresh_soon,
        ev.Watch: _watch,
    }
