"""More attacks of `hostile.py`: requests of as many rows as a broker reads, api by api, sent again and again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hostile_attacks import Answers, Attack, Wire, find_coordinator, lasting, once
from kohort.protocol import messages as m
from kohort.protocol.errors import ErrorCode
from kohort.records.batch import Record, build_batch

ROWS = 100_000
WIDE = 1000
"""Partitions of the topic `wide`."""
MOST = 5_000
BROAD = {"broad1": MOST, "broad2": MOST, "broad3": MOST, "broad4": MOST - 4}
"""Topics and their partitions: together the most elements that kohort reads of a Produce."""
Asked = tuple[Any, int]
"""A request and its version."""


def rows(make: Callable[[], Asked]) -> Attack:
    return lambda address, seconds: once(*make())(address, seconds)


def broad(wire: Wire) -> None:
    """Topics of many partitions; where they are there already, they stay. Kafka makes fewer than 10,000 at a time."""
    kind = m.CreateTopicsRequest
    for name, count in BROAD.items():
        topics = [kind.CreatableTopic(name=name, num_partitions=count, replication_factor=1)]
        wire.call(kind(topics=topics, timeout_ms=60_000), 5)


def produce_to(count: int, data: bytes, transactional_id: str | None = None) -> Any:
    """Records for so many partitions of each of these topics."""
    kind = m.ProduceRequest
    topics = []
    for name, most in BROAD.items():
        rows = [kind.PartitionProduceData(index=index, records=data) for index in range(min(count, most))]
        topics.append(kind.TopicProduceData(name=name, partition_data=rows))
    return kind(acks=-1, timeout_ms=30_000, transactional_id=transactional_id, topic_data=topics)


def produces(count: int, size: int) -> Attack:
    def attack(address: str, seconds: float) -> Answers:
        broad(Wire(address))
        return once(produce_to(count, build_batch([Record(0, 1, None, bytes(size))])), 9)(address, seconds)

    return attack


def transactions(address: str, seconds: float) -> Answers:
    """Records to thousands of partitions in one transaction, and its end, whose markers go to all of them."""
    wire, answers, transactional_id = Wire(address), Answers(), "hostile"
    broad(wire)
    find_coordinator(wire, transactional_id, 1)
    made = wire.call(m.InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000), 5)
    for _ in lasting(seconds):
        if made.error_code:
            answers[ErrorCode(made.error_code).name] += 1
        who = {"producer_id": made.producer_id, "producer_epoch": made.producer_epoch}
        data = build_batch([Record(0, 1, None, b"v")], base_sequence=0, transactional=True, **who)
        answer = wire.call(produce_to(MOST, data, transactional_id), 12)
        answers[f"produced: {ErrorCode(answer.responses[0].partition_responses[0].error_code).name}"] += 1
        ended = wire.call(m.EndTxnRequest(transactional_id=transactional_id, committed=True, **who), 5)
        answers[f"ended: {ErrorCode(ended.error_code).name}"] += 1
        made = wire.call(m.InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000), 5)
    return answers


def epochs() -> Asked:
    kind = m.OffsetForLeaderEpochRequest
    asked = [kind.OffsetForLeaderPartition(partition=index % WIDE, leader_epoch=0) for index in range(ROWS)]
    return kind(topics=[kind.OffsetForLeaderTopic(topic="wide", partitions=asked)]), 4


def deletions() -> Asked:
    kind = m.DeleteRecordsRequest
    asked = [kind.DeleteRecordsPartition(partition_index=index % WIDE, offset=0) for index in range(ROWS)]
    return kind(timeout_ms=1000, topics=[kind.DeleteRecordsTopic(name="wide", partitions=asked)]), 2


def offsets() -> Asked:
    kind = m.OffsetFetchRequest
    topics = [kind.OffsetFetchRequestTopics(name="wide", partition_indexes=[*range(ROWS)])]
    return kind(groups=[kind.OffsetFetchRequestGroup(group_id="g0", topics=topics)]), 8


def deleted_offsets() -> Asked:
    kind = m.OffsetDeleteRequest
    asked = [kind.OffsetDeleteRequestPartition(partition_index=index) for index in range(ROWS)]
    return kind(group_id="g0", topics=[kind.OffsetDeleteRequestTopic(name="wide", partitions=asked)]), 0


def groups() -> Asked:
    return m.DescribeGroupsRequest(groups=[f"g{index}" for index in range(20_000)]), 5


def modern_groups() -> Asked:
    return m.ConsumerGroupDescribeRequest(group_ids=[f"g{index}" for index in range(20_000)]), 0


def leaving() -> Asked:
    kind = m.LeaveGroupRequest
    return kind(group_id="g0", members=[kind.MemberIdentity(member_id=f"m{index}") for index in range(ROWS)]), 5


def joining() -> Asked:
    kind = m.JoinGroupRequest
    protocols = [kind.JoinGroupRequestProtocol(name="range", metadata=bytes(30_000_000))]
    return kind(
        group_id="large", session_timeout_ms=6_000, rebalance_timeout_ms=6_000, protocol_type="x", protocols=protocols
    ), 3  # fmt: skip


def enlisted() -> Asked:
    kind = m.AddPartitionsToTxnRequest
    topics = [kind.AddPartitionsToTxnTopic(name="wide", partitions=[*range(ROWS)])]
    return kind(v3_and_below_transactional_id="tx", v3_and_below_topics=topics), 3


def described_transactions() -> Asked:
    return m.DescribeTransactionsRequest(transactional_ids=[f"t{index}" for index in range(ROWS)]), 0


def producers() -> Asked:
    kind = m.DescribeProducersRequest
    indexes = [index % WIDE for index in range(ROWS)]
    return kind(topics=[kind.TopicRequest(name="wide", partition_indexes=indexes)]), 0


def altered() -> Asked:
    kind = m.IncrementalAlterConfigsRequest
    config = kind.AlterableConfig(name="consumer.session.timeout.ms", config_operation=0, value="46000")
    asked = [
        kind.AlterConfigsResource(resource_type=32, resource_name=f"g{index}", configs=[config])
        for index in range(2_000)
    ]
    return kind(resources=asked), 1


def elected() -> Asked:
    kind = m.ElectLeadersRequest
    asked = [kind.TopicPartitions(topic="wide", partitions=[index % WIDE for index in range(ROWS)])]
    return kind(election_type=0, timeout_ms=1000, topic_partitions=asked), 2


def reassigned() -> Asked:
    kind = m.AlterPartitionReassignmentsRequest
    asked = [kind.ReassignablePartition(partition_index=index % WIDE, replicas=[1]) for index in range(ROWS)]
    return kind(timeout_ms=1000, topics=[kind.ReassignableTopic(name="wide", partitions=asked)]), 1


def created_acls() -> Asked:
    kind = m.CreateAclsRequest
    return kind(
        creations=[
            kind.AclCreation(
                resource_type=2, resource_name=f"a{index}", resource_pattern_type=4, principal="User:x", host="*",
                operation=3, permission_type=3,
            )
            for index in range(9_000)
        ]
    ), 3  # fmt: skip


def deleted_acls() -> Asked:
    kind = m.DeleteAclsRequest
    return kind(
        filters=[
            kind.DeleteAclsFilter(
                resource_type_filter=2, resource_name_filter=f"z{index}", pattern_type_filter=1,
                principal_filter=None, host_filter=None, operation=1, permission_type=1,
            )
            for index in range(9_000)
        ]
    ), 3  # fmt: skip


ROW_ATTACKS: dict[str, Attack] = {
    "Produce to 19,996 partitions": produces(MOST, 10),
    "Produce of 90 MB to 100 partitions": produces(25, 900_000),
    "a transaction over 19,996 partitions": transactions,
    "OffsetForLeaderEpoch of 100,000 partitions": rows(epochs),
    "DeleteRecords of 100,000 partitions": rows(deletions),
    "OffsetFetch of 100,000 partitions": rows(offsets),
    "OffsetDelete of 100,000 partitions": rows(deleted_offsets),
    "DescribeGroups of 20,000": rows(groups),
    "ConsumerGroupDescribe of 20,000": rows(modern_groups),
    "JoinGroup with 30 MB of metadata": rows(joining),
    "LeaveGroup of 100,000 members": rows(leaving),
    "AddPartitionsToTxn of 100,000 partitions": rows(enlisted),
    "DescribeTransactions of 100,000": rows(described_transactions),
    "DescribeProducers of 100,000 partitions": rows(producers),
    "IncrementalAlterConfigs of 2,000 groups": rows(altered),
    "ElectLeaders of 100,000 partitions": rows(elected),
    "AlterPartitionReassignments of 100,000": rows(reassigned),
}
ACL_ATTACKS: dict[str, Attack] = {
    "CreateAcls of 9,000": rows(created_acls),
    "DeleteAcls of 9,000 filters": rows(deleted_acls),
}
"""For a broker with an authorizer."""
