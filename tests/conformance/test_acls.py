"""What somebody without permissions sees of each api: a real Apache Kafka and kohort, answer by answer."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

import kohort
from apache_kafka import ApacheKafka, free_ports
from conformance.test_broker_differential import plain
from kohort.broker.acls import Operation, Resource
from kohort.broker.config_keys import AUTHORIZER
from kohort.protocol import messages as m
from wire import WireClient, batch, fetch_request, produce_request

NOW = int(time.time() * 1000)
LINE = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";'
COMMON = {
    "authorizer.class.name": AUTHORIZER,
    "super.users": "User:ANONYMOUS",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": 2,
}


class Side(NamedTuple):
    root: WireClient
    alice: str

    def as_alice(self) -> WireClient:
        client = WireClient(self.alice)
        client.socket.settimeout(60)
        client.call(m.SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert client.call(m.SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"), 2).error_code == 0
        return client


@pytest.fixture(scope="module")
def sides(jdk: None) -> Iterator[list[Side]]:
    port, controller, client = free_ports(3)
    listeners = f"PLAINTEXT://127.0.0.1:{port},CLIENT://127.0.0.1:{client}"
    names = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,CLIENT:SASL_PLAINTEXT"
    config = COMMON | {
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": listeners,
        "listener.security.protocol.map": names,
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listener.name.client.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.client.plain.sasl.jaas.config": LINE,
    }
    own = COMMON | {
        "listeners": "PLAINTEXT://127.0.0.1:0,CLIENT://127.0.0.1:0",
        "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT",
        "sasl.jaas.config": LINE,
    }
    kafka = ApacheKafka(config)
    kafka.port, kafka.controller_port = port, controller
    with kafka, kohort.Broker(config=own) as broker:
        mine = broker._running.listeners[1].address  # type: ignore[union-attr]
        made = [
            Side(WireClient(kafka.bootstrap_servers), f"127.0.0.1:{client}"),
            Side(WireClient(broker.bootstrap_servers), mine),
        ]
        for side in made:
            prepare(side.root)
        yield made


def prepare(root: WireClient) -> None:
    root.socket.settimeout(60)
    kind = m.CreateTopicsRequest
    topics = [kind.CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ("mine", "secret")]
    root.call(kind(topics=topics, timeout_ms=30_000), 5)
    for name in ("mine", "secret"):
        until(lambda name=name: not root.call(named(name), 9).topics[0].error_code)
        until(lambda name=name: not code_of(root.call(produce_request(name, batch(b"a", timestamp=NOW)), 9)))
    until(lambda: not root.call(m.FindCoordinatorRequest(key="g", key_type=0), 3).error_code)
    until(lambda: not root.call(commit("mine", "secret"), 8).topics[0].partitions[0].error_code)
    allow(root, (Resource.TOPIC, "mine", Operation.READ), (Resource.GROUP, "own", Operation.READ))


def code_of(answer: Any) -> int:
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


def until(done: Any) -> None:
    for _ in range(300):
        if done():
            return
        time.sleep(0.1)
    raise AssertionError("it takes too long")


def allow(root: WireClient, *entries: tuple[Resource, str, Operation]) -> None:
    kind = m.CreateAclsRequest
    creations = [
        kind.AclCreation(
            resource_type=resource, resource_name=name, resource_pattern_type=3, principal="User:alice", host="*",
            operation=operation, permission_type=3,
        )
        for resource, name, operation in entries
    ]  # fmt: skip
    assert not any(row.error_code for row in root.call(kind(creations=creations), 3).results)


def named(*names: str) -> Any:
    topics = [m.MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    return m.MetadataRequest(topics=topics, include_topic_authorized_operations=True)


def commit(*topics: str, group: str = "g") -> Any:
    kind = m.OffsetCommitRequest
    row = kind.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    return kind(group_id=group, topics=[kind.OffsetCommitRequestTopic(name=name, partitions=[row]) for name in topics])


def group_fetch(*names: str | None, group: str = "g") -> Any:
    kind = m.OffsetFetchRequest
    topics = [kind.OffsetFetchRequestTopics(name=name, partition_indexes=[0]) for name in names if name]
    return kind(groups=[kind.OffsetFetchRequestGroup(group_id=group, topics=topics or None)])


def configs(kind: Any, *resources: tuple[int, str], **rows: Any) -> Any:
    make = getattr(kind, next(n for n in ("DescribeConfigsResource", "AlterConfigsResource") if hasattr(kind, n)))
    return kind(resources=[make(resource_type=type_, resource_name=name, **rows) for type_, name in resources])


def by_partition(kind: Any, topic: str, partition: str, names: tuple[str, ...], index: str, **more: Any) -> Any:
    make, row = getattr(kind, topic), getattr(kind, partition)
    return [
        make(**{"topic" if hasattr(make(), "topic") else "name": n}, partitions=[row(**{index: 0}, **more)])
        for n in names
    ]


BOTH = ("mine", "secret")
BROKERS_AND_ALL = ((2, "secret"), (4, "1"), (32, "g"))
LISTED = m.ListOffsetsRequest
RECORDS = m.DeleteRecordsRequest
GROW = m.CreatePartitionsRequest
EPOCHS = m.OffsetForLeaderEpochRequest
PRODUCERS = m.DescribeProducersRequest
CREATE = m.CreateTopicsRequest
OFFSETS = m.OffsetDeleteRequest
ACL_FILTER = {
    "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1, "principal_filter": None,
    "host_filter": None, "operation": 1, "permission_type": 1,
}  # fmt: skip

REQUESTS: dict[str, tuple[Any, int]] = {
    "Produce": (produce_request("secret", batch(b"b", timestamp=NOW)), 9),
    "Produce where only reading is allowed": (produce_request("mine", batch(b"b", timestamp=NOW)), 9),
    "Fetch": (fetch_request("secret", 0), 12),
    "ListOffsets": (
        LISTED(
            topics=by_partition(
                LISTED, "ListOffsetsTopic", "ListOffsetsPartition", BOTH, "partition_index", timestamp=-1
            )
        ),
        6,
    ),
    "Metadata": (named("mine", "secret", "nowhere"), 9),
    "Metadata of all": (m.MetadataRequest(topics=None), 9),
    "OffsetCommit": (commit("mine"), 8),
    "OffsetCommit of a group of one's own": (commit("mine", "secret", group="own"), 8),
    "OffsetFetch": (group_fetch("mine", "secret"), 8),
    "OffsetFetch of a group of one's own": (group_fetch("mine", "secret", group="own"), 8),
    "OffsetFetch of all": (group_fetch(None, group="own"), 8),
    "FindCoordinator 3": (m.FindCoordinatorRequest(key="g", key_type=0), 3),
    "FindCoordinator 4": (m.FindCoordinatorRequest(coordinator_keys=["g"], key_type=0), 4),
    "FindCoordinator of a transaction": (m.FindCoordinatorRequest(coordinator_keys=["t"], key_type=1), 4),
    "JoinGroup": (m.JoinGroupRequest(group_id="g", session_timeout_ms=10_000, protocol_type="consumer"), 5),
    "SyncGroup": (m.SyncGroupRequest(group_id="g"), 3),
    "Heartbeat": (m.HeartbeatRequest(group_id="g"), 3),
    "LeaveGroup": (m.LeaveGroupRequest(group_id="g"), 2),
    "DescribeGroups": (m.DescribeGroupsRequest(groups=["g"]), 5),
    "ListGroups": (m.ListGroupsRequest(), 4),
    "DeleteGroups": (m.DeleteGroupsRequest(groups_names=["g"]), 2),
    "OffsetDelete": (
        OFFSETS(
            group_id="g",
            topics=by_partition(
                OFFSETS, "OffsetDeleteRequestTopic", "OffsetDeleteRequestPartition", BOTH, "partition_index"
            ),
        ),
        0,
    ),
    "CreateTopics": (
        CREATE(topics=[CREATE.CreatableTopic(name="fresh", num_partitions=1, replication_factor=1)], timeout_ms=9000),
        5,
    ),
    "DeleteTopics": (m.DeleteTopicsRequest(topic_names=["mine", "secret", "nowhere"], timeout_ms=9000), 5),
    "DeleteRecords": (
        RECORDS(
            topics=by_partition(
                RECORDS, "DeleteRecordsTopic", "DeleteRecordsPartition", BOTH, "partition_index", offset=0
            ),
            timeout_ms=9000,
        ),
        2,
    ),
    "CreatePartitions": (
        GROW(topics=[GROW.CreatePartitionsTopic(name="secret", count=3, assignments=None)], timeout_ms=9000),
        3,
    ),
    "OffsetForLeaderEpoch": (
        EPOCHS(
            replica_id=-1,
            topics=by_partition(
                EPOCHS,
                "OffsetForLeaderTopic",
                "OffsetForLeaderPartition",
                BOTH,
                "partition",
                current_leader_epoch=-1,
                leader_epoch=0,
            ),
        ),
        3,
    ),
    "DescribeConfigs": (configs(m.DescribeConfigsRequest, *BROKERS_AND_ALL, configuration_keys=[]), 4),
    "AlterConfigs": (configs(m.AlterConfigsRequest, *BROKERS_AND_ALL), 2),
    "IncrementalAlterConfigs": (configs(m.IncrementalAlterConfigsRequest, *BROKERS_AND_ALL), 1),
    "DescribeLogDirs": (m.DescribeLogDirsRequest(topics=None), 4),
    "InitProducerId": (m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4),
    "InitProducerId of a transaction": (m.InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1000), 4),
    "DescribeAcls": (m.DescribeAclsRequest(**ACL_FILTER), 3),
    "CreateAcls": (
        m.CreateAclsRequest(
            creations=[
                m.CreateAclsRequest.AclCreation(
                    resource_type=2,
                    resource_name="mine",
                    resource_pattern_type=3,
                    principal="User:alice",
                    host="*",
                    operation=2,
                    permission_type=3,
                )
            ]
        ),
        3,
    ),
    "DeleteAcls": (m.DeleteAclsRequest(filters=[m.DeleteAclsRequest.DeleteAclsFilter(**ACL_FILTER)]), 3),
    "DescribeCluster": (m.DescribeClusterRequest(include_cluster_authorized_operations=True), 0),
    "DescribeProducers": (
        PRODUCERS(topics=[PRODUCERS.TopicRequest(name=name, partition_indexes=[0]) for name in BOTH]),
        0,
    ),
    "DescribeTransactions": (m.DescribeTransactionsRequest(transactional_ids=["t"]), 0),
    "ListTransactions": (m.ListTransactionsRequest(), 0),
    "ListConfigResources": (m.ListConfigResourcesRequest(), 1),
    "DescribeTopicPartitions": (
        m.DescribeTopicPartitionsRequest(
            topics=[m.DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in (*BOTH, "nowhere")]
        ),
        0,
    ),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_the_same_answer_to_somebody_without_permission(sides: list[Side], name: str) -> None:
    request, version = REQUESTS[name]
    answers = []
    for side in sides:
        client = side.as_alice()
        answers.append(plain(client.call(request, version)))
        client.close()
    theirs, ours = answers
    assert ours == theirs
