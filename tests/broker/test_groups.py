"""The coordinator in the broker: one batch a turn, replies after the log, loading, FindCoordinator, events."""

import json
from typing import Any

import pytest

from kohort.broker.groups import GroupService
from kohort.coordinator import records as group_records
from kohort.coordinator.events import EVENTS_TOPIC
from kohort.coordinator.records import OFFSETS_TOPIC
from kohort.protocol import messages
from kohort.protocol.errors import ErrorCode
from kohort.records.batch import Record, build_batch, iter_batches, read_records
from kohort.storage.store import MemoryStore
from wire import CoreClient, World

CONFIG = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 2}


def world(store: MemoryStore | None = None, find: bool = True, **config: Any) -> World:
    made = World(CONFIG | {name.replace("_", "."): value for name, value in config.items()}, store, GroupService)
    if find:
        made.connect().call(messages.FindCoordinatorRequest(key="g"), 2)
    return made


def loaded(made: World) -> World:
    while made.groups.next_deadline() == made.now_ms:
        made.advance(0)
    return made


def commit(group: str, offset: int, topic: str = "orders", partition: int = 0, metadata: str = "") -> Any:
    request = messages.OffsetCommitRequest
    row = request.OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata=metadata
    )
    return request(group_id=group, topics=[request.OffsetCommitRequestTopic(name=topic, partitions=[row])])


def fetched(client: CoreClient, group: str, topic: str = "orders", partition: int = 0) -> int:
    request = messages.OffsetFetchRequest
    asked = request.OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])
    answer = client.call(request(groups=[request.OffsetFetchRequestGroup(group_id=group, topics=[asked])]), 9)
    return answer.groups[0].topics[0].partitions[0].committed_offset


def join(group: str, member_id: str = "") -> Any:
    request = messages.JoinGroupRequest
    return request(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=30_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[request.JoinGroupRequestProtocol(name="range", metadata=b"\x00\x00\x00\x00\x00\x00")],
    )


def stable_member(made: World, group: str, version: int = 3) -> tuple[CoreClient, str]:
    client = made.connect()
    client.send(join(group), version)
    made.turn()
    made.advance(0)
    member_id = client.answers[-1].member_id
    sync = messages.SyncGroupRequest(group_id=group, generation_id=1, member_id=member_id)
    assert client.call(sync, 3).error_code == 0
    return client, member_id


def log_batches(made: World, partition: int) -> list[list[Record]]:
    log = made.core.topics.by_name[OFFSETS_TOPIC].partitions[partition].log
    if log.end_offset == log.start_offset:
        return []
    return [
        read_records(chunk, pos, header)
        for chunk in log.read(log.start_offset, 1 << 24)
        for pos, header in iter_batches(chunk)
    ]


# ---- FindCoordinator


@pytest.mark.parametrize("version", range(7))
def test_find_coordinator_makes_the_offsets_topic(version: int) -> None:
    made = world(find=False)
    request = messages.FindCoordinatorRequest
    asked = request(key="g") if version < 4 else request(coordinator_keys=["g", "h", ""])
    answer = made.connect().call(asked, version)
    rows = [answer] if version < 4 else answer.coordinators
    assert [(row.error_code, row.node_id, row.host, row.port) for row in rows] == [(0, 1, "broker", 9092)] * len(rows)
    topic = made.core.topics.by_name[OFFSETS_TOPIC]
    assert len(topic.partitions) == 2
    assert topic.overrides["cleanup.policy"] == "compact"


@pytest.mark.parametrize("version", [1, 4, 6])
@pytest.mark.parametrize(
    ("key_type", "error"), [(1, 0), (2, ErrorCode.INVALID_REQUEST), (9, ErrorCode.INVALID_REQUEST)]
)
def test_find_other_coordinators(version: int, key_type: int, error: int) -> None:
    made = world(find=False)
    request = messages.FindCoordinatorRequest
    asked = request(key="t", key_type=key_type) if version < 4 else request(coordinator_keys=["t"], key_type=key_type)
    answer = made.connect().call(asked, version)
    row = answer if version < 4 else answer.coordinators[0]
    assert row.error_code == error
    assert (row.node_id, row.host, row.port) == ((1, "broker", 9092) if not error else (-1, "", -1))
    assert OFFSETS_TOPIC not in made.core.topics.by_name


def test_an_offsets_topic_that_somebody_else_made_is_used() -> None:
    made = world(find=False)
    made.create_topic(OFFSETS_TOPIC, 3)
    client = made.connect()
    assert client.call(messages.FindCoordinatorRequest(key="g"), 2).error_code == 0
    assert client.call(join("g"), 9).error_code == ErrorCode.MEMBER_ID_REQUIRED


