"""The same requests to a real Apache Kafka and to kohort: the same answers, but for ids, addresses and wording.

Deliberate differences, masked or left out: error messages are our own sentences; a topic made by Metadata is ready at
once; an older message format gets UNSUPPORTED_FOR_MESSAGE_FORMAT (Kafka: INVALID_RECORD), null records get an answer
(Kafka: none).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

import pytest

import kohort
from apache_kafka import ApacheKafka
from conformance.conftest import QUICK
from kohort.protocol import messages as m
from kohort.protocol.uuids import ZERO_UUID
from wire import WireClient, batch, fetch_request, produce_request

NOW = int(time.time() * 1000)
TOPIC, BROKER, GROUP = 2, 4, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
STATIC = 4
MASKED = {
    "topic_id": lambda value: value != ZERO_UUID,
    "cluster_id": bool,
    "controller_id": lambda value: value >= 0,
    "node_id": lambda value: value >= 0,
    "broker_id": lambda value: value >= 0,
    "leader_id": lambda value: value >= 0,
    "host": bool,
    "port": bool,
    "session_id": bool,
    "batch_index_error_message": lambda value: None,
    "replica_nodes": len,
    "isr_nodes": len,
    "log_append_time_ms": lambda value: value >= 0,
    "partition_leader_epoch": lambda value: None,
}


def plain(value: Any) -> Any:
    """A message as comparable data, masked."""
    if isinstance(value, list):
        rows = [plain(item) for item in value]
        return sorted(rows, key=repr) if rows and isinstance(rows[0], dict) else rows
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if hasattr(value, "__slots__") and hasattr(value, "unknown_tags"):
        shown = {
            name: MASKED[name](getattr(value, name)) if name in MASKED else plain(getattr(value, name))
            for name in type(value).__slots__
        }
        if shown.get("error_code"):
            shown.pop("error_message", None)
        return shown
    return value


@pytest.fixture(scope="module")
def broker() -> Iterator[kohort.Broker]:
    with kohort.Broker(config={"offsets.topic.num.partitions": 5, **QUICK}) as running:
        yield running


@pytest.fixture
def both(apache_kafka: ApacheKafka, broker: kohort.Broker) -> Iterator[tuple[WireClient, WireClient]]:
    clients = WireClient(apache_kafka.bootstrap_servers), WireClient(broker.bootstrap_servers)
    for client in clients:
        client.socket.settimeout(120)
    yield clients
    for client in clients:
        client.close()


def same(both: tuple[WireClient, WireClient], request: Any, version: int) -> Any:
    theirs, ours = (client.call(request, version) for client in both)
    assert plain(ours) == plain(theirs)
    return ours


def make_topics(both: tuple[WireClient, WireClient], *names: str, partitions: int = 1, **configs: str) -> None:
    kind = m.CreateTopicsRequest
    rows = [kind.CreatableTopicConfig(name=name.replace("_", "."), value=value) for name, value in configs.items()]
    topics = [
        kind.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=rows) for name in names
    ]
    for client in both:
        answer = client.call(kind(topics=topics, timeout_ms=10_000), 4)
        assert {row.error_code for row in answer.topics} == {0}
        for name in names:
            _wait_for_leader(client, name)


def _wait_for_leader(client: WireClient, name: str) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        kind = m.MetadataRequest
        request = kind(topics=[kind.MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        (topic,) = client.call(request, 9).topics
        led = topic.error_code == 0 and all(row.error_code == 0 for row in topic.partitions)
        if led and list_offsets_error(client, name) == 0:
            return
        time.sleep(0.05)
    raise AssertionError(f"{name} has no leader")


def list_offsets_request(name: str, *timestamps: int, epoch: int = -1, isolation: int = 0) -> Any:
    kind = m.ListOffsetsRequest
    topics = [
        kind.ListOffsetsTopic(
            name=name,
            partitions=[kind.ListOffsetsPartition(partition_index=0, timestamp=stamp, current_leader_epoch=epoch)],
        )
        for stamp in timestamps
    ]
    return kind(replica_id=-1, isolation_level=isolation, topics=topics)


def list_offsets_error(client: WireClient, name: str) -> int:
    return client.call(list_offsets_request(name, -1), 5).topics[0].partitions[0].error_code


def test_creating_topics(both: tuple[WireClient, WireClient]) -> None:
    kind = m.CreateTopicsRequest
    cases: list[dict[str, Any]] = [
        {"name": ""},
        {"name": "."},
        {"name": "a/b"},
        {"name": "x" * 250},
        {"name": "__cluster_metadata"},
        {"name": "d-zero", "num_partitions": 0},
        {"name": "d-negative", "num_partitions": -2},
        {"name": "d-no-replicas", "replication_factor": 0},
        {"name": "d-many-replicas", "replication_factor": 3},
        {"name": "d-config", "configs": [kind.CreatableTopicConfig(name="no.such", value="1")]},
        {"name": "d-value", "configs": [kind.CreatableTopicConfig(name="retention.ms", value="soon")]},
        {"name": "d-items", "configs": [kind.CreatableTopicConfig(name="cleanup.policy", value="delete,delete")]},
        {"name": "d-item", "configs": [kind.CreatableTopicConfig(name="cleanup.policy", value="delete,shred")]},
        {"name": "d-null", "configs": [kind.CreatableTopicConfig(name="retention.ms", value=None)]},
        {"name": "d-too-many", "num_partitions": 10_001},
        {"name": "d-index", "num_partitions": -1, "replication_factor": -1, "assignments": [(1, [1])]},
        {"name": "d-both", "num_partitions": 1, "replication_factor": -1, "assignments": [(0, [1])]},
        {"name": "d-stranger", "num_partitions": -1, "replication_factor": -1, "assignments": [(0, [77])]},
        {"name": "d-empty", "num_partitions": -1, "replication_factor": -1, "assignments": [(0, [])]},
        {"name": "d-defaults", "num_partitions": -1, "replication_factor": -1},
        {"name": "d-fine", "configs": [kind.CreatableTopicConfig(name="retention.ms", value="77")]},
    ]
    for case in cases:
        fields = {"num_partitions": 1, "replication_factor": 1} | case
        fields["assignments"] = [
            kind.CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
            for index, ids in fields.get("assignments", [])
        ]
        request = kind(topics=[kind.CreatableTopic(**fields)], timeout_ms=10_000)
        theirs, ours = (client.call(request, 5).topics[0] for client in both)
        rows = [
            (row.error_code, row.num_partitions, row.replication_factor, row.error_message is None)
            for row in (theirs, ours)
        ]
        assert rows[0] == rows[1], case["name"]
        if case["name"] == "d-fine":
            shown = [{c.name: (c.value, c.config_source) for c in row.configs} for row in (theirs, ours)]
            assert shown[0] == shown[1]
    twice = [kind.CreatableTopic(name="d-twice", num_partitions=1, replication_factor=1)] * 2
    same(both, kind(topics=twice, timeout_ms=1000), 4)
    collision = [kind.CreatableTopic(name="d_fine", num_partitions=1, replication_factor=1)]
    same(both, kind(topics=collision, timeout_ms=10_000), 4)


def test_deleting_and_growing_topics(both: tuple[WireClient, WireClient]) -> None:
    make_topics(both, "grow", partitions=2)
    kind = m.CreatePartitionsRequest
    for name, count in (("grow", 2), ("grow", 1), ("grow", 0), ("grow", -1), ("none", 3), ("grow", 4)):
        topic = kind.CreatePartitionsTopic(name=name, count=count, assignments=None)
        same(both, kind(topics=[topic], timeout_ms=10_000, validate_only=False), 3)
    same(both, m.DeleteTopicsRequest(topic_names=["none", "grow"], timeout_ms=10_000), 5)
    delete = m.DeleteTopicsRequest
    state = delete.DeleteTopicState(name=None, topic_id=b"x" * 16)
    theirs, ours = (client.call(delete(topics=[state], timeout_ms=1000), 6).responses[0] for client in both)
    assert (theirs.error_code, theirs.name) == (ours.error_code, ours.name)


def test_producing(both: tuple[WireClient, WireClient]) -> None:
    make_topics(both, "produce", partitions=2)
    make_topics(both, "compacted", cleanup_policy="compact")
    make_topics(both, "stamped", message_timestamp_type="LogAppendTime")
    cut = batch(b"a", timestamp=NOW)
    flipped = cut[:-1] + b"!"
    first = batch(b"a", b"b", timestamp=NOW, producer_id=100_000, producer_epoch=0, base_sequence=0)
    cases = [
        ("produce", cut),
        ("produce", b""),
        ("produce", cut[:-1]),
        ("produce", flipped),
        ("produce", cut + cut),
        ("produce", batch(b"a", timestamp=NOW, control=True)),
        ("produce", batch(b"x" * 1_100_000, timestamp=NOW)),
        ("produce", batch(b"a", timestamp=NOW + 86_400_000)),
        ("produce", first),
        ("produce", first),
        ("produce", batch(b"c", timestamp=NOW, producer_id=100_000, producer_epoch=0, base_sequence=5)),
        ("produce", batch(b"c", timestamp=NOW, producer_id=100_000, producer_epoch=1, base_sequence=0)),
        ("produce", batch(b"c", timestamp=NOW, producer_id=100_000, producer_epoch=0, base_sequence=2)),
        ("compacted", cut),
        ("stamped", cut),
        ("nowhere", cut),
    ]
    for number, (topic, data) in enumerate(cases):
        theirs, ours = (
            client.call(produce_request(topic, data), 9).responses[0].partition_responses[0] for client in both
        )
        rows = [
            (row.error_code, row.base_offset, row.log_append_time_ms >= 0, len(row.record_errors))
            for row in (theirs, ours)
        ]
        assert rows[0] == rows[1], f"case {number} of {topic}"
    same(both, produce_request("produce", cut, partition=7), 8)
    same(both, produce_request("produce", cut, acks=3), 8)


def test_fetching(both: tuple[WireClient, WireClient]) -> None:
    make_topics(both, "fetch", partitions=3)
    for partition in range(2):
        for number in range(3):
            same(both, produce_request("fetch", batch(b"%d" % number * 300, timestamp=NOW), partition=partition), 9)
    for version in (4, 7, 11, 12):
        same(both, fetch_request("fetch", 0, 0, 0), version)
    same(both, fetch_request("fetch", 4), 11)
    same(both, fetch_request("fetch", 3), 11)
    same(both, fetch_request("fetch", -1), 11)
    same(both, fetch_request("fetch", 0, isolation_level=1), 11)
    same(both, fetch_request("fetch", 0, current_leader_epoch=9), 11)
    same(both, fetch_request("fetch", 0, last_fetched_epoch=0), 12)
    same(both, fetch_request("nowhere", 0), 11)
    same(both, fetch_request(b"y" * 16, 0), 13)
    same(both, fetch_request("fetch", session_id=4711, session_epoch=3), 11)
    same(both, fetch_request("fetch", 0, 0, 0, 0, max_wait_ms=50), 11)


def test_fetch_sessions(both: tuple[WireClient, WireClient]) -> None:
    make_topics(both, "session", partitions=3)
    same(both, produce_request("session", batch(b"a", timestamp=NOW), partition=1), 9)
    ids = [client.call(fetch_request("session", 0, 0, 0, session_epoch=0), 11).session_id for client in both]
    assert all(ids)

    def step(epoch: int, **changes: Any) -> None:
        answers = []
        for client, session_id in zip(both, ids, strict=True):
            request = fetch_request("session", session_id=session_id, session_epoch=epoch)
            for name, value in changes.items():
                setattr(request, name, value)
            answers.append(plain(client.call(request, 11)))
        assert answers[0] == answers[1]

    kind = m.FetchRequest
    moved = kind.FetchPartition(partition=1, fetch_offset=1, partition_max_bytes=1 << 20)
    step(1, topics=[kind.FetchTopic(topic="session", partitions=[moved])])
    same(both, produce_request("session", batch(b"b", timestamp=NOW), partition=2), 9)
    step(2)
    step(3)
    step(3)
    step(4, forgotten_topics_data=[kind.ForgottenTopic(topic="session", partitions=[2])])
    step(5)


def test_offsets(both: tuple[WireClient, WireClient]) -> None:
    make_topics(both, "offsets")
    for stamp in (1000, 3000, 2000):
        same(both, produce_request("offsets", batch(b"a", b"b", timestamp=NOW + stamp)), 9)
    for version in (1, 5, 7, 8):
        for stamp in (-1, -2, NOW, NOW + 1001, NOW + 3001, NOW + 9999):
            same(both, list_offsets_request("offsets", stamp), version)
    for stamp, version in ((-3, 7), (-3, 6), (-4, 8), (-4, 7), (-5, 9), (-5, 8)):
        same(both, list_offsets_request("offsets", stamp), version)
    same(both, list_offsets_request("offsets", -1, isolation=1), 5)
    same(both, list_offsets_request("offsets", -1, epoch=9), 5)
    same(both, list_offsets_request("nowhere", -1), 5)
    kind = m.OffsetForLeaderEpochRequest
    for epoch, current in ((0, -1), (5, -1), (0, 7)):
        row = kind.OffsetForLeaderPartition(partition=0, leader_epoch=epoch, current_leader_epoch=current)
        same(both, kind(replica_id=-2, topics=[kind.OffsetForLeaderTopic(topic="offsets", partitions=[row])]), 4)


def test_deleting_records(both: tuple[WireClient, WireClient]) -> None:
    make_topics(both, "truncate")
    make_topics(both, "truncate-compacted", cleanup_policy="compact")
    for _ in range(5):
        same(both, produce_request("truncate", batch(b"a", timestamp=NOW)), 9)
    kind = m.DeleteRecordsRequest
    for topic, offset in (
        ("truncate", 2),
        ("truncate", 1),
        ("truncate", 9),
        ("truncate", -2),
        ("truncate", -1),
        ("none", 0),
        ("truncate-compacted", 0),
    ):
        row = kind.DeleteRecordsPartition(partition_index=0, offset=offset)
        same(both, kind(topics=[kind.DeleteRecordsTopic(name=topic, partitions=[row])], timeout_ms=10_000), 2)


def test_metadata(both: tuple[WireClient, WireClient]) -> None:
    make_topics(both, "meta", partitions=2)
    kind = m.MetadataRequest
    for version in (1, 4, 8, 9, 12, 13):
        for name in ("meta", "missing", "bad/name", "x" * 250):
            request = kind(topics=[kind.MetadataRequestTopic(name=name)])
            if version >= 4:
                request.allow_auto_topic_creation = False
            elif name == "missing":
                continue
            same(both, request, version)
    request = kind(topics=[kind.MetadataRequestTopic(name="meta")], include_topic_authorized_operations=True)
    same(both, request, 9)
    same(both, kind(topics=[kind.MetadataRequestTopic(name="__cluster_metadata")]), 9)
    unknown = kind(topics=[kind.MetadataRequestTopic(topic_id=b"z" * 16, name=None)], allow_auto_topic_creation=False)
    same(both, unknown, 12)
    same(both, m.DescribeClusterRequest(), 1)
    same(both, m.DescribeClusterRequest(include_cluster_authorized_operations=True), 1)
    same(both, m.DescribeClusterRequest(endpoint_type=2), 1)
    describe = m.DescribeTopicPartitionsRequest
    asked = [describe.TopicRequest(name=name) for name in ("meta", "missing")]
    same(both, describe(topics=asked, response_partition_limit=100), 0)
    same(both, describe(topics=asked, response_partition_limit=1), 0)


def described_configs(client: WireClient, resource_type: int, name: str) -> dict[str, Any]:
    """By name, without what a test's own server was started with."""
    kind = m.DescribeConfigsRequest
    resource = kind.DescribeConfigsResource(resource_type=resource_type, resource_name=name, configuration_keys=None)
    (result,) = client.call(kind(resources=[resource], include_synonyms=True), 4).results
    assert result.error_code == 0
    return {
        row.name: (
            row.value,
            row.config_type,
            row.read_only,
            row.is_sensitive,
            row.config_source,
            [(s.name, s.value, s.source) for s in row.synonyms if s.source != STATIC],
        )
        for row in result.configs
    }


