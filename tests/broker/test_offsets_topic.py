"""Where `__consumer_offsets` keeps a group: how many partitions there are, and which of them is the group's."""

from pathlib import Path
from typing import Any

import pytest

import kohort
from kohort.broker.groups import GroupService
from kohort.coordinator import records as group_records
from kohort.coordinator.records import OFFSETS_TOPIC
from kohort.protocol import messages
from kohort.protocol.errors import ErrorCode
from kohort.records.batch import iter_batches, read_records
from wire import CoreClient, WireClient, World


def found(made: World) -> CoreClient:
    client = made.connect()
    assert client.call(messages.FindCoordinatorRequest(key="g"), 2).error_code == 0
    return client


def commit(client: CoreClient, group: str, *topics: str) -> None:
    request = messages.OffsetCommitRequest
    row = request.OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
    named = [request.OffsetCommitRequestTopic(name=topic, partitions=[row]) for topic in topics]
    answer = client.call(request(group_id=group, topics=named), 9)
    assert [one.partitions[0].error_code for one in answer.topics] == [0] * len(topics)


def stored(made: World) -> dict[int, list[Any]]:
    """What the partitions hold, decoded; empty ones are left out."""
    held: dict[int, list[Any]] = {}
    for partition in made.core.topics.by_name[OFFSETS_TOPIC].partitions:
        log = partition.log
        if log.end_offset > log.start_offset:
            held[partition.index] = [
                group_records.decode(record.key, record.value)
                for chunk in log.read(log.start_offset, 1 << 20)
                for pos, header in iter_batches(chunk)
                for record in read_records(chunk, pos, header)
            ]
    return held


def test_there_are_fifty_unless_configured() -> None:
    made = World(groups=GroupService)
    found(made)
    assert len(made.core.topics.by_name[OFFSETS_TOPIC].partitions) == 50


def test_all_that_a_group_stores_is_in_one_partition() -> None:
    made = World({"group.initial.rebalance.delay.ms": 0}, groups=GroupService)
    topics = [f"topic-{number}" for number in range(20)]
    for topic in topics:
        made.create_topic(topic)
    client = found(made)
    request = messages.JoinGroupRequest
    protocol = request.JoinGroupRequestProtocol(name="range", metadata=b"\x00\x00\x00\x00\x00\x00")
    client.call(
        request(
            group_id="orders-service",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=[protocol],
        ),
        9,
    )
    commit(client, "orders-service", *topics)
    ((partition, changes),) = stored(made).items()
    assert partition == group_records.partition_for("orders-service", 50)
    assert {change.topic for change in changes if isinstance(change, group_records.OffsetCommit)} == set(topics)
    assert any(isinstance(change, group_records.GroupMetadata) for change in changes)


@pytest.mark.parametrize(("group", "partition"), [("b", 98 % 3), ("c", 99 % 3), ("", 0)])
def test_the_topic_that_is_there_counts_not_the_setting(group: str, partition: int) -> None:
    made = World({"offsets.topic.num.partitions": 2}, groups=GroupService)
    made.create_topic(OFFSETS_TOPIC, 3)
    made.create_topic("orders")
    commit(found(made), group, "orders")
    assert list(stored(made)) == [partition]


def test_each_partition_is_a_directory_of_the_data_directory(tmp_path: Path) -> None:
    with kohort.Broker(data_dir=tmp_path, config={"offsets.topic.num.partitions": 5}) as broker:
        client = WireClient(broker.bootstrap_servers)
        assert client.call(messages.FindCoordinatorRequest(key="g"), 2).error_code == 0
        client.close()
    names = sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(OFFSETS_TOPIC))
    assert names == [f"{OFFSETS_TOPIC}-{number}" for number in range(5)]


def join(group: str, member_id: str = "") -> Any:
    request = messages.JoinGroupRequest
    return request(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[request.JoinGroupRequestProtocol(name="range", metadata=b"\x00\x00\x00\x00\x00\x00")],
    )


def test_a_topic_that_was_deleted_is_made_again_and_begins_with_nothing() -> None:
    made = World({"group.initial.rebalance.delay.ms": 0}, groups=GroupService)
    made.create_topic("orders")
    client = found(made)
    commit(client, "g", "orders")
    waiting = made.connect()
    waiting.send(join("g", client.call(join("g"), 9).member_id), 9)
    made.turn()
    before = made.core.topics.by_name[OFFSETS_TOPIC].topic_id
    request = messages.DeleteTopicsRequest
    client.call(request(topics=[request.DeleteTopicState(name=OFFSETS_TOPIC)], timeout_ms=1_000), 6)
    assert OFFSETS_TOPIC not in made.core.topics.by_name
    assert [answer.error_code for answer in waiting.answers] == [ErrorCode.NOT_COORDINATOR], "who waits is told"
    assert client.call(join("g"), 9).error_code == ErrorCode.NOT_COORDINATOR
    found(made)
    assert made.core.topics.by_name[OFFSETS_TOPIC].topic_id != before
    assert stored(made) == {}
    assert client.call(join("g"), 9).error_code == ErrorCode.MEMBER_ID_REQUIRED
    commit(client, "g", "orders")
