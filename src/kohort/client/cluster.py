"""The brokers of a cluster: metadata kept fresh, one connection per node and role, reconnects with backoff.

Knows nothing of groups or positions; whoever cares about metadata registers with `on_metadata`.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kohort.client.config import Config
from kohort.client.effects import MetadataSnapshot, TopicSnapshot
from kohort.client.errors import KafkaTimeoutError, NotConnectedError, error_for
from kohort.client.positions import Leader
from kohort.client.timing import Backoff
from kohort.client.transport import AsyncTransport
from kohort.client.types import TopicPartition
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages import MetadataRequest
from kohort.protocol.uuids import ZERO_UUID

log = logging.getLogger("kohort.client")

DATA = "data"
COORDINATOR = "coordinator"
BOOTSTRAP = "bootstrap"
LOOKUP = "lookup"
"""Questions that must not wait behind a fetch: a broker answers a connection's requests one after another."""


class Node(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(slots=True)
class PartitionInfo:
    topic: str
    partition: int
    leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    offline_replicas: list[int]
    error: ErrorCode = ErrorCode.NONE


@dataclass(slots=True)
class TopicInfo:
    name: str
    topic_id: bytes
    internal: bool
    partitions: list[PartitionInfo]
    error: ErrorCode = ErrorCode.NONE


@dataclass(slots=True)
class Metadata:
    """One answer of the cluster about itself."""

    cluster_id: str | None = None
    controller_id: int = -1
    nodes: dict[int, Node] = field(default_factory=dict)
    topics: dict[str, TopicInfo] = field(default_factory=dict)
    covers: frozenset[str] | None = frozenset()
    refused: dict[str, ErrorCode] = field(default_factory=dict)
    """Topics that will not be told about: forbidden, or no name for a topic."""

    def leaders(self) -> dict[TopicPartition, Leader]:
        return {
            TopicPartition(topic.name, partition.partition): Leader(partition.leader, partition.leader_epoch)
            for topic in self.topics.values()
            for partition in topic.partitions
        }

    def topic_ids(self) -> dict[str, bytes]:
        return {topic.name: topic.topic_id for topic in self.topics.values() if topic.topic_id != ZERO_UUID}

    def snapshot(self) -> MetadataSnapshot:
        racks = {node.node_id: node.rack for node in self.nodes.values() if node.rack}
        topics = {}
        for topic in self.topics.values():
            by_partition: tuple[frozenset[str], ...] = ()
            if racks:
                by_partition = tuple(
                    frozenset(racks[replica] for replica in partition.replicas if replica in racks)
                    for partition in sorted(topic.partitions, key=lambda p: p.partition)
                )
            topics[topic.name] = TopicSnapshot(len(topic.partitions), by_partition, topic.internal)
        return MetadataSnapshot(topics, self.covers)


class Cluster:
    def __init__(self, config: Config) -> None:
        self.config = config
        self.metadata = Metadata()
        self.on_metadata: list[Callable[[Metadata], None]] = []
        self._loop = asyncio.get_running_loop()
        self._connections: dict[tuple[str, int], AsyncTransport] = {}
        self._opening: dict[tuple[str, int], asyncio.Task[AsyncTransport]] = {}
        self._backoffs: dict[tuple[str, int], tuple[Backoff, float]] = {}
        self._watched: frozenset[str] | None = frozenset()
        self._also: set[str] = set()
        self._wake = asyncio.Event()
        self._refreshed: asyncio.Future[None] | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._failure: KafkaError | None = None
        self._closed = False

    # -- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        if self._keeper is None:
            self._keeper = self._loop.create_task(self._keep_fresh())

    async def close(self) -> None:
        self._closed = True
        tasks = [task for task in (self._keeper, *self._opening.values()) if task is not None]
        for task in tasks:
            task.cancel()
        for connection in list(self._connections.values()):
            connection.close("the client was closed")
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- metadata -----------------------------------------------------------------------------------------------------

    def watch(self, topics: Iterable[str] | None) -> None:
        """Topics of interest; None for all. News about topics that were not watched before are fetched at once."""
        wanted = None if topics is None else frozenset(topics)
        if wanted != self._watched:
            covers = self.metadata.covers
            self._watched = wanted
            if covers is not None and (wanted is None or not wanted <= covers):
                self.refresh_soon()

    def refresh_soon(self) -> None:
        self.start()
        self._wake.set()

    async def refresh(self, timeout_ms: int | None = None) -> Metadata:
        """Metadata that was asked for after this call."""
        self.start()
        if self._refreshed is None or self._refreshed.done():
            self._refreshed = self._loop.create_future()
        self._wake.set()
        patience = self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        try:
            async with asyncio.timeout(patience / 1000):
                await asyncio.shield(self._refreshed)
        except TimeoutError:
            raise KafkaTimeoutError(
                f"no metadata from {self.servers()} within {patience / 1000:g} s: "
                + (str(self._failure) if self._failure is not None else "is a broker running there?")
            ) from None
        return self.metadata

    async def topics(self, names: Iterable[str], timeout_ms: int | None = None) -> dict[str, TopicInfo]:
        """What is known about these topics, asking where it is not; missing ones are left out."""
        names = set(names)
        missing = names - self.metadata.topics.keys()
        if missing and self.metadata.covers is not None:
            self._also |= missing
            try:
                await self.refresh(timeout_ms)
            finally:
                self._also -= missing
        return {name: self.metadata.topics[name] for name in names if name in self.metadata.topics}

    def servers(self) -> str:
        return ", ".join(f"{host}:{port}" for host, port in self.config.bootstrap_servers)

    async def _keep_fresh(self) -> None:
        backoff = self.backoff("retry.backoff")
        while True:
            waiter, self._refreshed = self._refreshed, None
            self._wake.clear()
            try:
                complete = self._accept(await self._fetch_metadata())
                self._failure = None
            except KafkaError as error:
                level = logging.WARNING if self._failure is None else logging.DEBUG
                log.log(level, "no metadata, trying again: %s", error)
                self._failure = error
                self._refresh_failed(waiter, error)
                await asyncio.sleep(backoff.next_ms() / 1000)
                continue
            if waiter is not None and not waiter.done():
                waiter.set_result(None)
            if complete:
                backoff.reset()
            if self._refreshed is None:
                await asyncio.sleep(backoff.next_ms() / 1000)
            if complete:
                await self._until_stale()

    async def _until_stale(self) -> None:
        self.close_idle()
        try:
            async with asyncio.timeout(self.config.metadata_max_age_ms / 1000):
                await self._wake.wait()
        except TimeoutError:
            pass

    def _refresh_failed(self, waiter: asyncio.Future[None] | None, error: KafkaError) -> None:
        """Those who waited wait for the next try, unless no try can help."""
        if waiter is None or waiter.done():
            return
        if not error.code.retriable:
            waiter.set_exception(error)
            waiter.exception()
        elif self._refreshed is None:
            self._refreshed = waiter
        else:
            self._refreshed.add_done_callback(lambda done: waiter.done() or waiter.set_result(None))

    async def _fetch_metadata(self) -> Metadata:
        wanted = None if self._watched is None else self._watched | self._also
        topics = (
            None if wanted is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in sorted(wanted)]
        )
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=self.config.allow_auto_create_topics)
        response = await self.request_any(request, self.config.request_timeout_ms)
        return parse_metadata(response, wanted)

    def _accept(self, new: Metadata) -> bool:
        """Whether every topic that exists has its leaders. A broker that lags behind takes no newer epoch back."""
        for name, topic in new.topics.items():
            old = self.metadata.topics.get(name)
            if old is None or old.topic_id != topic.topic_id:
                continue
            newest = {partition.partition: partition for partition in old.partitions}
            topic.partitions = [
                newest[p.partition]
                if p.partition in newest and -1 < p.leader_epoch < newest[p.partition].leader_epoch
                else p
                for p in topic.partitions
            ]
        complete = not any(topic.error.retriable for topic in new.topics.values()) and all(
            partition.leader >= 0 for topic in new.topics.values() for partition in topic.partitions
        )
        new.refused = {
            name: topic.error for name, topic in new.topics.items() if topic.error and not topic.error.retriable
        }
        new.topics = {name: topic for name, topic in new.topics.items() if topic.error is ErrorCode.NONE}
        self.metadata = new
        for listener in self.on_metadata:
            listener(new)
        return complete

    # -- connections --------------------------------------------------------------------------------------------------

    def backoff(self, prefix: str) -> Backoff:
        return Backoff(self.config[f"{prefix}.ms"], self.config[f"{prefix}.max.ms"], random.random)

    async def connect(self, role: str, node_id: int, host: str, port: int) -> AsyncTransport:
        """The connection of a role to a node, opened if need be, after the backoff of earlier failures."""
        key = (role, node_id)
        found = self._connections.get(key)
        if found is not None and found.closed is None and found.name == f"{host}:{port}":
            return found
        if self._closed:
            raise NotConnectedError("the client is closed")
        if key not in self._opening:
            self._opening[key] = self._loop.create_task(self._open(key, host, port))
            self._opening[key].add_done_callback(lambda task: self._opened(key, task))
        return await asyncio.shield(self._opening[key])

    def _opened(self, key: tuple[str, int], task: asyncio.Task[AsyncTransport]) -> None:
        self._opening.pop(key, None)
        if not task.cancelled():
            task.exception()

    async def _open(self, key: tuple[str, int], host: str, port: int) -> AsyncTransport:
        backoff, not_before = self._backoffs.get(key) or (self.backoff("reconnect.backoff"), 0.0)
        if (wait := not_before - self._loop.time()) > 0:
            await asyncio.sleep(wait)
        try:
            connection = await AsyncTransport.open(host, port, self.config, lambda closed, _: self._lost(key, closed))
        except KafkaError:
            self._backoffs[key] = (backoff, self._loop.time() + backoff.next_ms() / 1000)
            raise
        self._backoffs.pop(key, None)
        if (old := self._connections.get(key)) is not None:
            old.close("replaced")
        self._connections[key] = connection
        return connection

    def _lost(self, key: tuple[str, int], closed: AsyncTransport) -> None:
        if self._connections.get(key) is closed:
            del self._connections[key]
            backoff = self.backoff("reconnect.backoff")
            self._backoffs[key] = (backoff, self._loop.time() + backoff.next_ms() / 1000)

    def disconnect(self, role: str, node_id: int, reason: str) -> None:
        if (connection := self._connections.pop((role, node_id), None)) is not None:
            connection.close(reason)

    def close_idle(self) -> None:
        limit = self._loop.time() - self.config.connections_max_idle_ms / 1000
        for key, connection in list(self._connections.items()):
            if connection.in_flight == 0 and connection.last_used < limit:
                self.disconnect(*key, "idle")

    # -- requests -----------------------------------------------------------------------------------------------------

    async def request(
        self,
        node_id: int,
        request: Any,
        timeout_ms: int | None = None,
        min_version: int = 0,
        max_version: int | None = None,
        role: str = DATA,
    ) -> Any:
        node = self.metadata.nodes.get(node_id)
        if node is None:
            raise NotConnectedError(f"node {node_id} is not in the cluster's metadata")
        connection = await self.connect(role, node_id, node.host, node.port)
        timeout_ms = self.config.request_timeout_ms if timeout_ms is None else timeout_ms
        return await connection.request(request, timeout_ms, min_version, max_version)

    async def request_any(
        self, request: Any, timeout_ms: int, min_version: int = 0, max_version: int | None = None
    ) -> Any:
        """Ask the least loaded node: fewest requests in flight, connected ones first; a bootstrap server at first."""
        connection = await self._least_loaded()
        return await connection.request(request, timeout_ms, min_version, max_version)

    async def _least_loaded(self) -> AsyncTransport:
        open_ones = [
            connection
            for (role, _), connection in self._connections.items()
            if connection.closed is None and role != COORDINATOR
        ]
        if open_ones:
            return min(open_ones, key=lambda connection: connection.in_flight)
        failure: KafkaError = NotConnectedError(f"none of {self.servers()} can be reached")
        candidates = [(DATA, node.node_id, node.host, node.port) for node in self.metadata.nodes.values()]
        random.shuffle(candidates)
        bootstrap = [(BOOTSTRAP, i, host, port) for i, (host, port) in enumerate(self.config.bootstrap_servers)]
        random.shuffle(bootstrap)
        for role, node_id, host, port in (*candidates, *bootstrap):
            try:
                return await self.connect(role, node_id, host, port)
            except KafkaError as error:
                failure = error
        raise failure

    async def controller(self) -> int:
        """A node for administrative requests: any broker forwards them where there is no controller to talk to."""
        if not self.metadata.nodes:
            await self.refresh()
        controller = self.metadata.controller_id
        return controller if controller in self.metadata.nodes else next(iter(self.metadata.nodes))


