"""Requests that take long leave room for others: slices, other threads, a budget of time for every connection."""

import threading
import time
import tracemalloc

import pytest

import kohort
from kohort.broker.acls import Acls, acl
from kohort.broker.apis.fetch import MANY_PARTITIONS, PARTITIONS_AT_ONCE
from kohort.broker.config_keys import AUTHORIZER
from kohort.broker.groups import GroupService
from kohort.broker.topics import SLICE
from kohort.coordinator.coordinator import GROUPS_AT_ONCE
from kohort.protocol import messages
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.frames import decode_response, encode_request
from wire import WireClient, World, batch, fetch_request, run_job


@pytest.fixture
def world():
    return World({"offsets.topic.num.partitions": 3}, groups=GroupService)


def turns(world, client):
    """How many turns a request takes until it is answered, each with an answer to somebody else."""
    other, count = world.connect(), 0
    while not client.answers:
        count += 1
        assert count < 10_000
        other.send(messages.MetadataRequest(topics=[]), 9)
        for connection in world.core.flush(world.now_ms):
            connection.shell.deliver()
        assert len(other.answers) == count, "nobody else waits for it"
        for job in world.core.take_jobs():
            run_job(world.core, job, world.now_ms)
    return count


def create(name, partitions):
    kind = messages.CreateTopicsRequest
    return kind(topics=[kind.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)])


def test_many_partitions_are_created_grown_and_deleted_in_slices(world):
    client = world.connect()
    client.send(create("t", 10 * SLICE), 7)
    assert "t" not in world.core.topics.by_name, "nobody sees half a topic"
    assert world.connect().call(create("t", 1), 7).topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    turns(world, client)
    assert len(world.core.topics.by_name["t"].partitions) == 10 * SLICE

    grow = messages.CreatePartitionsRequest
    client.answers.clear()
    more = [grow.CreatePartitionsTopic(name="t", count=20 * SLICE, assignments=None)]
    client.send(grow(topics=more, timeout_ms=1000), 3)
    assert len(world.core.topics.by_name["t"].partitions) == 10 * SLICE
    assert turns(world, client) > 1
    assert {p.topic for p in world.core.topics.by_name["t"].partitions} == {world.core.topics.by_name["t"]}
    assert len(world.core.topics.by_name["t"].partitions) == 20 * SLICE

    client.answers.clear()
    delete = messages.DeleteTopicsRequest
    client.send(delete(topics=[delete.DeleteTopicState(name="t", topic_id=b"\0" * 16)], timeout_ms=1000), 6)
    assert "t" not in world.core.topics.by_name and world.store.logs, "gone at once, removed in slices"
    assert turns(world, client) > 1
    assert client.answers[0].responses[0].error_code == 0
    assert not world.store.logs
    assert client.call(create("t", 1), 7).topics[0].error_code == 0


def test_a_creation_goes_on_when_its_client_is_gone(world):
    client = world.connect()
    client.send(create("t", 10 * SLICE), 7)
    world.core.connection_lost(client.connection)
    world.turn()
    assert len(world.core.topics.by_name["t"].partitions) == 10 * SLICE


def test_a_crash_between_two_slices_leaves_a_whole_topic(world):
    world.connect().send(create("t", 10 * SLICE), 7)
    assert 0 < len(world.store.logs) < 10 * SLICE
    again = World(store=world.store)
    assert len(again.core.topics.by_name["t"].partitions) == 10 * SLICE