def test_topic_configs(both: tuple[WireClient, WireClient]) -> None:
    make_topics(both, "configs", retention_ms="5000")
    kind = m.DescribeConfigsRequest

    def described() -> None:
        theirs, ours = (described_configs(client, TOPIC, "configs") for client in both)
        assert ours == theirs

    described()
    cases = [
        ("configs", "segment.ms", 0, "9999"),
        ("configs", "no.such", 0, "1"),
        ("configs", "retention.ms", 0, "never"),
        ("configs", "retention.ms", 0, None),
        ("configs", "retention.ms", 1, None),
        ("configs", "cleanup.policy", 2, "compact"),
        ("configs", "cleanup.policy", 3, "delete"),
        ("configs", "segment.ms", 2, "1"),
        ("missing", "segment.ms", 0, "1"),
    ]
    for topic, name, operation, value in cases:
        alter(both, TOPIC, topic, (name, operation, value))
    time.sleep(0.5)
    described()
    for resource_type, name in ((2, "missing"), (2, "bad/name"), (4, "77"), (99, "x"), (GROUP, "")):
        resource = kind.DescribeConfigsResource(
            resource_type=resource_type, resource_name=name, configuration_keys=None
        )
        theirs, ours = (client.call(kind(resources=[resource]), 4).results[0].error_code for client in both)
        assert ours == theirs, (resource_type, name)


