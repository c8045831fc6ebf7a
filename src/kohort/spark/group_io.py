"""The sockets under a query's membership: requests to the coordinator and to anyone, answers and failures back.

One thread waits here for answers, wake-ups and the time. Requests to anyone (who coordinates, metadata) run on
an errand thread, so that a slow broker never delays a heartbeat. Knows requests and tokens, not what they mean.
"""

from __future__ import annotations

import contextlib
import select
import socket
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from kohort.client.blocking import BlockingTransport, has_input
from kohort.client.config import Config
from kohort.client.effects import Destination, MetadataSnapshot, Send, TopicSnapshot, UseCoordinator
from kohort.client.errors import KafkaTimeoutError, NotConnectedError
from kohort.protocol.errors import KafkaError
from kohort.protocol.messages import MetadataRequest
from kohort.spark.cluster import Cluster
from kohort.spark.connection import Pool

MAX_METADATA_VERSION = 12
LOST = (NotConnectedError, KafkaTimeoutError)


@dataclass(frozen=True, slots=True)
class Answer:
    token: int
    response: Any


@dataclass(frozen=True, slots=True)
class Failure:
    """No answer. `error` where the broker cannot take the request at all."""

    token: int
    reason: str
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class Metadata:
    """None: it could not be had."""

    snapshot: MetadataSnapshot | None


Event = Answer | Failure | Metadata | Callable[[], None]


@dataclass(slots=True)
class _Flight:
    token: int
    deadline_ms: int


class _Line:
    """A connection to the coordinator with what was sent on it and is not answered yet."""

    def __init__(self, connection: BlockingTransport) -> None:
        self.connection = connection
        self.flights: deque[_Flight] = deque()

    def send(self, effect: Send, now_ms: int) -> None:
        self.connection.send_as(effect.token, effect.request, effect.min_version, effect.max_version)
        self.flights.append(_Flight(effect.token, now_ms + effect.timeout_ms))

    def receive(self) -> list[Event]:
        answers = self.connection.take_answers()
        for _ in answers:
            self.flights.popleft()
        return [Answer(token, response) for token, response in answers]


class GroupIO:
    def __init__(self, config: Config) -> None:
        self._config = config
        self._cluster = Cluster(config, Pool())
        self._errands = ThreadPoolExecutor(1, "kohort-errands")
        self._coordinator: UseCoordinator | None = None
        self._lines: dict[Destination, _Line] = {}
        self._inbox: deque[Event] = deque()
        self._waker, self._woken = socket.socketpair()
        self._waker.setblocking(False)
        self._closed = False

    # -- from any thread -----------------------------------------------------------------------------------------------

    def post(self, event: Event) -> None:
        self._inbox.append(event)
        self.wake()

    def wake(self) -> None:
        with contextlib.suppress(OSError):
            self._waker.send(b"\0")

    # -- the member's thread -------------------------------------------------------------------------------------------

    def use_coordinator(self, node: UseCoordinator) -> None:
        self.drop_coordinator()
        self._coordinator = node

    def drop_coordinator(self) -> None:
        for line in self._lines.values():
            line.connection.close()
        self._lines.clear()
        self._coordinator = None

    def send(self, effect: Send, now_ms: int) -> None:
        """Failures come back as events, like answers."""
        if effect.to is Destination.LEAST_LOADED:
            self._errand(lambda: self._ask_anyone(effect))
            return
        try:
            self._line(effect.to).send(effect, now_ms)
        except LOST as error:
            self._break(effect.to, str(error), effect.token)
        except KafkaError as error:
            self._inbox.append(Failure(effect.token, str(error), error))

    def ask_metadata(self, topics: frozenset[str] | None) -> None:
        self._errand(lambda: self._ask_metadata(topics))

    def wait(self, seconds: float, now_ms: int) -> list[Event]:
        """Events, as soon as there are any; none when the time is up."""
        if not self._inbox:
            self._listen(max(seconds, 0.0))
        self._expire(now_ms)
        events = list(self._inbox)
        self._inbox.clear()
        return events

    def close(self) -> None:
        self._closed = True
        self.drop_coordinator()
        self._errands.shutdown(wait=False, cancel_futures=True)
        self._waker.close()
        self._woken.close()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _line(self, to: Destination) -> _Line:
        if to not in self._lines:
            if self._coordinator is None:
                raise NotConnectedError("the coordinator is not known")
            self._lines[to] = _Line(BlockingTransport(self._coordinator.host, self._coordinator.port, self._config))
        return self._lines[to]

    def _break(self, to: Destination, reason: str, *tokens: int) -> None:
        line = self._lines.pop(to, None)
        waiting = [flight.token for flight in line.flights] if line else []
        if line:
            line.connection.close()
        self._inbox.extend(Failure(token, reason) for token in [*waiting, *tokens])

    def _listen(self, seconds: float) -> None:
        by_socket = {line.connection.socket: to for to, line in self._lines.items()}
        readable, _, _ = select.select([self._woken, *by_socket], [], [], seconds)
        for sock in readable:
            if sock is self._woken:
                self._woken.recv(4096)
            else:
                self._take_answers(by_socket[sock])

    def _take_answers(self, to: Destination) -> None:
        line = self._lines.get(to)
        while line is not None:
            if not line.flights:
                self._break(to, "the coordinator closed the connection")
                return
            try:
                self._inbox.extend(line.receive())
            except KafkaError as error:
                self._break(to, str(error))
                return
            if not has_input(line.connection.socket):
                return

    def _expire(self, now_ms: int) -> None:
        for to, line in list(self._lines.items()):
            if line.flights and line.flights[0].deadline_ms <= now_ms:
                self._break(to, "the coordinator did not answer in time")

    def _errand(self, work: Callable[[], Event]) -> None:
        def run() -> None:
            event = work()
            if not self._closed:
                self.post(event)

        with contextlib.suppress(RuntimeError):
            self._errands.submit(run)

    def _ask_anyone(self, effect: Send) -> Event:
        try:
            return Answer(effect.token, self._cluster.ask_anyone(effect.request, effect.max_version))
        except LOST as error:
            return Failure(effect.token, str(error))
        except KafkaError as error:
            return Failure(effect.token, str(error), error)

    def _ask_metadata(self, topics: frozenset[str] | None) -> Event:
        wanted = (
            None if topics is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in sorted(topics)]
        )
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        try:
            response = self._cluster.ask_anyone(request, MAX_METADATA_VERSION)
        except KafkaError:
            return Metadata(None)
        return Metadata(MetadataSnapshot(_topics(response), topics))


def _topics(response: Any) -> dict[str, TopicSnapshot]:
    racks = {node.node_id: node.rack for node in response.brokers if node.rack}
    return {
        topic.name: TopicSnapshot(
            len(topic.partitions),
            tuple(
                frozenset(racks[node] for node in partition.replica_nodes if node in racks)
                for partition in sorted(topic.partitions, key=lambda partition: partition.partition_index)
            )
            if racks
            else (),
            bool(topic.is_internal),
        )
        for topic in response.topics
        if topic.error_code == 0
    }