def test_a_creation_that_fails_halfway_leaves_nothing(world, monkeypatch):
    create_log, made = world.store.create, []

    def fails_late(*given, **more):
        if len(made) == 3 * SLICE:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no space")
        made.append(given)
        return create_log(*given, **more)

    monkeypatch.setattr(world.store, "create", fails_late)
    client = world.connect()
    assert client.call(create("t", 10 * SLICE), 7).topics[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert not world.store.logs and "t" not in world.core.topics.by_name
    assert "t" not in World(store=world.store).core.topics.by_name


def test_metadata_of_many_topics(world):
    for number in range(30):
        world.create_topic(f"t{number}", 100)
    client = world.connect()
    client.send(messages.MetadataRequest(topics=None), 9)
    assert turns(world, client) > 1
    assert len(client.answers[0].topics) == 30


def test_metadata_of_many_names_takes_their_bytes_not_their_objects(world):
    """A name of 10 bytes costs its request some 200; with an object for each row of the answer it was 900."""
    world.create_topic("n7", 2)
    names, client = [f"n{number}" for number in range(20_000)], world.connect()
    client.deliver = lambda: client.answers.extend(client.connection.take_output())
    kind = messages.MetadataRequest
    request = kind(topics=[kind.MetadataRequestTopic(name=n) for n in names], allow_auto_topic_creation=False)
    frame = b"".join(map(bytes, encode_request(1, "many", 9, request)))[4:]
    del request
    tracemalloc.start()
    try:
        client.send_raw(frame)
        assert turns(world, client) > 10
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    answer = decode_response(b"".join(client.answers)[4:], 9, messages.MetadataResponse)
    assert [topic.name for topic in answer.topics] == names
    assert [len(topic.partitions) for topic in answer.topics[6:9]] == [0, 2, 0]
    assert peak < 400 * len(names), f"{peak / len(names):.0f} bytes a name"


@pytest.mark.parametrize("epoch", [-1, 0], ids=["no session", "a new session"])
def test_a_fetch_of_many_partitions_makes_its_rows_in_slices(world, epoch):
    world.create_topic("t", 2)
    client = world.connect()
    client.produce("t", batch(b"a"), partition=1)
    client.answers.clear()
    request = fetch_request("t", *[0] * (3 * MANY_PARTITIONS))
    request.session_epoch = epoch
    client.send(request, 12)
    assert turns(world, client) > 3 * MANY_PARTITIONS / PARTITIONS_AT_ONCE
    (answer,) = client.answers
    assert bool(answer.session_id) == (epoch == 0)
    assert [row.partition_index for row in answer.responses[0].partitions] == list(range(3 * MANY_PARTITIONS))
    assert [bool(row.records) for row in answer.responses[0].partitions[:3]] == [False, True, False]
    assert world.core.topics.by_name["t"].partitions[1].bytes_out > 0


def test_a_fetch_of_many_partitions_is_answered_in_slices(world):
    world.create_topic("t", 2)
    client = world.connect()
    client.produce("t", batch(b"a"), partition=1)
    client.answers.clear()
    request = fetch_request("t", *[0] * (MANY_PARTITIONS + 1), max_wait_ms=60_000, min_bytes=100_000)
    client.send(request, 12)
    assert turns(world, client) > 1
    rows = client.answers[0].responses[0].partitions
    assert len(rows) == MANY_PARTITIONS + 1
    assert rows[1].records and rows[2].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("committed", [True, False])
def test_offsets_of_many_groups(world, committed):
    world.create_topic("t")
    client = world.connect()
    client.call(messages.FindCoordinatorRequest(key_type=0, coordinator_keys=["g0"]), 4)
    commit = messages.OffsetCommitRequest
    row = commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
    topics = [commit.OffsetCommitRequestTopic(name="t", partitions=[row])]
    for number in range(250 if committed else 0):
        client.call(commit(group_id=f"g{number}", topics=topics), 8)
    client.answers.clear()
    fetch = messages.OffsetFetchRequest
    names = [f"g{number}" for number in range(250)]
    client.send(fetch(groups=[fetch.OffsetFetchRequestGroup(group_id=name, topics=None) for name in names]), 8)
    assert turns(world, client) > 1
    groups = client.answers[0].groups
    assert [group.group_id for group in groups] == names
    assert all(bool(group.topics) == committed for group in groups)


def test_many_groups_are_listed_in_slices(world):
    client = committed_groups(world, GROUPS_AT_ONCE * 2 + 1)
    client.send(messages.ListGroupsRequest(), 4)
    assert turns(world, client) > 1
    names = [group.group_id for group in client.answers[0].groups]
    assert sorted(names) == sorted(f"g{number}" for number in range(GROUPS_AT_ONCE * 2 + 1))


def test_a_list_of_many_groups_leaves_out_what_was_deleted_meanwhile(world):
    client = committed_groups(world, GROUPS_AT_ONCE * 2)
    world.run_jobs = False
    client.send(messages.ListGroupsRequest(), 4)
    for connection in world.core.flush(world.now_ms):
        connection.shell.deliver()
    deleted = world.connect()
    names = [f"g{number}" for number in range(100)]
    assert not any(row.error_code for row in deleted.call(messages.DeleteGroupsRequest(groups_names=names), 2).results)
    world.run_jobs = True
    world.turn()
    assert client.answers[0].error_code == 0
    assert GROUPS_AT_ONCE <= len(client.answers[0].groups) < GROUPS_AT_ONCE * 2


def test_a_list_of_many_groups_that_a_failed_append_interrupts_is_asked_for_again(world):
    client = committed_groups(world, GROUPS_AT_ONCE * 2)
    world.run_jobs = False
    client.send(messages.ListGroupsRequest(), 4)
    for shard in list(world.groups.coordinator.runtime.shards.values()):
        world.groups.coordinator.runtime.crashed(shard, world.now_ms)
    world.run_jobs = True
    world.turn()
    assert client.answers[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    for _ in range(50):
        world.advance(100)
    assert len(client.call(messages.ListGroupsRequest(), 4).groups) == GROUPS_AT_ONCE * 2


def committed_groups(world, count):
    """`count` groups with an offset each; the client has no answers left."""
    world.create_topic("t")
    client = world.connect()
    client.call(messages.FindCoordinatorRequest(key_type=0, coordinator_keys=["g0"]), 4)
    for number in range(count):
        client.send(commit_request(f"g{number}", "t", [0]), 8)
    world.turn()
    client.answers.clear()
    return client


def commit_request(group_id, topic, partitions):
    kind = messages.OffsetCommitRequest
    rows = [kind.OffsetCommitRequestPartition(partition_index=index, committed_offset=7) for index in partitions]
    return kind(group_id=group_id, topics=[kind.OffsetCommitRequestTopic(name=topic, partitions=rows)])


def test_a_commit_that_can_never_be_one_batch_is_refused_in_slices(world):
    client = committed_groups(world, 1)
    client.send(commit_request("g0", "t", [0] * 30_000), 8)
    assert turns(world, client) > 1
    rows = client.answers[0].topics[0].partitions
    assert len(rows) == 30_000 and {row.error_code for row in rows} == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}


def test_offsets_of_many_partitions_are_listed_in_slices(world):
    world.create_topic("t", 2)
    client = world.connect()
    kind = messages.ListOffsetsRequest
    rows = [kind.ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(2_000)]
    client.send(kind(topics=[kind.ListOffsetsTopic(name="t", partitions=rows)]), 7)
    assert turns(world, client) > 5
    codes = [row.error_code for row in client.answers[0].topics[0].partitions]
    assert codes == [0, 0] + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 1_998


@pytest.mark.parametrize("number", [1, 300])
def test_configurations_of_many_resources_are_described_in_slices(world, number):
    world.create_topic("t")
    client = world.connect()
    kind = messages.DescribeConfigsRequest
    client.send(
        kind(
            resources=[kind.DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=None)]
            * number
        ),
        4,
    )
    assert (turns(world, client) > 5) == (number > 1)
    results = client.answers[0].results
    assert len(results) == number and all(result.configs and not result.error_code for result in results)