def alter(both: tuple[WireClient, WireClient], resource_type: int, name: str, *changes: tuple[str, int, Any]) -> None:
    kind = m.IncrementalAlterConfigsRequest
    configs = [kind.AlterableConfig(name=key, config_operation=op, value=value) for key, op, value in changes]
    resource = kind.AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=configs)
    same(both, kind(resources=[resource]), 1)


def test_broker_configs(both: tuple[WireClient, WireClient]) -> None:
    def compared() -> None:
        theirs, ours = (described_configs(client, BROKER, "1") for client in both)
        started_with = {name for shown in (theirs, ours) for name, row in shown.items() if row[4] == STATIC}
        of_ours = {name for name in ours if name.startswith("kohort.")}
        typed_otherwise = {"advertised.listeners"}  # a list of listeners there, one HOST:PORT here
        doors = {name for name in ours if name.startswith(("ssl.", "sasl."))}  # docs/differences.md
        not_shown = {"allow.everyone.if.no.acl.found", "super.users", "group.consumer.regex.refresh.interval.ms"}
        assert not not_shown & theirs.keys()
        shared = ours.keys() - started_with - of_ours - typed_otherwise - doors - not_shown
        assert {name: ours[name] for name in shared} == {name: theirs.get(name) for name in shared}
        theirs, ours = (described_configs(client, BROKER, "") for client in both)
        assert ours == theirs

    compared()
    for name in ("", "1"):
        alter(both, BROKER, name, ("message.max.bytes", SET, "2000000"))
        alter(both, BROKER, name, ("log.cleanup.policy", APPEND, "compact"))
        alter(both, BROKER, name, ("num.partitions", SET, "3"))
        alter(both, BROKER, name, ("node.id", SET, "3"))
        alter(both, BROKER, name, ("min.insync.replicas", DELETE, None))
    alter(both, BROKER, "1", ("min.insync.replicas", SET, "2"))
    alter(both, BROKER, "", ("min.insync.replicas", SET, "2"))
    time.sleep(0.5)
    compared()
    alter(both, BROKER, "", ("min.insync.replicas", SET, "1"))
    for name in ("", "1"):
        alter(both, BROKER, name, ("message.max.bytes", DELETE, None), ("log.cleanup.policy", DELETE, None))
    time.sleep(0.5)
    compared()


