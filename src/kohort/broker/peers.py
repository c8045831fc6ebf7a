"""Requests of this broker to others of its cluster, without sockets: frames out, answers in, time as an argument.

    peers.ask(node_id, request, version, asker, now_ms)   asker.heard(answer, now_ms) by and by, with None where the
                                                          other cannot be asked, or does not answer in time
    for link in peers.take():       what a shell has to do: connect where there is no `shell` yet, send
        link.take_output()          and close it where link.closed
    peers.received(link, data, now_ms), peers.lost(link, now_ms)

There is one link to a broker, its answers come in the order of the requests. Nothing is sent twice: whoever asks knows
what may be repeated.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kohort.protocol.apis import ApiKey
from kohort.protocol.errors import KafkaError
from kohort.protocol.frames import FrameSplitter, decode_response, encode_request, response_correlation_id
from kohort.protocol.wire import DecodeError

if TYPE_CHECKING:
    from kohort.broker.core import Core

logger = logging.getLogger("kohort.cluster")

REQUEST_TIMEOUT_MS = 10_000
LOOK_EVERY_MS = 200
"""How soon it is seen that a broker which was asked is no longer there."""


class Asker(Protocol):
    def heard(self, answer: Any, now_ms: int) -> None: ...


class _Waiting(NamedTuple):
    correlation_id: int
    response: Any  # its class
    version: int
    asker: Asker
    since_ms: int


class Link:
    """The connection to one broker, from its first request to its end."""

    def __init__(self, node_id: int, host: str, port: int) -> None:
        self.node_id = node_id
        self.host, self.port = host, port
        self.shell: Any = None
        self.closed = False
        self.waiting: deque[_Waiting] = deque()
        self.frames = FrameSplitter()
        self._out: list[Any] = []
        self._last_id = 0

    def put(self, client_id: str, request: Any, version: int, asker: Asker, now_ms: int) -> None:
        self._last_id += 1
        response = ApiKey(request.API_KEY).response
        self.waiting.append(_Waiting(self._last_id, response, version, asker, now_ms))
        self._out += encode_request(self._last_id, client_id, version, request)

    def take_output(self) -> bytes:
        out, self._out = self._out, []
        return b"".join(out)

    def __repr__(self) -> str:
        return f"broker {self.node_id} at {self.host}:{self.port}"


class Peers:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._client_id = f"broker-{core.node_id}"
        self._links: dict[int, Link] = {}
        self._changed: dict[Link, None] = {}
        self._look_due_ms: int | None = None
        self.closed_door: str | None = None
        """Why others cannot be asked, for as long as this broker runs."""

    # ---- out

    def ask(self, node_id: int, request: Any, version: int, asker: Asker, now_ms: int) -> None:
        link = self._link(node_id, now_ms)
        if link is None:
            asker.heard(None, now_ms)
            return
        link.put(self._client_id, request, version, asker, now_ms)
        self._changed[link] = None
        if self._look_due_ms is None:
            self._look_due_ms = now_ms + LOOK_EVERY_MS

    def _link(self, node_id: int, now_ms: int) -> Link | None:
        endpoint = self._core.endpoint(node_id)
        known = self._links.get(node_id)
        if known is not None and not self._is_current(known):
            self.close(known, "it is somewhere else now", now_ms)
            known = None
        if known is None and endpoint is not None:
            known = self._links[node_id] = Link(node_id, endpoint.host, endpoint.port)
        return known

    def _is_current(self, link: Link) -> bool:
        endpoint = self._core.endpoint(link.node_id)
        return endpoint is not None and (endpoint.host, endpoint.port) == (link.host, link.port)

    def take(self) -> list[Link]:
        changed, self._changed = self._changed, {}
        return list(changed)

    # ---- in

    def received(self, link: Link, data: bytes, now_ms: int) -> None:
        try:
            for frame in link.frames.feed(data):
                if link.closed or not link.waiting:
                    return
                waiting = link.waiting.popleft()
                if response_correlation_id(frame) != waiting.correlation_id:
                    link.waiting.appendleft(waiting)
                    raise DecodeError("an answer to another request")
                try:
                    answer = decode_response(frame, waiting.version, waiting.response)
                except Exception:
                    link.waiting.appendleft(waiting)
                    raise
                self._tell(waiting.asker, answer, now_ms)
        except (DecodeError, KafkaError, ValueError, IndexError) as error:
            self.close(link, f"it does not speak as a broker does: {error}", now_ms)

    def lost(self, link: Link, now_ms: int) -> None:
        self.close(link, "it closed the connection", now_ms)

    def close(self, link: Link, why: str, now_ms: int) -> None:
        """Whoever waits is told."""
        if link.closed:
            return
        link.closed = True
        if self._links.get(link.node_id) is link:
            del self._links[link.node_id]
        self._changed[link] = None
        if link.waiting:
            logger.info("%s has not answered %d requests: %s", link, len(link.waiting), why)
        waiting, link.waiting = link.waiting, deque()
        for one in waiting:
            self._tell(one.asker, None, now_ms)

    def _tell(self, asker: Asker, answer: Any, now_ms: int) -> None:
        try:
            asker.heard(answer, now_ms)
        except Exception:
            logger.exception("what another broker answered could not be used")

    def close_all(self, why: str, now_ms: int) -> None:
        for link in list(self._links.values()):
            self.close(link, why, now_ms)

    # ---- time

    def on_time(self, now_ms: int) -> None:
        if self._look_due_ms is None or now_ms < self._look_due_ms:
            return
        for link in list(self._links.values()):
            if link.waiting and now_ms - link.waiting[0].since_ms >= REQUEST_TIMEOUT_MS:
                self.close(link, f"no answer for {REQUEST_TIMEOUT_MS} ms", now_ms)
            elif not self._is_current(link):
                self.close(link, "it is no longer there", now_ms)
        waits = any(link.waiting for link in self._links.values())
        self._look_due_ms = now_ms + LOOK_EVERY_MS if waits else None

    def next_deadline(self) -> int | None:
        return self._look_due_ms