def test_coordinators_of_many_groups_are_found_in_slices(world):
    client = world.connect()
    client.send(messages.FindCoordinatorRequest(key_type=0, coordinator_keys=[f"g{n}" for n in range(3_000)]), 4)
    assert turns(world, client) > 3
    assert len(client.answers[0].coordinators) == 3_000


def test_one_topic_of_many_partitions_is_shown_in_slices(world):
    world.create_topic("t", 5_000)
    client = world.connect()
    client.send(messages.MetadataRequest(topics=None), 9)
    assert turns(world, client) > 3
    assert [row.partition_index for row in client.answers[0].topics[0].partitions] == list(range(5_000))


def test_many_groups_are_deleted_once_each(world):
    client = world.connect()
    client.call(messages.FindCoordinatorRequest(key_type=0, coordinator_keys=["g0"]), 4)
    names = [f"g{number % 200}" for number in range(300)]
    client.answers.clear()
    client.send(messages.DeleteGroupsRequest(groups_names=names), 2)
    turns(world, client)
    codes = {row.group_id: row.error_code for row in client.answers[0].results}
    assert len(client.answers[0].results) == 200 and set(codes.values()) == {ErrorCode.GROUP_ID_NOT_FOUND}


@pytest.fixture
def guarded():
    made = World({"offsets.topic.num.partitions": 3, "authorizer.class.name": AUTHORIZER}, groups=GroupService)
    made.core.access.give(acl("alice", "ALL", kind, "a", pattern="PREFIXED") for kind in ("TOPIC", "GROUP"))
    made.create_topic("a1", 1)
    return made