def parse_metadata(response: Any, covers: frozenset[str] | None) -> Metadata:
    nodes = {b.node_id: Node(b.node_id, b.host, b.port, b.rack) for b in response.brokers}
    topics = {}
    for topic in response.topics:
        partitions = [
            PartitionInfo(
                topic.name,
                partition.partition_index,
                partition.leader_id,
                partition.leader_epoch,
                partition.replica_nodes,
                partition.isr_nodes,
                partition.offline_replicas,
                ErrorCode.of(partition.error_code),
            )
            for partition in sorted(topic.partitions, key=lambda p: p.partition_index)
        ]
        topics[topic.name] = TopicInfo(
            topic.name, bytes(topic.topic_id), topic.is_internal, partitions, ErrorCode.of(topic.error_code)
        )
    return Metadata(response.cluster_id, response.controller_id, nodes, topics, covers)


def leader_nodes(metadata: Metadata, partitions: Iterable[TopicPartition]) -> Mapping[int, list[TopicPartition]]:
    """Partitions grouped by the node that leads them; KafkaError where one has no leader or does not exist."""
    leaders = metadata.leaders()
    grouped: dict[int, list[TopicPartition]] = {}
    for tp in partitions:
        leader = leaders.get(tp)
        if leader is None:
            raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{tp.topic}-{tp.partition} does not exist")
        if leader.node_id not in metadata.nodes:
            raise error_for(ErrorCode.LEADER_NOT_AVAILABLE, f"{tp.topic}-{tp.partition} has no leader at the moment")
        grouped.setdefault(leader.node_id, []).append(tp)
    return grouped