def test_a_group_is_nowhere_before_its_topic_is_made() -> None:
    made = world(find=False)
    made.create_topic("orders")
    client = made.connect()
    assert client.call(join("g"), 3).error_code == ErrorCode.NOT_COORDINATOR
    answer = client.call(commit("g", 1), 9)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR


# ---- turns


def test_what_comes_in_one_turn_is_one_batch_per_partition() -> None:
    made = world()
    made.create_topic("orders", 4)
    clients = [made.connect() for _ in range(3)]
    groups = ["a", "c", "b"]  # 97 and 99 are odd, 98 is even
    for client, group in zip(clients, groups, strict=True):
        for offset in (1, 2):
            client.send(commit(group, offset), 9)
    assert all(not client.answers for client in clients)
    made.turn()
    assert [len(client.answers) for client in clients] == [2, 2, 2]
    assert [len(records) for records in log_batches(made, 0)] == [2]
    assert [len(records) for records in log_batches(made, 1)] == [4]
    assert fetched(clients[0], "a") == 2


def test_a_fetch_after_a_commit_in_the_same_turn_sees_it() -> None:
    made = world()
    made.create_topic("orders")
    client = made.connect()
    client.send(commit("g", 41), 9)
    client.send(commit("g", 42), 9)
    request = messages.OffsetFetchRequest
    asked = request.OffsetFetchRequestTopic(name="orders", partition_indexes=[0])
    client.send(request(group_id="g", topics=[asked]), 7)
    made.turn()
    assert len(client.answers) == 3
    assert client.answers[2].topics[0].partitions[0].committed_offset == 42


def test_a_group_too_large_for_a_batch_is_refused_and_others_are_not() -> None:
    made = world(message_max_bytes=2_000)
    made.create_topic("orders", 4)
    client, member_id = stable_member(made, "a")
    client.send(join("a", member_id), 3)
    made.turn()
    request = messages.SyncGroupRequest
    large = request.SyncGroupRequestAssignment(member_id=member_id, assignment=b"x" * 5_000)
    client.send(request(group_id="a", generation_id=2, member_id=member_id, assignments=[large]), 3)
    other = made.connect()
    other.send(commit("c", 7), 9)
    made.turn()
    assert client.answers[-1].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert fetched(other, "c") == 7


def test_many_commits_of_a_turn_are_divided_where_one_batch_would_be_too_large() -> None:
    made = world(message_max_bytes=1_000)
    made.create_topic("orders", 4)
    client = made.connect()
    for offset in range(100):
        client.send(commit("a", offset, metadata="m" * 20), 9)
    made.turn()
    assert len(client.answers) == 100
    assert all(answer.topics[0].partitions[0].error_code == 0 for answer in client.answers)
    assert len(log_batches(made, 1)) > 5
    assert fetched(client, "a") == 99


def test_records_are_compressed_where_configured() -> None:
    made = world(offsets_topic_compression_codec=1)
    made.create_topic("orders")
    client = made.connect()
    client.call(commit("g", 5), 9)
    log = made.core.topics.by_name[OFFSETS_TOPIC].partitions[1].log
    (chunk,) = log.read(0, 1 << 20)
    assert next(iter_batches(chunk))[1].compression == 1
    assert fetched(loaded(World(CONFIG, made.store, GroupService)).connect(), "g") == 5


# ---- loading