def test_group_configs(both: tuple[WireClient, WireClient]) -> None:
    session, heartbeat = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
    for group in ("diff-group", ""):
        for name, operation, value in (
            (session, SET, "50000"),
            (session, SET, "1"),
            (session, SET, "x"),
            (session, SET, "99999999"),
            (session, SET, None),
            (session, APPEND, "1"),
            (heartbeat, SET, "15001"),
            ("no.such", SET, "1"),
            ("consumer.assignment.interval.ms", SET, "0"),
        ):
            alter(both, GROUP, group, (name, operation, value))
    time.sleep(0.5)
    for group in ("diff-group", "another"):
        theirs, ours = (described_configs(client, GROUP, group) for client in both)
        assert ours == {name: row for name, row in theirs.items() if name.startswith("consumer.")}
    kind = m.ListConfigResourcesRequest
    same(both, kind(resource_types=[GROUP]), 1)
    same(both, kind(resource_types=[BROKER]), 1)
    same(both, kind(resource_types=[99]), 1)
    same(both, kind(), 0)
    make_topics(both, "listed")
    for client in both:
        rows = client.call(kind(resource_types=[TOPIC]), 1).config_resources
        assert ("listed", TOPIC) in [(row.resource_name, row.resource_type) for row in rows]
    alter(both, GROUP, "diff-group", (session, DELETE, None), ("consumer.assignment.interval.ms", DELETE, None))
    time.sleep(0.5)
    same(both, kind(resource_types=[GROUP]), 1)


