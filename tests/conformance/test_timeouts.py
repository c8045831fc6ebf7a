"""Changes of topics with a timeout that is over when they arrive: the same answers as a real Kafka's, and no effect."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from conformance.test_broker_differential import both, broker, make_topics, plain  # noqa: F401 (fixtures)
from kohort.protocol import messages as m
from kohort.protocol.errors import ErrorCode
from wire import WireClient, batch, produce_request

Both = tuple[WireClient, WireClient]
Make = Callable[[str, int], Any]
NOW = int(time.time() * 1000)
OVER = [0, -1]


def create(topic: str, timeout_ms: int, *, validate_only: bool = False, partitions: int = 1, times: int = 1) -> Any:
    kind = m.CreateTopicsRequest
    row = kind.CreatableTopic(name=f"{topic}-new", num_partitions=partitions, replication_factor=1)
    return kind(topics=[row] * times, timeout_ms=timeout_ms, validate_only=validate_only)


def delete(topic: str, timeout_ms: int) -> Any:
    kind = m.DeleteTopicsRequest
    return kind(topics=[kind.DeleteTopicState(name=topic)], timeout_ms=timeout_ms)


def delete_twice(topic: str, timeout_ms: int) -> Any:
    kind = m.DeleteTopicsRequest
    return kind(topics=[kind.DeleteTopicState(name=topic)] * 2, timeout_ms=timeout_ms)


def grow(topic: str, timeout_ms: int, *, count: int = 3, validate_only: bool = False, times: int = 1) -> Any:
    kind = m.CreatePartitionsRequest
    row = kind.CreatePartitionsTopic(name=topic, count=count, assignments=None)
    return kind(topics=[row] * times, timeout_ms=timeout_ms, validate_only=validate_only)


def reassign(topic: str, timeout_ms: int) -> Any:
    kind = m.AlterPartitionReassignmentsRequest
    row = kind.ReassignableTopic(name=topic, partitions=[kind.ReassignablePartition(partition_index=0, replicas=[1])])
    return kind(topics=[row], timeout_ms=timeout_ms)


def elect(topic: str, timeout_ms: int) -> Any:
    kind = m.ElectLeadersRequest
    return kind(
        election_type=0, topic_partitions=[kind.TopicPartitions(topic=topic, partitions=[0])], timeout_ms=timeout_ms
    )


def delete_records(topic: str, timeout_ms: int) -> Any:
    kind = m.DeleteRecordsRequest
    row = kind.DeleteRecordsPartition(partition_index=0, offset=1)
    return kind(topics=[kind.DeleteRecordsTopic(name=topic, partitions=[row])], timeout_ms=timeout_ms)


def produce(topic: str, timeout_ms: int) -> Any:
    request = produce_request(topic, batch(b"x", timestamp=NOW))
    request.timeout_ms = timeout_ms
    return request


def update_features(topic: str, timeout_ms: int) -> Any:
    return m.UpdateFeaturesRequest(timeout_ms=timeout_ms, feature_updates=[])


def list_reassignments(topic: str, timeout_ms: int) -> Any:
    return m.ListPartitionReassignmentsRequest(timeout_ms=timeout_ms, topics=None)


CASES: dict[str, tuple[Make, int]] = {
    "CreateTopics": (create, 7),
    "CreateTopics v2": (create, 2),
    "CreateTopics, validate only": (lambda t, ms: create(t, ms, validate_only=True), 7),
    "CreateTopics, no partitions": (lambda t, ms: create(t, ms, partitions=0), 7),
    "CreateTopics, twice": (lambda t, ms: create(t, ms, times=2), 7),
    "CreateTopics, none": (lambda t, ms: create(t, ms, times=0), 7),
    "DeleteTopics": (delete, 6),
    "DeleteTopics, unknown": (lambda t, ms: delete(f"{t}-unknown", ms), 6),
    "DeleteTopics, twice": (delete_twice, 6),
    "DeleteTopics, none": (lambda t, ms: m.DeleteTopicsRequest(topics=[], timeout_ms=ms), 6),
    "CreatePartitions": (grow, 3),
    "CreatePartitions, validate only": (lambda t, ms: grow(t, ms, validate_only=True), 3),
    "CreatePartitions, no more": (lambda t, ms: grow(t, ms, count=1), 3),
    "CreatePartitions, unknown": (lambda t, ms: grow(f"{t}-unknown", ms), 3),
    "CreatePartitions, twice": (lambda t, ms: grow(t, ms, times=2), 3),
    "AlterPartitionReassignments": (reassign, 0),
    "ElectLeaders": (elect, 2),
    "DeleteRecords": (delete_records, 2),
    "Produce": (produce, 9),
    "UpdateFeatures": (update_features, 1),
    "ListPartitionReassignments": (list_reassignments, 0),
}


@pytest.mark.parametrize("timeout_ms", OVER)
@pytest.mark.parametrize("name", CASES)
def test_what_is_answered_when_the_time_is_over(both: Both, name: str, timeout_ms: int) -> None:  # noqa: F811
    make, version = CASES[name]
    topic = f"over{timeout_ms}-{name}".replace(" ", "-").replace(",", "")
    make_topics(both, topic)
    for client in both:
        answer = client.call(produce_request(topic, batch(b"a", timestamp=NOW)), 9)
        assert not answer.responses[0].partition_responses[0].error_code
    theirs, ours = (client.call(make(topic, timeout_ms), version) for client in both)
    assert plain(ours) == plain(theirs)
    assert effect(both[1], topic) == effect(both[0], topic)


def effect(client: WireClient, topic: str) -> list[tuple[str, int, int]]:
    kind = m.MetadataRequest
    names = [topic, f"{topic}-new"]
    request = kind(topics=[kind.MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False)
    rows = client.call(request, 9).topics
    return sorted((row.name, ErrorCode(row.error_code), len(row.partitions)) for row in rows)