def test_a_restart_loads_groups_and_offsets() -> None:
    made = world()
    made.create_topic("orders")
    client, member_id = stable_member(made, "g")
    heartbeat = messages.HeartbeatRequest(group_id="g", generation_id=1, member_id=member_id)
    client.call(commit("h", 9), 9)
    again = World(CONFIG, made.store, GroupService)
    client = again.connect()
    assert client.call(messages.ListGroupsRequest(), 5).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert client.call(heartbeat, 4).error_code == 0
    loaded(again)
    assert client.call(heartbeat, 4).error_code == 0
    assert again.groups.coordinator.group("g").state.value == "Stable"
    assert fetched(client, "h") == 9
    again.advance(10_000)
    assert client.call(heartbeat, 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_loading_takes_slices_and_others_are_served_meanwhile() -> None:
    made = world()
    made.create_topic("orders", 4)
    partition = made.core.topics.by_name[OFFSETS_TOPIC].partitions[1]
    for base in range(0, 20_000, 500):
        changes = [
            group_records.OffsetCommit(
                f"a{i % 700}", "orders", i % 4, group_records.OffsetAndMetadata(i, -1, "", 1, -1, b"\x01" * 16)
            )
            for i in range(base, base + 500)
        ]
        pairs = [group_records.encode(change) for change in changes]
        data = build_batch([Record(i, 1_000, key, value) for i, (key, value) in enumerate(pairs)])
        partition.log.append(data, leader_epoch=0, now_ms=1_000)
    again = World(CONFIG, made.store, GroupService)
    client, slices = again.connect(), 0
    while again.groups.next_deadline() == again.now_ms:
        assert client.call(messages.ApiVersionsRequest(), 0).error_code == 0
        again.advance(0)
        slices += 1
    assert slices > 1
    assert len(again.groups.coordinator.groups) == 700
    assert again.groups.coordinator.group("a0").offsets["orders"][0].committed_offset % 700 == 0


def test_records_of_others_and_transactions_in_the_log() -> None:
    """What a real Kafka may have written: KIP-848 records, transactional commits with their markers, a plain one."""
    made = world()
    made.create_topic("orders", 4)
    log = made.core.topics.by_name[OFFSETS_TOPIC].partitions[1].log

    def append(*changes: Any, **options: Any) -> None:
        pairs = [
            group_records.encode(change) if not isinstance(change, tuple) or len(change) != 2 else change
            for change in changes
        ]
        records = [Record(i, 1_000, key, value) for i, (key, value) in enumerate(pairs)]
        log.append(build_batch(records, **options), leader_epoch=0, now_ms=1_000)

    def offset(partition: int, committed: int) -> Any:
        value = group_records.OffsetAndMetadata(committed, -1, "", 1, -1, b"\x00" * 16)
        return group_records.OffsetCommit("a", "orders", partition, value)

    def marker(producer_id: int, commit_it: bool) -> None:
        key = b"\x00\x00" + (b"\x00\x01" if commit_it else b"\x00\x00")
        data = build_batch(
            [Record(0, 1_000, key, b"\x00" * 6)],
            producer_id=producer_id,
            producer_epoch=0,
            transactional=True,
            control=True,
        )
        log.append(data, leader_epoch=0, now_ms=1_000)

    append((b"\x00\x0b\x00\x01a", b"\x00\x00\x00\x00\x00\x01"), offset(0, 1))
    append(offset(0, 10), offset(1, 11), producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    append(offset(2, 12), producer_id=6, producer_epoch=0, base_sequence=0, transactional=True)
    append(offset(3, 13), producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    append(offset(1, 99))
    marker(5, True)
    marker(6, False)
    again = loaded(World(CONFIG, made.store, GroupService))
    client = again.connect()
    # Committed by the transaction; a later plain commit wins; aborted; still open.
    assert [fetched(client, "a", partition=p) for p in range(4)] == [10, 99, -1, -1]
    request = messages.OffsetFetchRequest
    asked = request.OffsetFetchRequestTopics(name="orders", partition_indexes=[0, 3])
    answer = client.call(
        request(groups=[request.OffsetFetchRequestGroup(group_id="a", topics=[asked])], require_stable=True), 9
    )
    errors = [row.error_code for row in answer.groups[0].topics[0].partitions]
    assert errors == [0, ErrorCode.UNSTABLE_OFFSET_COMMIT]
    assert again.groups.coordinator.runtime.shards[1].state.skipped == {"key type 11, of share or streams groups": 1}


# ---- topics


def test_a_deleted_topic_loses_its_offsets() -> None:
    made = world()
    made.create_topic("orders")
    made.create_topic("clicks")
    client = made.connect()
    client.call(commit("g", 5), 9)
    client.call(commit("g", 6, "clicks"), 9)
    request = messages.DeleteTopicsRequest
    client.call(request(topics=[request.DeleteTopicState(name="orders")], timeout_ms=1_000), 6)
    made.create_topic("orders")
    assert (fetched(client, "g"), fetched(client, "g", "clicks")) == (-1, 6)


def test_commits_to_partitions_that_a_topic_has_grown() -> None:
    made = world()
    made.create_topic("orders", 1)
    client = made.connect()
    answer = client.call(commit("g", 5, partition=1), 9)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    request = messages.CreatePartitionsRequest
    client.call(
        request(topics=[request.CreatePartitionsTopic(name="orders", count=2, assignments=None)], timeout_ms=1_000), 3
    )
    client.call(commit("g", 5, partition=1), 9)
    assert fetched(client, "g", partition=1) == 5


def test_deleting_the_offsets_topic_ends_all_groups() -> None:
    made = world()
    client, member_id = stable_member(made, "g")
    made.groups.topics_deleted({OFFSETS_TOPIC: b"\x01" * 16}, made.now_ms)
    heartbeat = messages.HeartbeatRequest(group_id="g", generation_id=1, member_id=member_id)
    assert client.call(heartbeat, 4).error_code == ErrorCode.NOT_COORDINATOR


# ---- events


def test_events_are_produced_where_configured() -> None:
    made = world(kohort_group_events_topic_enable=True)
    stable_member(made, "g")
    log = made.core.topics.by_name[EVENTS_TOPIC].partitions[0].log
    records = [
        record
        for chunk in log.read(0, 1 << 20)
        for pos, header in iter_batches(chunk)
        for record in read_records(chunk, pos, header)
    ]
    events = [json.loads(record.value) for record in records]
    assert {record.key for record in records} == {b"g"}
    kinds = [event["type"] for event in events]
    assert kinds[:2] == ["MemberJoined", "RebalanceStarted"] and kinds[-1] == "RebalanceCompleted"
    assert events[0]["client_host"] == "/10.0.0.1" and events[0]["client_id"] == "test"
    assert all(event["group_id"] == "g" and event["at_ms"] >= 1_000_000 for event in events)


def test_operators_read_of_rebalances_and_evictions_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    made = world()
    with caplog.at_level("INFO", "kohort.groups"):
        stable_member(made, "g")
        made.advance(10_000)
    lines = [record.getMessage() for record in caplog.records]
    assert any(line.startswith("group g: rebalance done after") for line in lines)
    assert any("evicted: no heartbeat for 10000 ms" in line for line in lines)
    assert not any("StateChanged" in line for line in lines)


def test_no_events_topic_by_default() -> None:
    made = world()
    stable_member(made, "g")
    assert EVENTS_TOPIC not in made.core.topics.by_name


def test_a_closed_connection_does_not_end_a_session() -> None:
    made = world()
    client, member_id = stable_member(made, "g")
    made.core.connection_lost(client.connection)
    made.turn()
    heartbeat = messages.HeartbeatRequest(group_id="g", generation_id=1, member_id=member_id)
    assert made.connect().call(heartbeat, 4).error_code == 0


def test_there_are_no_more_groups_than_are_allowed() -> None:
    made = loaded(world(**{"kohort.max.groups": 2}))
    made.create_topic("orders")
    stable_member(made, "first")
    client = made.connect()
    full = ErrorCode.GROUP_MAX_SIZE_REACHED

    def committed(group: str) -> int:
        return int(client.call(commit(group, 1), 8).topics[0].partitions[0].error_code)

    assert committed("second") == 0
    assert client.call(join("third"), 5).error_code == committed("third") == full
    heartbeat = messages.ConsumerGroupHeartbeatRequest(
        group_id="third", member_id="m", member_epoch=0, rebalance_timeout_ms=1000,
        subscribed_topic_names=["orders"], topic_partitions=[],
    )  # fmt: skip
    answer = client.call(heartbeat, 1)
    assert answer.error_code == full and "kohort.max.groups" in answer.error_message
    assert committed("first") != full and committed("second") == 0, "those that are there go on"
    client.call(messages.DeleteGroupsRequest(groups_names=["second"]), 2)
    assert committed("third") == 0


def test_groups_that_there_is_no_room_for_leave_one_line_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    made = loaded(world(**{"kohort.max.groups": 1}))
    stable_member(made, "first")
    client = made.connect()

    def lines() -> list[str]:
        return [line for record in caplog.records if "no room" in (line := record.getMessage())]

    for number in range(100):
        client.call(join(f"g{number}"), 5)
    assert len(lines()) == 1 and "kohort.max.groups" in lines()[0]
    made.advance(60_000)
    client.call(join("late"), 5)
    assert len(lines()) == 2 and "100 requests" in lines()[1]


def test_members_that_have_an_id_and_do_not_join_are_bounded() -> None:
    made = loaded(world(**{"kohort.group.max.pending.members": 3}))
    client = made.connect()
    answers = [client.call(join("g"), 5) for _ in range(5)]
    required, full = ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.GROUP_MAX_SIZE_REACHED
    assert [answer.error_code for answer in answers] == [required] * 3 + [full] * 2
    client.send(join("g", answers[0].member_id), 5)
    made.turn()
    assert made.connect().call(join("g"), 5).error_code == required, "one has come back with its id"
