"""What a cluster says about itself, and when it is asked again. Sans-IO: the core sends the request.

Metadata is asked for when somebody wants it, when it has grown old, and again while a topic lacks a leader; never more
often than the backoff allows, unless somebody waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from kohort.client.config import Config
from kohort.client.effects import MetadataSnapshot, TopicSnapshot
from kohort.client.errors import KafkaTimeoutError, error_for
from kohort.client.positions import Leader
from kohort.client.timing import Backoff
from kohort.client.types import TopicPartition
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages import MetadataRequest
from kohort.protocol.uuids import ZERO_UUID, to_base64


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
        return MetadataSnapshot(topics, self.covers, self.topic_ids())

    def after(self, old: Metadata) -> Metadata:
        """This answer, without what is older in it than in the last: a broker that lags behind takes nothing back."""
        for name, topic in self.topics.items():
            known = old.topics.get(name)
            if known is None or known.topic_id != topic.topic_id:
                continue
            newest = {partition.partition: partition for partition in known.partitions}
            topic.partitions = [
                newest[p.partition]
                if p.partition in newest and -1 < p.leader_epoch < newest[p.partition].leader_epoch
                else p
                for p in topic.partitions
            ]
        return self


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
        name = topic.name if topic.name is not None else to_base64(topic.topic_id)  # asked for by an id without a topic
        topics[name] = TopicInfo(
            name, bytes(topic.topic_id), topic.is_internal, partitions, ErrorCode.of(topic.error_code)
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


# -- keeping it fresh --------------------------------------------------------------------------------------------------


class Freshness(Enum):
    IDLE = "nothing is asked until it is old or wanted"
    ASKING = "a request is on its way"
    BACKING_OFF = "the last answer was none, or not whole: asked again after a while"


FRESHNESS_MOVES: dict[Freshness, frozenset[Freshness]] = {
    Freshness.IDLE: frozenset({Freshness.ASKING}),
    Freshness.ASKING: frozenset({Freshness.IDLE, Freshness.BACKING_OFF}),
    Freshness.BACKING_OFF: frozenset({Freshness.ASKING}),
}


@dataclass(slots=True)
class Wait:
    """Somebody wants metadata that was asked for after now, of these topics too."""

    ask_id: int
    topics: frozenset[str]
    timeout_ms: int
    deadline_ms: int
    in_flight: bool = False


class MetadataKeeper:
    """`due` says when to send `request`; the answer goes to `received` or `failed`. `finished` holds who was served."""

    def __init__(self, config: Config, uniform: Callable[[], float]) -> None:
        self._config = config
        self._backoff = Backoff(config["retry.backoff.ms"], config["retry.backoff.max.ms"], uniform)
        self.metadata = Metadata()
        self.state = Freshness.IDLE
        self.failure: KafkaError | None = None
        self.finished: list[tuple[int, Exception | None]] = []
        self._watched: frozenset[str] | None = frozenset()
        self._watched_ids: frozenset[bytes] = frozenset()
        self._wanted = False
        self._asked_for: frozenset[str] | None = frozenset()
        self._not_before_ms = 0
        """For whoever waits; everybody else rests until `_rest_until_ms`."""
        self._rest_until_ms = 0
        self._stale_at_ms: int | None = None
        self._waits: list[Wait] = []

    def _transition_to(self, state: Freshness) -> None:
        if state not in FRESHNESS_MOVES[self.state]:
            raise RuntimeError(f"metadata: {self.state.name} -> {state.name}")
        self.state = state

    @property
    def servers(self) -> str:
        return ", ".join(f"{host}:{port}" for host, port in self._config["bootstrap.servers"])

    # -- what is wanted -----------------------------------------------------------------------------------------------

    def watch(self, topics: Iterable[str] | None, ids: frozenset[bytes] = frozenset()) -> None:
        """Topics of interest; None for all. News about topics that were not watched before are fetched at once."""
        wanted = None if topics is None else frozenset(topics)
        if ids - self._watched_ids - set(self.metadata.topic_ids().values()):
            self._wanted = True
        self._watched_ids = ids
        if wanted == self._watched:
            return
        self._watched = wanted
        covers = self.metadata.covers
        if covers is not None and (wanted is None or not wanted <= covers):
            self._wanted = True

    def want(self) -> None:
        self._wanted = True

    def wait(self, ask_id: int, topics: frozenset[str], timeout_ms: int, now_ms: int) -> None:
        """`finished` will have the ask: with None when there is metadata that was asked for after now."""
        self._waits.append(Wait(ask_id, topics, timeout_ms, now_ms + timeout_ms))

    # -- asking -------------------------------------------------------------------------------------------------------

    def due(self, now_ms: int) -> bool:
        at_ms = self._ask_at_ms()
        return at_ms is not None and at_ms <= now_ms

    def _ask_at_ms(self) -> int | None:
        if self.state is Freshness.ASKING:
            return None
        if any(not wait.in_flight for wait in self._waits):
            return self._not_before_ms
        if self._wanted or self.state is Freshness.BACKING_OFF:
            return max(self._not_before_ms, self._rest_until_ms)
        return self._stale_at_ms

    def request(self) -> Any:
        self._transition_to(Freshness.ASKING)
        self._wanted = False
        wanted = self._watched
        for wait in self._waits:
            wait.in_flight = True
            wanted = None if wanted is None else wanted | wait.topics
        self._asked_for = wanted
        entry = MetadataRequest.MetadataRequestTopic
        topics = None if wanted is None else [entry(name=name) for name in sorted(wanted)]
        if topics is not None:
            topics += [entry(name=None, topic_id=one) for one in sorted(self._watched_ids)]
        return MetadataRequest(topics=topics, allow_auto_topic_creation=self._config["allow.auto.create.topics"])

    def received(self, response: Any, now_ms: int) -> Metadata:
        new = parse_metadata(response, self._asked_for).after(self.metadata)
        complete = not any(topic.error.retriable for topic in new.topics.values()) and all(
            partition.leader >= 0 for topic in new.topics.values() for partition in topic.partitions
        )
        new.refused = {
            name: topic.error for name, topic in new.topics.items() if topic.error and not topic.error.retriable
        }
        new.topics = {name: topic for name, topic in new.topics.items() if topic.error is ErrorCode.NONE}
        self.metadata = new
        self.failure = None
        self._serve(None)
        if complete:
            self._backoff.reset()
        self._transition_to(Freshness.IDLE if complete else Freshness.BACKING_OFF)
        self._not_before_ms, self._rest_until_ms = now_ms, now_ms + self._backoff.next_ms()
        self._stale_at_ms = now_ms + self._config["metadata.max.age.ms"]
        return new

    def failed(self, error: KafkaError, now_ms: int) -> bool:
        """Those who wait wait for the next try, unless no try can help. Whether this is the first failure."""
        self._transition_to(Freshness.BACKING_OFF)
        first, self.failure = self.failure is None, error
        self._not_before_ms = now_ms + self._backoff.next_ms()
        if error.code.retriable:
            for wait in self._waits:
                wait.in_flight = False
        else:
            self._serve(error)
        return first

    def _serve(self, error: Exception | None) -> None:
        self.finished += [(wait.ask_id, error) for wait in self._waits if wait.in_flight]
        self._waits = [wait for wait in self._waits if not wait.in_flight]

    # -- time ---------------------------------------------------------------------------------------------------------

    def on_time(self, now_ms: int) -> None:
        for wait in [wait for wait in self._waits if wait.deadline_ms <= now_ms]:
            self._waits.remove(wait)
            why = str(self.failure) if self.failure is not None else "is a broker running there?"
            text = f"no metadata from {self.servers} within {wait.timeout_ms / 1000:g} s: {why}"
            self.finished.append((wait.ask_id, KafkaTimeoutError(text)))

    def next_deadline(self) -> int | None:
        deadlines = [wait.deadline_ms for wait in self._waits]
        if (at_ms := self._ask_at_ms()) is not None:
            deadlines.append(at_ms)
        return min(deadlines, default=None)
