"""Faults on request: who is met, what they see, what takes effect, and that nobody else notices."""

import pytest

from kohort.broker.faults import DELAY, DISCONNECT, DROP, FAIL, Fault
from kohort.broker.groups import GroupService
from kohort.protocol import messages, schema
from kohort.protocol.errors import ErrorCode
from message_filler import fill
from wire import World, batch, fetch_request, produce_request

CODE = ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.fixture
def world() -> World:
    made = World({"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 2}, groups=GroupService)
    made.create_topic("orders", 2)
    made.create_topic("other", 1)
    made.connect().call(messages.FindCoordinatorRequest(key="g"), 2)
    return made


def add(world: World, action: str, api: str, **options) -> Fault:
    return world.core.faults.add(Fault(action, api, **options))


def commit_request(group="g", offset=5, **topics):
    kind = messages.OffsetCommitRequest
    rows = [
        kind.OffsetCommitRequestTopic(
            name=name,
            partitions=[kind.OffsetCommitRequestPartition(partition_index=p, committed_offset=offset) for p in indexes],
        )
        for name, indexes in (topics or {"orders": [0, 1]}).items()
    ]
    return kind(group_id=group, topics=rows)


def commit(client, *args, **kwargs):
    """{(topic, partition): code} of a commit."""
    answer = client.call(commit_request(*args, **kwargs), 9)
    return {(topic.name, row.partition_index): row.error_code for topic in answer.topics for row in topic.partitions}


def committed(world, group="g", topic="orders"):
    kind = messages.OffsetFetchRequest
    asked = kind.OffsetFetchRequestTopics(name=topic, partition_indexes=[0, 1])
    answer = world.connect().call(kind(groups=[kind.OffsetFetchRequestGroup(group_id=group, topics=[asked])]), 9)
    return [row.committed_offset for row in answer.groups[0].topics[0].partitions]


# Failing.


def test_a_request_fails_so_often_and_has_no_effect(world):
    fault = add(world, FAIL, "OffsetCommit", code="COORDINATOR_NOT_AVAILABLE", times=2)
    client = world.connect()
    refused = {("orders", 0): CODE, ("orders", 1): CODE}
    assert [commit(client), commit(client)] == [refused, refused]
    assert committed(world) == [-1, -1]
    assert fault.hits == 2 and fault.spent
    assert commit(client) == {("orders", 0): 0, ("orders", 1): 0}
    assert committed(world) == [5, 5]
    assert fault.hits == 2


def test_only_whom_the_rule_means(world):
    client = world.connect()
    by_group = add(world, FAIL, "OffsetCommit", code=CODE, times=None, group="orders")
    by_client = add(world, FAIL, "OffsetCommit", code=CODE, times=None, client="somebody")
    assert set(commit(client, "g").values()) == {0}
    assert set(commit(client, "orders").values()) == {CODE}
    assert (by_group.hits, by_client.hits) == (1, 0)
    add(world, FAIL, "OffsetCommit", code=16, times=None, client="test")
    assert set(commit(client, "g").values()) == {ErrorCode.NOT_COORDINATOR}


def test_the_first_requests_may_pass(world):
    add(world, FAIL, "OffsetCommit", code=CODE, after=2)
    client = world.connect()
    assert [max(commit(client).values()) for _ in range(4)] == [0, 0, CODE, 0]


def test_one_partition_fails_and_the_rest_of_the_request_is_served(world):
    add(world, FAIL, "OffsetCommit", code="REQUEST_TIMED_OUT", topic="orders", partition=1)
    answer = commit(world.connect(), orders=[0, 1], other=[0])
    assert answer == {("orders", 0): 0, ("orders", 1): ErrorCode.REQUEST_TIMED_OUT, ("other", 0): 0}
    assert committed(world) == [5, -1]
    assert committed(world, topic="other")[0] == 5


def test_a_topic_is_also_known_by_its_id(world):
    topic_id = world.core.topics.by_name["orders"].topic_id
    add(world, FAIL, "Produce", code="NOT_LEADER_OR_FOLLOWER", topic="orders", partition=0)
    request = produce_request("", batch(b"x"))
    request.topic_data[0].topic_id = topic_id
    client = world.connect()
    (topic,) = client.call(request, 13).responses
    (row,) = topic.partition_responses
    assert (topic.topic_id, row.index, row.error_code) == (topic_id, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert row.base_offset == -1
    assert client.call(request, 13).responses[0].partition_responses[0].base_offset == 0


def test_metadata_of_a_failing_topic_still_names_the_brokers(world):
    kind = messages.MetadataRequest
    add(world, FAIL, "Metadata", code="LEADER_NOT_AVAILABLE", topic="orders", times=None)
    asked = kind(topics=[kind.MetadataRequestTopic(name="orders"), kind.MetadataRequestTopic(name="other")])
    for version in (4, 9, 12, 13):
        answer = world.connect().call(asked, version)
        codes = {topic.name: topic.error_code for topic in answer.topics}
        assert codes == {"orders": ErrorCode.LEADER_NOT_AVAILABLE, "other": 0}
        assert answer.brokers[0].host == "broker"
        everything = world.connect().call(kind(topics=None), version)
        assert {topic.error_code for topic in everything.topics} == {0}


def fetch_codes(answer):
    return {
        (topic.topic, row.partition_index): row.error_code for topic in answer.responses for row in topic.partitions
    }


def test_a_fetch_fails_for_one_partition_and_starts_over(world):
    client = world.connect()
    client.produce("orders", batch(b"x"))
    add(world, FAIL, "Fetch", code="NOT_LEADER_OR_FOLLOWER", topic="orders", partition=1)
    answer = client.call(fetch_request("orders", 0, 0, session_epoch=0), 12)
    assert fetch_codes(answer) == {("orders", 0): 0, ("orders", 1): ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert answer.session_id == 0 and bytes(answer.responses[0].partitions[0].records)
    assert client.call(fetch_request("orders", 0, 0, session_epoch=0), 12).session_id > 0


def test_an_incremental_fetch_fails_for_what_it_does_not_name(world):
    client = world.connect()
    session_id = client.call(fetch_request("orders", 0, 0, session_epoch=0), 12).session_id
    add(world, FAIL, "Fetch", code="KAFKA_STORAGE_ERROR")
    answer = client.call(fetch_request("orders", session_id=session_id, session_epoch=1), 12)
    storage = ErrorCode.KAFKA_STORAGE_ERROR
    assert fetch_codes(answer) == {("orders", 0): storage, ("orders", 1): storage}
    assert (answer.error_code, answer.session_id) == (0, 0)
    again = client.call(fetch_request("orders", session_id=session_id, session_epoch=2), 12)
    assert again.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_fetch_session_fails_as_a_whole(world):
    add(world, FAIL, "Fetch", code="FETCH_SESSION_ID_NOT_FOUND")
    answer = world.connect().call(fetch_request("orders", 0, session_id=7, session_epoch=3), 12)
    assert (answer.error_code, answer.responses) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])


def test_several_groups_in_one_request(world):
    add(world, FAIL, "DescribeGroups", code="COORDINATOR_LOAD_IN_PROGRESS", group="b")
    answer = world.connect().call(messages.DescribeGroupsRequest(groups=["a", "b", "c"]), 5)
    codes = {group.group_id: group.error_code for group in answer.groups}
    assert codes == {"a": 0, "b": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "c": 0}
    add(world, FAIL, "FindCoordinator", code=CODE, group="b")
    answer = world.connect().call(messages.FindCoordinatorRequest(coordinator_keys=["a", "b"]), 4)
    assert {row.key: (row.error_code, row.port) for row in answer.coordinators} == {"a": (0, 9092), "b": (CODE, -1)}


def codes_in(value) -> list[int]:
    """Every error code of a message, wherever it is."""
    if isinstance(value, list):
        return [code for item in value for code in codes_in(item)]
    if not isinstance(value, messages.Struct):
        return []
    inner = [code for name in value.__slots__ for code in codes_in(getattr(value, name))]
    return inner + [getattr(value, n) for n in ("error_code", "partition_error_code") if n in value.__slots__]


def served_apis():
    """(name, version) of everything the broker serves."""
    table = World(groups=GroupService).core.table.apis.values()
    return [(api.name, version) for api in table for version in range(api.min_version, api.max_version + 1)]


def test_every_api_and_version_can_fail(world):
    """A full request of it gets a legal answer that carries the code and nothing but it."""
    for name, version in served_apis():
        if name == "DescribeLogDirs" and version < 3:
            continue  # no place for a code in its answer
        world.core.faults.clear(world.core, world.now_ms)
        fault = add(world, FAIL, name, code="POLICY_VIOLATION")
        request = fill(f"{name}Request", version, 1)
        if name == "Fetch":
            request.session_epoch = 0
        answer = world.connect().call(request, version)
        found = set(codes_in(answer)) - {0}
        assert found == {ErrorCode.POLICY_VIOLATION}, (name, version, answer)
        assert fault.hits == 1


def test_topics_asked_for_by_id_fail_by_id(world):
    kind = messages.MetadataRequest
    for version in (10, 11, 12, 13):
        topic_id = world.core.topics.by_name["orders"].topic_id
        add(world, FAIL, "Metadata", code="LEADER_NOT_AVAILABLE", topic="orders")
        asked = kind(topics=[kind.MetadataRequestTopic(name=None, topic_id=topic_id)])
        (topic,) = world.connect().call(asked, version).topics
        assert (topic.topic_id, topic.error_code) == (topic_id, ErrorCode.LEADER_NOT_AVAILABLE)


def test_failing_answers_repeat_what_was_asked_for(world):
    pairs = {
        "OffsetCommit": ("topics", "topics", "partitions", "partitions"),
        "ListOffsets": ("topics", "topics", "partitions", "partitions"),
        "Produce": ("topic_data", "responses", "partition_data", "partition_responses"),
        "Fetch": ("topics", "responses", "partitions", "partitions"),
        "OffsetForLeaderEpoch": ("topics", "topics", "partitions", "partitions"),
        "DeleteRecords": ("topics", "topics", "partitions", "partitions"),
    }
    for name, (asked, answered, asked_rows, answered_rows) in pairs.items():
        for api, version in served_apis():
            if api != name:
                continue
            world.core.faults.clear(world.core, world.now_ms)
            add(world, FAIL, name, code="POLICY_VIOLATION")
            request = fill(f"{name}Request", version, 1, unknown_tags=False)
            if name == "Fetch":
                request.session_epoch = 0
            topics = [len(getattr(topic, asked_rows)) for topic in getattr(request, asked)]
            answer = world.connect().call(request, version)
            assert [len(getattr(topic, answered_rows)) for topic in getattr(answer, answered)] == topics, (
                name,
                version,
            )


def test_a_rule_that_cannot_be():
    with pytest.raises(ValueError, match="did you mean OffsetCommit"):
        Fault(FAIL, "OffsetComit", code=CODE)
    with pytest.raises(ValueError, match="did you mean NOT_COORDINATOR"):
        Fault(FAIL, "OffsetCommit", code="NO_COORDINATOR")
    with pytest.raises(ValueError, match="not a failure"):
        Fault(FAIL, "OffsetCommit", code="NONE")
    with pytest.raises(ValueError, match="no error code"):
        Fault(FAIL, "OffsetCommit", code=9999)
    with pytest.raises(ValueError, match="at least 1"):
        Fault(DROP, times=0)
    with pytest.raises(ValueError, match="of which topic"):
        Fault(DROP, "Fetch", partition=1)
    assert all(f"{name}Request" in schema.message_names() for name, _ in served_apis())


# Waiting.


def test_a_delay_is_in_broker_time_and_keeps_the_order(world):
    fault = add(world, DELAY, "OffsetCommit", seconds=30)
    client, other = world.connect(), world.connect()
    first = client.send(commit_request(), 9)
    second = client.send(messages.MetadataRequest(topics=[]), 9)
    third = client.send(commit_request(offset=6), 9)
    world.turn()
    assert client.order == [] and fault.hits == 1
    assert set(commit(other, "g2").values()) == {0}
    assert committed(world) == [-1, -1]
    assert world.core.next_wait() == world.now_ms + 30_000
    world.advance(29_999)
    assert client.order == []
    world.advance(1)
    assert client.order == [first, second, third]
    assert committed(world) == [6, 6]
    assert not world.core.faults._held


def test_a_delayed_request_of_a_lost_connection_is_forgotten(world):
    add(world, DELAY, "OffsetCommit", seconds=30)
    client = world.connect()
    client.send(commit_request(), 9)
    world.core.connection_lost(client.connection)
    world.advance(30_000)
    assert committed(world) == [-1, -1]


def test_clear_serves_what_was_delayed(world):
    add(world, DELAY, "*", seconds=3600, times=None)
    client = world.connect()
    client.send(commit_request(), 9)
    world.core.faults.clear(world.core, world.now_ms)
    world.turn()
    assert len(client.answers) == 1
    assert committed(world) == [5, 5]
    assert not world.core.faults.active


# Getting lost.


@pytest.mark.parametrize("before", [True, False])
def test_a_dropped_request_is_never_answered(world, before):
    add(world, DROP, "OffsetCommit", before=before)
    client = world.connect()
    client.send(commit_request(), 9)
    client.send(messages.MetadataRequest(topics=[]), 9)
    world.turn()
    world.advance(3_600_000)
    assert client.answers == [] and not client.connection.closed
    assert committed(world) == ([-1, -1] if before else [5, 5])
    assert set(commit(world.connect(), offset=6).values()) == {0}
    world.core.faults.clear(world.core, world.now_ms)
    assert client.connection.closed


@pytest.mark.parametrize("before", [True, False])
def test_a_connection_is_closed_before_or_after_the_request_took_effect(world, before):
    fault = add(world, DISCONNECT, "OffsetCommit", before=before)
    client, other = world.connect(), world.connect()
    client.send(commit_request(), 9)
    world.turn()
    assert client.connection.closed and client.answers == []
    assert committed(world) == ([-1, -1] if before else [5, 5])
    assert fault.hits == 1
    assert set(commit(other, offset=6).values()) == {0}


def test_an_idempotent_produce_whose_answer_was_lost_is_stored_once(world):
    add(world, DISCONNECT, "Produce", before=False)
    data = batch(b"x", producer_id=7, producer_epoch=0, base_sequence=0)
    client = world.connect()
    client.send(produce_request("orders", data), 9)
    world.turn()
    assert client.connection.closed
    assert world.connect().produce("orders", data).base_offset == 0
    assert world.core.topics.by_name["orders"].partitions[0].log.end_offset == 1


def test_nothing_is_asked_of_the_rules_when_there_are_none(world, monkeypatch):
    fault = add(world, FAIL, "OffsetCommit", code=CODE)
    world.core.faults.remove(fault)
    monkeypatch.setattr(world.core.faults, "catch", lambda *_: pytest.fail("asked"))
    assert set(commit(world.connect()).values()) == {0}
