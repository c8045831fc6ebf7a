"""The requests of fetch.py, and the first one of a small task: one a leader for all ranges, not a round trip for each.

The latter is a short cut and no more: whatever is not answered here, each range asks for on its own. Nothing is
decoded or accounted for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from struct import Struct
from typing import Any, Protocol

from kohort.client.blocking import BlockingTransport
from kohort.client.config import Config
from kohort.client.types import TopicPartition
from kohort.protocol.errors import KafkaError
from kohort.protocol.messages import FetchRequest
from kohort.protocol.uuids import from_base64, to_base64
from kohort.records.batch import LOG_OVERHEAD
from kohort.records.compression import Buffer
from kohort.spark.cluster import READ_COMMITTED, READ_UNCOMMITTED, Cluster
from kohort.spark.connection import POOL

MOST_BYTES = 1024 * 1024
"""A task that expects more begins to decode while the rest is on its way."""
_BY_NAME, _BY_ID = 12, 13
"""Versions of Fetch. A topic that was created again has another id, which the broker then refuses."""
_LENGTH = Struct(">8xi")
"""Of a batch, without the LOG_OVERHEAD in which it stands."""
_NO_SESSION, _FINAL_EPOCH = 0, -1


class Range(Protocol):
    """What is to be read, as far as this file has to know it."""

    partition: TopicPartition
    topic_id: str
    """In Kafka's base64; "" where it is not known."""
    given: Any
    """Its part of an answer, from its first offset on."""

    @property
    def expected_bytes(self) -> int: ...

    def wanted(self) -> FetchRequest.FetchPartition: ...


def isolation(config: Config) -> int:
    return READ_COMMITTED if config["isolation.level"] == "read_committed" else READ_UNCOMMITTED


def ask(
    transport: BlockingTransport, ranges: Iterable[Range], config: Config, *, rack: str = "", lasting: bool = False
) -> None:
    """Sends the Fetch for some ranges. All of their topics have an id, or none has; no partition twice."""
    topics: dict[str, FetchRequest.FetchTopic] = {}
    size, by_id = 0, False
    for each in ranges:
        wanted, topic = each.wanted(), each.partition.topic
        if topic not in topics:
            topics[topic] = FetchRequest.FetchTopic(topic=topic, partitions=[])
            if each.topic_id:
                by_id, topics[topic].topic_id = True, from_base64(each.topic_id)
        topics[topic].partitions.append(wanted)
        size += wanted.partition_max_bytes
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=config["fetch.max.wait.ms"],
        min_bytes=1,
        max_bytes=max(size, config["fetch.max.bytes"]),
        isolation_level=isolation(config),
        session_id=_NO_SESSION,
        session_epoch=_FINAL_EPOCH,
        topics=list(topics.values()),
        rack_id=rack,
    )
    transport.send(request, _BY_ID if by_id else _BY_NAME, lasting=lasting)


def open_together(ranges: Sequence[Range], cluster: Cluster) -> None:
    """Where all of it is little. Near replicas (`client.rack`) are found one partition at a time."""
    few = sum(each.expected_bytes for each in ranges) <= MOST_BYTES
    if len(ranges) < 2 or not few or cluster.config["client.rack"]:
        return
    under_way: list[tuple[BlockingTransport, list[Range]]] = []
    try:
        for (host, port, _), some in _by_leader(ranges, cluster).items():
            under_way.append((POOL.take(host, port, cluster.config), list(some.values())))
            ask(*under_way[-1], cluster.config, lasting=True)
        for transport, asked in under_way:
            _hand_out(transport.receive(), asked)
    except KafkaError:
        return
    finally:
        for transport, _ in under_way:
            POOL.give_back(transport, cluster.config)


def _by_leader(
    ranges: Iterable[Range], cluster: Cluster
) -> Mapping[tuple[str, int, bool], dict[TopicPartition, Range]]:
    """The first range of every partition."""
    found: dict[tuple[str, int, bool], dict[TopicPartition, Range]] = defaultdict(dict)
    for each in ranges:
        found[*cluster.leader(each.partition), bool(each.topic_id)].setdefault(each.partition, each)
    return found


def _hand_out(response: Any, asked: Iterable[Range]) -> None:
    if response.error_code:
        return
    answers = {
        (name, part.partition_index): part
        for topic in response.responses
        for name in (topic.topic, to_base64(topic.topic_id))
        for part in topic.partitions
    }
    for each in asked:
        names = (each.topic_id, each.partition.topic)
        found = [part for name in names if name and (part := answers.get((name, each.partition.partition)))]
        if found and not found[0].error_code and _has_a_whole_batch(found[0].records or b""):
            each.given = found[0]


def _has_a_whole_batch(records: Buffer) -> bool:
    """Brokers promise that to the first partition of an answer only."""
    return len(records) >= LOG_OVERHEAD and len(records) >= LOG_OVERHEAD + _LENGTH.unpack_from(records)[0]