def test_rows_for_the_same_partition(both: tuple[WireClient, WireClient]) -> None:
    make_topics(both, "twice", partitions=2)
    kind = m.ProduceRequest
    for topics in ([(0, 0)], [(0,), (0,)], [(0, 1, 0, 1)], [(7, 7)]):
        request, values = kind(acks=-1, timeout_ms=10_000), itertools.count()
        for indexes in topics:
            rows = [
                kind.PartitionProduceData(index=index, records=batch(b"%d" % next(values), timestamp=NOW))
                for index in indexes
            ]
            request.topic_data.append(kind.TopicProduceData(name="twice", partition_data=rows))
        same(both, request, 9)
    same(both, fetch_request("twice", 0, 0), 11)


def test_features(both: tuple[WireClient, WireClient]) -> None:
    """What is in effect of Kafka's levels; share and streams groups are not."""
    request = m.ApiVersionsRequest(client_software_name="test", client_software_version="1")
    theirs, ours = (
        {row.name: row.max_version_level for row in client.call(request, 4).finalized_features} for client in both
    )
    not_here = {"share.version", "streams.version"}
    assert ours == {name: level for name, level in theirs.items() if name not in not_here}
    kind = m.UpdateFeaturesRequest
    for feature, level, upgrade_type in (
        ("metadata.version", 30, 1),
        ("metadata.version", 99, 1),
        ("metadata.version", 0, 2),
        ("no.such", 1, 1),
        ("transaction.version", 9, 1),
        ("metadata.version", 30, 7),
    ):
        update = kind.FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=upgrade_type)
        for version in (1, 2):
            same(both, kind(feature_updates=[update], timeout_ms=10_000, validate_only=True), version)


def test_api_versions_lie_within_kafkas(both: tuple[WireClient, WireClient]) -> None:
    request = m.ApiVersionsRequest(client_software_name="test", client_software_version="1")
    theirs, ours = (
        {row.api_key: (row.min_version, row.max_version) for row in client.call(request, 4).api_keys} for client in both
    )
    assert ours == {key: theirs[key] for key in ours}