def as_alice(world):
    client = world.connect()
    client.connection.principal = "User:alice"
    return client


def many_names():
    kind, names = messages.MetadataRequest, [f"{'ab'[number % 2]}{number}" for number in range(3_000)]
    return kind(topics=[kind.MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False), 9


def many_groups():
    return messages.DeleteGroupsRequest(groups_names=[f"{'ab'[number % 2]}{number}" for number in range(4_000)]), 2


def many_partitions():
    kind = messages.ProduceRequest
    rows = [kind.PartitionProduceData(index=number, records=b"") for number in range(3_000)]
    return kind(acks=-1, topic_data=[kind.TopicProduceData(name=name, partition_data=rows) for name in "ab"]), 9


@pytest.mark.parametrize("make", [many_names, many_groups, many_partitions])
def test_with_an_authorizer_many_names_are_decided_on_elsewhere(guarded, monkeypatch, make):
    allows, asked, client = Acls.allows, [], as_alice(guarded)
    monkeypatch.setattr(Acls, "allows", lambda *given: asked.append(given[-1]) or allows(*given))
    client.send(*make())
    for connection in guarded.core.flush(guarded.now_ms):
        connection.shell.deliver()
    assert not asked, "nothing was decided within the turn"
    turns(guarded, client)
    assert {name[0] for name in asked} >= {"a", "b"}
    (answer,) = client.answers
    rows = getattr(answer, {many_names: "topics", many_groups: "results", many_partitions: "responses"}[make])
    refused = {row.name if hasattr(row, "name") else row.group_id: row for row in rows}
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED if make is many_groups else ErrorCode.TOPIC_AUTHORIZATION_FAILED
    for name, row in refused.items():
        codes = {part.error_code for part in getattr(row, "partition_responses", [row])}
        assert (codes == {code}) == name.startswith("b"), name


def test_with_an_authorizer_a_large_answer_is_changed_elsewhere(guarded, monkeypatch):
    for number in range(2_000):
        guarded.create_topic(f"{'ab'[number % 2]}{number + 2}")
    jobs, run = [], guarded.core.run_elsewhere
    monkeypatch.setattr(guarded.core, "run_elsewhere", lambda job: jobs.append(type(job).__name__) or run(job))
    client = as_alice(guarded)
    client.send(messages.MetadataRequest(topics=None), 9)
    turns(guarded, client)
    assert "Editing" in jobs
    assert {topic.name[0] for topic in client.answers[0].topics} == {"a"} and len(client.answers[0].topics) == 1_001
    client.call(messages.MetadataRequest(topics=[]), 9)


def test_a_large_request_is_read_elsewhere_and_keeps_its_place(world):
    client = world.connect()
    names = [messages.MetadataRequest.MetadataRequestTopic(name="n" * 200 + str(n)) for n in range(3000)]
    world.run_jobs = False
    client.send(messages.MetadataRequest(topics=names, allow_auto_topic_creation=False), 9)
    assert client.connection.reading is not None
    world.run_jobs = True
    world.turn()
    assert client.connection.reading is None
    assert len(client.answers[0].topics) == 3000


def test_a_large_request_that_cannot_be_read_costs_its_connection(world):
    client = world.connect()
    names = [messages.MetadataRequest.MetadataRequestTopic(name="n" * 200) for n in range(3000)]
    frame = b"".join(map(bytes, encode_request(1, "x", 9, messages.MetadataRequest(topics=names))))[4:-50_000]
    client.send_raw(frame)
    world.turn()
    assert "malformed" in client.connection.close_reason


def test_more_names_than_any_cluster_has_are_not_read(world):
    client = world.connect()
    head = b"".join(map(bytes, encode_request(1, "x", 8, messages.MetadataRequest(topics=[]))))[4:]
    body = head.index(b"x") + 1
    frame = head[:body] + (300_000).to_bytes(4, "big") + b"\0\1n" * 300_000 + b"\0\0\0"
    client.send_raw(frame)
    world.turn()
    assert "too many elements" in client.connection.close_reason


def product(request, version):
    """Rows within rows: each array is short, all together are many."""
    return b"".join(map(bytes, encode_request(1, "x", version, request)))[4:]


def wide_fetch():
    kind = messages.FetchRequest
    topic = kind.FetchTopic(topic="t", partitions=[kind.FetchPartition(partition=0)] * 1000)
    return product(kind(topics=[topic] * 251), 12)


def wide_produce():
    kind = messages.ProduceRequest
    topic = kind.TopicProduceData(name="t", partition_data=[kind.PartitionProduceData(records=b"")] * 1000)
    return product(kind(topic_data=[topic] * 21), 9)


def wide_offset_fetch():
    kind = messages.OffsetFetchRequest
    topic = kind.OffsetFetchRequestTopics(name="t", partition_indexes=[1] * 1000)
    return product(kind(groups=[kind.OffsetFetchRequestGroup(group_id="g", topics=[topic] * 10)] * 26), 9)


def numbers():
    kind = messages.OffsetFetchRequest
    topic = kind.OffsetFetchRequestTopic(name="t", partition_indexes=[1] * 250_001)
    return product(kind(group_id="g", topics=[topic]), 7)


def tagged():
    request = messages.MetadataRequest(topics=[])
    request.unknown_tags = {number: b"" for number in range(100, 117)}
    return product(request, 9)


@pytest.mark.parametrize("make", [wide_fetch, wide_produce, wide_offset_fetch, numbers, tagged])
def test_rows_within_rows_count_together(world, make):
    client = world.connect()
    client.send_raw(make())
    world.turn()
    assert "too many" in (client.connection.close_reason or ""), "and nothing was made of them"


def test_a_flood_on_one_connection_does_not_starve_the_others():
    with kohort.Broker(config={"offsets.topic.num.partitions": 2}) as broker:
        for number in range(20):
            broker.create_topic(f"t{number}", 100)
        hogs = [WireClient(broker.bootstrap_servers) for _ in range(4)]
        request = messages.MetadataRequest(topics=None)
        flood = b"".join(map(bytes, encode_request(1, "hog", 9, request))) * 500
        readers = [threading.Thread(target=_drain, args=(hog.socket,), daemon=True) for hog in hogs]
        for hog, reader in zip(hogs, readers, strict=True):
            reader.start()
            hog.socket.sendall(flood)
        innocent = WireClient(broker.bootstrap_servers)
        waits = []
        for _ in range(20):
            began = time.monotonic()
            innocent.call(messages.ApiVersionsRequest(), 0)
            waits.append(time.monotonic() - began)
        for client in (*hogs, innocent):
            client.close()
    assert sorted(waits)[10] < 1, "the flood takes minutes, an innocent request a moment"


def _drain(socket):
    try:
        while socket.recv(1 << 20):
            pass
    except OSError:
        pass
