"""A coordinator's partitions in the broker: slow and failing appends, damage at load, growth, topics that go."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from kohort.broker.groups import GroupService
from kohort.broker.shard_loading import ShardLoader
from kohort.coordinator import records as group_records
from kohort.coordinator.kinds import KINDS
from kohort.coordinator.records import OFFSETS_TOPIC, partition_for
from kohort.coordinator.shard import Life
from kohort.protocol import messages
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.records.batch import Record, build_batch
from kohort.storage.memory_log import MemoryLog
from kohort.storage.store import MemoryStore
from wire import CoreClient, World

CONFIG = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 2}
NONE = ErrorCode.NONE
IN_0, IN_1 = "h", "g"  # groups of partition 0 and 1 of two
SUBSCRIPTION = b"\x00\x00\x00\x00\x00\x01\x00\x06orders\x00\x00\x00\x00"


def world(store: MemoryStore | None = None, **config: Any) -> World:
    made = World(CONFIG | {name.replace("_", "."): value for name, value in config.items()}, store, GroupService)
    return loaded(made)


def loaded(made: World) -> World:
    while made.groups.next_deadline() == made.now_ms:
        made.advance(0)
    return made


def client_of(made: World) -> CoreClient:
    client = made.connect()
    client.call(messages.FindCoordinatorRequest(key="g"), 2)
    if "orders" not in made.core.topics.by_name:
        made.create_topic("orders", 4)
    return client


def commit(group: str, offset: int, partition: int = 0) -> Any:
    request = messages.OffsetCommitRequest
    row = request.OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
    return request(group_id=group, topics=[request.OffsetCommitRequestTopic(name="orders", partitions=[row])])


def committed(answer: Any) -> ErrorCode:
    return ErrorCode(answer.topics[0].partitions[0].error_code)


def fetch(group: str) -> Any:
    request = messages.OffsetFetchRequest
    return request(groups=[request.OffsetFetchRequestGroup(group_id=group, topics=None)])


def fetched(client: CoreClient, group: str) -> dict[int, int] | ErrorCode:
    (row,) = client.call(fetch(group), 9).groups
    if row.error_code:
        return ErrorCode(row.error_code)
    return {p.partition_index: p.committed_offset for topic in row.topics for p in topic.partitions}


def log_of(made: World, partition: int) -> MemoryLog:
    log = made.core.topics.by_name[OFFSETS_TOPIC].partitions[partition].log
    assert isinstance(log, MemoryLog)
    return log


def stable_member(made: World, client: CoreClient, group: str) -> str:
    request = messages.JoinGroupRequest
    protocol = request.JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)
    client.send(
        request(
            group_id=group,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=30_000,
            protocol_type="consumer",
            protocols=[protocol],
        ),
        3,
    )
    made.turn()
    made.advance(0)
    member_id = client.answers[-1].member_id
    sync = messages.SyncGroupRequest
    given = sync.SyncGroupRequestAssignment(member_id=member_id, assignment=b"all")
    answer = client.call(sync(group_id=group, generation_id=1, member_id=member_id, assignments=[given]), 3)
    assert answer.assignment == b"all"
    return member_id


def heartbeat(group: str, member_id: str) -> Any:
    return messages.HeartbeatRequest(group_id=group, generation_id=1, member_id=member_id)


# ---- a slow store


def test_who_asks_after_a_commit_waits_until_it_is_on_disk() -> None:
    made = world(kohort_fsync="always")
    client, other = client_of(made), made.connect()
    log = log_of(made, 1)
    log.faults.hold_flushes = True
    client.send(commit(IN_1, 5), 9)
    made.turn()
    other.send(fetch(IN_1), 9)
    other.send(messages.ListGroupsRequest(), 4)
    other.send(messages.DescribeGroupsRequest(groups=[IN_1]), 5)
    made.turn()
    assert not other.answers
    assert fetched(made.connect(), IN_0) == {}  # of another partition
    log.release_flushes()
    made.turn()
    listed, described = other.answers[1], other.answers[2]
    assert other.answers[0].groups[0].topics[0].partitions[0].committed_offset == 5
    assert [group.group_id for group in listed.groups] == [IN_1] and described.groups[0].group_state == "Empty"
    assert committed(client.answers[-1]) is NONE


def test_an_append_is_bounded_by_offsets_commit_timeout_ms() -> None:
    made = world(kohort_fsync="always", offsets_commit_timeout_ms=2_000)
    client = client_of(made)
    log = log_of(made, 1)
    log.faults.hold_flushes = True
    client.send(commit(IN_1, 6), 9)
    made.turn()
    made.advance(1_999)
    assert len(client.answers) == 1
    made.advance(1)
    assert committed(client.answers[-1]) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    loaded(made)
    # It is in the log, but not safe there: nobody is told either value before that is decided.
    assert fetched(client, IN_1) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert fetched(client, IN_0) == {}
    log.faults.hold_flushes = False
    log.release_flushes()
    made.turn()
    assert fetched(client, IN_1) == {0: 6}
    client.send(commit(IN_1, 8), 9)
    made.turn()
    made.turn()
    assert committed(client.answers[-1]) is NONE and fetched(client, IN_1) == {0: 8}


# ---- a failing store


def test_a_failed_append_leaves_what_the_log_has() -> None:
    made = world()
    client = client_of(made)
    member_id = stable_member(made, client, "i")
    assert partition_for("i", 2) == 1
    assert committed(client.call(commit(IN_1, 5), 9)) is NONE
    log_of(made, 1).faults.append_errors.append(errno.ENOSPC)
    client.send(commit(IN_1, 6), 9)
    client.send(fetch(IN_1), 9)
    client.send(heartbeat("i", member_id), 4)
    made.turn()
    error = ErrorCode.NOT_COORDINATOR
    assert committed(client.answers[-3]) is error and client.answers[-2].groups[0].error_code == error
    assert client.answers[-1].error_code == NONE
    loaded(made)
    assert fetched(client, IN_1) == {0: 5}
    assert client.call(heartbeat("i", member_id), 4).error_code == NONE  # its generation is in the log
    assert committed(client.call(commit(IN_1, 7), 9)) is NONE and fetched(client, IN_1) == {0: 7}


def test_a_log_that_is_offline_is_served_by_nobody(caplog: pytest.LogCaptureFixture) -> None:
    made = world(kohort_fsync="always")
    client = client_of(made)
    log_of(made, 1).faults.flush_errors.append(errno.EIO)
    client.send(commit(IN_1, 5), 9)
    made.turn()
    made.turn()
    assert committed(client.answers[-1]) is ErrorCode.NOT_COORDINATOR
    loaded(made)
    assert fetched(client, IN_1) is ErrorCode.NOT_COORDINATOR
    assert fetched(client, IN_0) == {}
    assert "the log is offline" in made.groups.coordinator.runtime.shards[1].failure


def test_a_commit_too_large_for_the_log_is_refused_and_disturbs_nobody() -> None:
    made = world(message_max_bytes=3_000)
    client = client_of(made)
    made.core.topics.grow(made.core.topics.by_name["orders"], 200)
    request = messages.OffsetCommitRequest
    rows = [request.OffsetCommitRequestPartition(partition_index=p, committed_offset=1) for p in range(200)]
    incarnation = made.groups.coordinator.runtime.shards[1].incarnation
    client.send(commit("i", 5), 9)
    client.send(request(group_id=IN_1, topics=[request.OffsetCommitRequestTopic(name="orders", partitions=rows)]), 9)
    made.turn()
    assert committed(client.answers[-2]) is NONE
    assert {row.error_code for row in client.answers[-1].topics[0].partitions} == {ErrorCode.UNKNOWN_SERVER_ERROR}
    assert made.groups.coordinator.runtime.shards[1].incarnation == incarnation


def test_a_group_with_more_offsets_than_a_batch_takes_is_deleted() -> None:
    made = world(message_max_bytes=3_000)
    client = client_of(made)
    made.core.topics.grow(made.core.topics.by_name["orders"], 200)
    for partition in range(200):
        assert committed(client.call(commit(IN_1, 1, partition), 9)) is NONE
    answer = client.call(messages.DeleteGroupsRequest(groups_names=[IN_1]), 2)
    assert answer.results[0].error_code == NONE
    assert fetched(client, IN_1) == {}
    assert fetched(world(made.store).connect(), IN_1) == {}


# ---- damage


def damaged(made: World, partition: int, offset: int, position: int = 17) -> World:
    log_of(made, partition).damage(offset, position)
    return world(made.store)


@pytest.mark.parametrize("position", [17, 16, 30, 100])
def test_a_damaged_partition_is_not_served_and_the_others_are(position: int, caplog: pytest.LogCaptureFixture) -> None:
    made = world()
    client = client_of(made)
    for offset in range(5):
        client.call(commit(IN_0, offset), 9)
        client.call(commit(IN_1, offset), 9)
    again = damaged(made, 1, 2, position)
    client = again.connect()
    shard = again.groups.coordinator.runtime.shards[1]
    assert shard.life is Life.FAILED and shard.failure.startswith("at offset 2:")
    assert len([r for r in caplog.records if "cannot be read whole" in r.getMessage()]) == 1
    refused = ErrorCode.NOT_COORDINATOR
    assert fetched(client, IN_1) is refused and committed(client.call(commit(IN_1, 9), 9)) is refused
    assert client.call(heartbeat(IN_1, "m"), 4).error_code == refused
    assert client.call(messages.DeleteGroupsRequest(groups_names=[IN_1]), 2).results[0].error_code == refused
    assert client.call(messages.DescribeGroupsRequest(groups=[IN_1]), 5).groups[0].error_code == refused
    assert client.call(messages.FindCoordinatorRequest(key=IN_1), 2).error_code == NONE
    assert [group.group_id for group in client.call(messages.ListGroupsRequest(), 4).groups] == [IN_0]
    assert fetched(client, IN_0) == {0: 4} and committed(client.call(commit(IN_0, 9), 9)) is NONE
    again.advance(700_000)  # time goes on, offsets are looked at


def append(made: World, partition: int, *pairs: tuple[bytes | None, bytes | None], **options: Any) -> None:
    records = [Record(i, 1_000, key, value) for i, (key, value) in enumerate(pairs)]
    log_of(made, partition).append(build_batch(records, **options), leader_epoch=0, now_ms=1_000)


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        (b"\x00\x01\x00\x09g", b"\x00\x04", "cannot be read"),
        (group_records.offset_key("g", "orders", 0), b"\x00\x63", "value version 99"),
        (group_records.group_key("g"), b"\x00\x03\x00", "cannot be read"),
        (None, b"x", "cannot be read"),
    ],
)
def test_a_record_that_makes_no_sense_is_damage(key: bytes | None, value: bytes, why: str) -> None:
    made = world()
    client_of(made)
    append(made, 1, (b"\x00\x09new", b"of the future"), (key, value))
    shard = world(made.store).groups.coordinator.runtime.shards[1]
    assert shard.life is Life.FAILED and "at offset 1:" in shard.failure and why in shard.failure


def test_a_compressed_body_that_cannot_be_decompressed_is_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    from kohort.records.compression import Compression

    made = world()
    client_of(made)
    append(made, 1, (b"\x00\x09new", b"x" * 100), compression=Compression.GZIP)
    log_of(made, 1).damage(0, 80)
    monkeypatch.setattr("kohort.broker.shard_loading.check_crc", lambda *_: True)
    shard = world(made.store).groups.coordinator.runtime.shards[1]
    assert shard.life is Life.FAILED and shard.failure.startswith("at offset 0:")


def test_a_log_from_which_nothing_comes_is_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    made = world()
    client = client_of(made)
    client.call(commit(IN_1, 5), 9)
    monkeypatch.setattr(MemoryLog, "read", lambda *_, **__: [])
    shard = world(made.store).groups.coordinator.runtime.shards[1]
    assert shard.life is Life.FAILED and "nothing is there" in shard.failure


def test_whatever_goes_wrong_in_a_load_the_broker_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    made = world()
    client = client_of(made)
    client.call(commit(IN_1, 5), 9)

    def fail(*_: Any, **__: Any) -> Any:
        raise MemoryError("no more")

    monkeypatch.setattr(MemoryLog, "read", fail)
    shard = world(made.store).groups.coordinator.runtime.shards[1]
    assert shard.life is Life.FAILED and "no more" in shard.failure


def test_a_state_that_cannot_begin_is_not_served(monkeypatch: pytest.MonkeyPatch) -> None:
    made = world()
    client_of(made).call(commit(IN_1, 5), 9)

    def fail(*_: Any) -> Any:
        raise KeyError("no more")

    failing = {kind: does._replace(loaded=fail) for kind, does in KINDS.items()}
    monkeypatch.setattr("kohort.coordinator.replay.KINDS", failing)
    again = World(CONFIG, made.store, GroupService)
    loaded(again)
    again.advance(60_000)
    lives = [shard.life for shard in again.groups.coordinator.runtime.shards.values()]
    assert lives == [Life.ACTIVE, Life.FAILED]


def test_a_request_that_fails_half_way_costs_its_shard_its_state_and_nobody_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = world()
    client, other, waits = client_of(made), made.connect(), made.connect()
    member_id = stable_member(made, client, IN_1)
    other.call(commit(IN_0, 3), 9)
    join = messages.JoinGroupRequest
    protocols = [join.JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)]
    timeouts = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 30_000}
    waits.send(join(group_id=IN_1, protocol_type="consumer", protocols=protocols, **timeouts), 3)
    made.turn()
    assert waits.answers == []

    def half_way(context: Any, request: Any) -> Any:
        del context.groups[IN_1].offsets
        raise ZeroDivisionError

    monkeypatch.setattr("kohort.coordinator.offsets.commit", half_way)
    client.send(commit(IN_1, 9), 9)
    made.turn()
    monkeypatch.undo()
    assert client.connection.close_reason is not None
    assert waits.answers[-1].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    loaded(made)
    again = client_of(made)
    assert fetched(again, IN_1) == {} and fetched(again, IN_0) == {0: 3}
    assert again.call(heartbeat(IN_1, member_id), 4).error_code == ErrorCode.NONE
    assert committed(again.call(commit(IN_1, 9), 9)) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_load_reads_as_much_at_a_time_as_is_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    made = world()
    client_of(made).call(commit(IN_1, 5), 9)
    asked: list[int] = []
    read = MemoryLog.read

    def listen(self: MemoryLog, offset: int, max_bytes: int, **options: Any) -> Any:
        asked.append(max_bytes)
        return read(self, offset, max_bytes, **options)

    monkeypatch.setattr(MemoryLog, "read", listen)
    world(made.store, offsets_load_buffer_size=4_321)
    assert set(asked) == {4_321}


# ---- the coordinator is not there


def test_a_coordinator_that_is_not_active_is_not_available() -> None:
    made = world()
    client = client_of(made)
    client.call(commit(IN_1, 5), 9)
    made.core.stop(made.now_ms)
    error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert committed(client.call(commit(IN_1, 6), 9)) is error and fetched(client, IN_1) is error
    assert client.call(heartbeat(IN_1, "m"), 4).error_code == error
    assert client.call(messages.ListGroupsRequest(), 4).error_code == error
    assert client.call(messages.DescribeGroupsRequest(groups=[IN_1]), 5).groups[0].error_code == error
    found = client.call(messages.FindCoordinatorRequest(key=IN_1), 2)
    assert (found.error_code, found.node_id) == (error, -1)


def test_no_coordinator_where_the_topic_cannot_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    made = world()
    client = made.connect()

    def fail(*_: Any) -> Any:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")

    monkeypatch.setattr(made.core.topics, "create", fail)
    found = client.call(messages.FindCoordinatorRequest(key="g"), 2)
    assert (found.error_code, found.node_id, found.host, found.port) == (
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        -1,
        "",
        -1,
    )
    monkeypatch.undo()
    assert client.call(messages.FindCoordinatorRequest(key="g"), 2).error_code == NONE


def test_a_topic_that_a_metadata_request_has_made_is_led() -> None:
    made = world()
    made.create_topic("orders", 4)
    client = made.connect()
    asked = messages.MetadataRequest.MetadataRequestTopic(name=OFFSETS_TOPIC)
    client.call(messages.MetadataRequest(topics=[asked], allow_auto_topic_creation=True), 9)
    assert committed(client.call(commit(IN_1, 5), 9)) is NONE and fetched(client, IN_1) == {0: 5}


def test_an_offsets_topic_that_is_deleted_is_made_again_and_empty() -> None:
    made = world()
    client = client_of(made)
    client.call(commit(IN_1, 5), 9)
    request = messages.DeleteTopicsRequest
    client.call(request(topics=[request.DeleteTopicState(name=OFFSETS_TOPIC)], timeout_ms=1_000), 6)
    assert fetched(client, IN_1) is ErrorCode.NOT_COORDINATOR
    assert client.call(messages.FindCoordinatorRequest(key="g"), 2).error_code == NONE
    assert fetched(client, IN_1) == {}
    assert committed(client.call(commit(IN_1, 6), 9)) is NONE and fetched(client, IN_1) == {0: 6}


def test_an_append_to_a_topic_that_is_deleted_meanwhile() -> None:
    made = world(kohort_fsync="always")
    client = client_of(made)
    log_of(made, 1).faults.hold_flushes = True
    client.send(commit(IN_1, 5), 9)
    made.turn()
    other = made.connect()
    request = messages.DeleteTopicsRequest
    other.call(request(topics=[request.DeleteTopicState(name=OFFSETS_TOPIC)], timeout_ms=1_000), 6)
    assert committed(client.answers[-1]) is ErrorCode.NOT_COORDINATOR
    other.call(messages.FindCoordinatorRequest(key="g"), 2)
    made.advance(60_000)
    assert fetched(other, IN_1) == {}


def test_a_topic_that_is_created_again_while_a_partition_loads_has_no_commits() -> None:
    made = world()
    client = client_of(made)
    client.call(commit(IN_1, 5), 9)
    runtime = made.groups.coordinator.runtime
    runtime.crashed(runtime.shards[1], made.now_ms)
    request = messages.DeleteTopicsRequest
    client.call(request(topics=[request.DeleteTopicState(name="orders")], timeout_ms=1_000), 6)
    made.create_topic("orders", 4)
    loaded(made)
    assert fetched(client, IN_1) == {}  # a consumer would go on at 5 of a topic that it has never read
    asked = messages.OffsetFetchRequest
    by_name = asked.OffsetFetchRequestTopics(name="orders", partition_indexes=[0])
    (row,) = client.call(asked(groups=[asked.OffsetFetchRequestGroup(group_id=IN_1, topics=[by_name])]), 9).groups
    assert row.topics[0].partitions[0].committed_offset == -1
    assert committed(client.call(commit(IN_1, 1), 9)) is NONE and fetched(client, IN_1) == {0: 1}


# ---- growth


def grow(client: CoreClient, count: int) -> None:
    request = messages.CreatePartitionsRequest
    topic = request.CreatePartitionsTopic(name=OFFSETS_TOPIC, count=count, assignments=None)
    assert client.call(request(topics=[topic], timeout_ms=1_000), 3).results[0].error_code == NONE


MOVES = next(f"m{i}" for i in range(100) if partition_for(f"m{i}", 2) != partition_for(f"m{i}", 5))


def test_groups_move_to_the_partition_of_their_name(caplog: pytest.LogCaptureFixture) -> None:
    made = world()
    client = client_of(made)
    member_id = stable_member(made, client, MOVES)
    client.call(commit(IN_1, 5), 9)
    request = messages.OffsetCommitRequest
    row = request.OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
    of_member = request(
        group_id=MOVES,
        generation_id_or_member_epoch=1,
        member_id=member_id,
        topics=[request.OffsetCommitRequestTopic(name="orders", partitions=[row])],
    )
    assert committed(client.call(of_member, 9)) is NONE
    grow(client, 5)
    assert "groups move with their commits" in caplog.text
    assert fetched(client, MOVES) == {0: 7}
    assert client.call(heartbeat(MOVES, member_id), 4).error_code == NONE  # the generation goes with it
    assert committed(client.call(of_member, 9)) is NONE
    again = world(made.store)
    client = again.connect()
    assert fetched(client, MOVES) == {0: 7} and client.call(heartbeat(MOVES, member_id), 4).error_code == NONE
    assert sum(group.group_id == MOVES for group in client.call(messages.ListGroupsRequest(), 4).groups) == 1
    again.advance(11_000)
    assert client.call(messages.DeleteGroupsRequest(groups_names=[MOVES]), 2).results[0].error_code == NONE
    assert fetched(world(made.store).connect(), MOVES) == {}


def test_a_move_that_is_cut_short_is_taken_up_again() -> None:
    made = world()
    client = client_of(made)
    for partition in range(4):
        client.call(commit(MOVES, partition, partition), 9)
    home = partition_for(MOVES, 5)
    made.core.topics.grow(made.core.topics.by_name[OFFSETS_TOPIC], 5)
    value = group_records.OffsetAndMetadata(9, -1, "", 1, -1, made.core.topics.by_name["orders"].topic_id)
    append(made, home, group_records.encode(group_records.OffsetCommit(MOVES, "orders", 1, value)))
    again = world(made.store)
    client = again.connect()
    # What was there already, or was committed there since, stands.
    assert fetched(client, MOVES) == {0: 0, 1: 9, 2: 2, 3: 3}
    assert fetched(world(made.store).connect(), MOVES) == {0: 0, 1: 9, 2: 2, 3: 3}
    assert not again.groups.coordinator.runtime.shards[partition_for(MOVES, 2)].state.strays


def test_a_move_that_cannot_be_stored_loses_nothing() -> None:
    made = world()
    client = client_of(made)
    client.call(commit(MOVES, 7), 9)
    made.core.topics.grow(made.core.topics.by_name[OFFSETS_TOPIC], 5)
    log_of(made, partition_for(MOVES, 5)).faults.append_errors.append(errno.ENOSPC)
    made.core.topic_grew(OFFSETS_TOPIC, made.now_ms)
    made.turn()
    loaded(made)
    assert fetched(client, MOVES) == {0: 7}


def test_a_move_that_fails_while_the_group_is_asked_for_does_not_let_it_begin_anew() -> None:
    made = world(kohort_fsync="always")
    client, other = client_of(made), made.connect()
    client.send(commit(MOVES, 7), 9)
    made.turn()
    made.turn()
    old = partition_for(MOVES, 2)
    stays = next(f"s{i}" for i in range(100) if partition_for(f"s{i}", 2) == partition_for(f"s{i}", 5) == old)
    made.core.topics.grow(made.core.topics.by_name[OFFSETS_TOPIC], 5)
    log_of(made, partition_for(MOVES, 5)).faults.append_errors.append(errno.ENOSPC)
    made.core.topic_grew(OFFSETS_TOPIC, made.now_ms)
    other.send(fetch(MOVES), 9)  # finds it at home, where it is not stored
    log_of(made, old).faults.hold_flushes = True
    client.send(commit(stays, 1), 9)  # keeps the old partition busy: nothing leaves it for a while
    made.turn()
    loaded(made)
    assert other.answers[-1].groups[0].error_code != NONE
    assert fetched(other, MOVES) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    release(made, log_of(made, old))
    assert fetched(other, MOVES) == {0: 7}


def test_a_group_that_is_not_found_may_be_where_is_not_read_yet() -> None:
    """The partition of its name is empty and served at once, the one it was in before the topic grew takes a while."""
    made = world()
    client_of(made).call(commit(MOVES, 7), 9)
    made.core.topics.grow(made.core.topics.by_name[OFFSETS_TOPIC], 5)
    again = World(CONFIG, made.store, GroupService)
    client = again.connect()
    assert again.groups.coordinator.is_loaded(partition_for(MOVES, 5))
    assert fetched(client, MOVES) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert committed(client.call(commit(MOVES, 8, 1), 9)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    loaded(again)
    assert fetched(client, MOVES) == {0: 7}


def test_a_group_moves_when_what_was_decided_of_it_is_stored() -> None:
    made = world(kohort_fsync="always")
    client = client_of(made)
    old = log_of(made, partition_for(MOVES, 2))
    old.faults.hold_flushes = True
    client.send(commit(MOVES, 7), 9)
    made.turn()
    other = made.connect()
    grow(other, 5)
    assert fetched(other, MOVES) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    release(made, old)
    assert committed(client.answers[-1]) is NONE and fetched(other, MOVES) == {0: 7}


def with_a_slow_old_partition() -> tuple[World, CoreClient, MemoryLog]:
    """A commit is stored, what comes behind it is not until `release`."""
    made = world(kohort_fsync="always")
    client = client_of(made)
    client.send(commit(MOVES, 7), 9)
    made.turn()
    made.turn()
    old = log_of(made, partition_for(MOVES, 2))
    old.faults.hold_flushes = True
    return made, client, old


def test_a_group_deleted_before_the_topic_grew_begins_anew_when_that_is_stored() -> None:
    made, client, old = with_a_slow_old_partition()
    client.send(messages.DeleteGroupsRequest(groups_names=[MOVES]), 2)
    made.turn()
    other = made.connect()
    grow(other, 5)
    # A crash now brings the group back: nobody may be told that it is gone, nor that it has other offsets.
    assert fetched(other, MOVES) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    (row,) = other.call(messages.DeleteGroupsRequest(groups_names=[MOVES]), 2).results
    assert row.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    release(made, old)
    assert client.answers[-1].results[0].error_code == NONE
    assert fetched(other, MOVES) == {}


def test_a_group_that_has_moved_is_served_when_it_is_removed_from_where_it_was() -> None:
    made, _, old = with_a_slow_old_partition()
    other = made.connect()
    grow(other, 5)
    made.turn()
    made.turn()
    # Stored at home and not yet removed here: what is deleted at home now would come back with a crash.
    (row,) = other.call(messages.DeleteGroupsRequest(groups_names=[MOVES]), 2).results
    assert row.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    release(made, old)
    assert fetched(other, MOVES) == {0: 7}
    other.send(messages.DeleteGroupsRequest(groups_names=[MOVES]), 2)
    made.turn()
    made.turn()
    assert other.answers[-1].results[0].error_code == NONE
    assert fetched(world(made.store).connect(), MOVES) == {}


def release(made: World, log: MemoryLog) -> None:
    """What is held is stored, then what follows from it: a group at home, then that it is not where it was."""
    log.faults.hold_flushes = False
    log.release_flushes()
    for _ in range(3):
        made.turn()


def test_offsets_of_a_deleted_topic_do_not_move_home() -> None:
    made, client, old = with_a_slow_old_partition()
    client.send(commit(MOVES, 8), 9)
    made.turn()
    other = made.connect()
    grow(other, 5)
    request = messages.DeleteTopicsRequest
    other.send(request(topics=[request.DeleteTopicState(name="orders")], timeout_ms=1_000), 6)
    made.turn()
    release(made, old)
    assert fetched(other, MOVES) == {}
    assert fetched(world(made.store).connect(), MOVES) == {}


def test_a_group_that_cannot_move_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    made = world()
    client = client_of(made)
    client.call(commit(MOVES, 7), 9)
    home = partition_for(MOVES, 5)
    made.core.topics.grow(made.core.topics.by_name[OFFSETS_TOPIC], 5)
    append(made, home, (b"\x00\x09new", b"x"))
    again = damaged(made, home, 0)
    again.advance(700_000)
    told = [record.getMessage() for record in caplog.records if "not served: " in record.getMessage()]
    assert len(told) == 1 and MOVES in told[0]
    assert fetched(again.connect(), MOVES) is ErrorCode.NOT_COORDINATOR
    log_of(again, home).damage(0, 17)  # mended
    assert fetched(world(made.store).connect(), MOVES) == {0: 7}


def test_a_group_whose_partition_failed_before_the_topic_grew_does_not_begin_anew() -> None:
    made = world(kohort_fsync="always")
    client = client_of(made)
    before = partition_for(MOVES, 2)
    client.send(commit(MOVES, 7), 9)
    made.turn()
    made.turn()
    assert committed(client.answers[-1]) is NONE
    log_of(made, before).faults.flush_errors.append(errno.EIO)
    client.send(commit(MOVES, 8), 9)
    made.turn()
    made.turn()
    loaded(made)
    assert fetched(client, MOVES) is ErrorCode.NOT_COORDINATOR
    grow(client, 5)
    loaded(made)
    assert fetched(client, MOVES) is ErrorCode.NOT_COORDINATOR  # what it had cannot be read: nobody says it had nothing
    new = next(f"n{i}" for i in range(100) if before not in {partition_for(f"n{i}", 2), partition_for(f"n{i}", 5)})
    assert fetched(client, new) == {}


def test_nor_does_it_after_a_restart() -> None:
    made = world()
    client = client_of(made)
    client.call(commit(MOVES, 7), 9)
    before = partition_for(MOVES, 2)
    log_of(made, before).damage(0, 17)
    made.core.topics.grow(made.core.topics.by_name[OFFSETS_TOPIC], 5)
    again = world(made.store)
    loaded(again)
    client = again.connect()
    assert fetched(client, MOVES) is ErrorCode.NOT_COORDINATOR
    assert committed(client.call(commit(MOVES, 8), 9)) is ErrorCode.NOT_COORDINATOR
    new = next(f"n{i}" for i in range(100) if before not in {partition_for(f"n{i}", 2), partition_for(f"n{i}", 5)})
    assert fetched(client, new) == {}
    log_of(again, before).damage(0, 17)  # mended
    assert fetched(world(made.store).connect(), MOVES) == {0: 7}


@pytest.mark.parametrize("first_home_fails", [False, True])
def test_a_group_comes_home_where_it_was(first_home_fails: bool) -> None:
    """The topic grows twice, and the second time a group belongs to where it never got away from."""
    name = next(
        f"b{i}"
        for i in range(1000)
        if partition_for(f"b{i}", 2) == partition_for(f"b{i}", 6) < partition_for(f"b{i}", 5)
    )
    made = world()
    client = client_of(made)
    client.call(commit(name, 7), 9)
    grown = messages.CreatePartitionsRequest
    for count in (5, 6):
        topic = grown.CreatePartitionsTopic(name=OFFSETS_TOPIC, count=count, assignments=None)
        client.send(grown(topics=[topic], timeout_ms=1_000), 3)
        if count == 5 and first_home_fails:
            runtime = made.groups.coordinator.runtime
            runtime.crashed(runtime.shards[partition_for(name, 5)], made.now_ms)
    made.turn()
    loaded(made)
    made.turn()
    assert fetched(client, name) == {0: 7}
    again = world(made.store)
    assert fetched(again.connect(), name) == {0: 7}
    assert committed(again.connect().call(commit(name, 8), 9)) is NONE


def test_loads_that_nobody_waits_for_do_nothing() -> None:
    made = world()
    client = client_of(made)
    client.call(commit(IN_1, 5), 9)
    again = World(CONFIG, made.store, GroupService)
    loader: ShardLoader[Any] = again.groups._log._loader
    shard = again.groups.coordinator.runtime.shards[1]
    again.groups.coordinator.runtime.resign(1, again.now_ms)
    for _ in range(5):
        loader.step(again.now_ms)
    assert shard.life is Life.CLOSED and not shard.state.groups
