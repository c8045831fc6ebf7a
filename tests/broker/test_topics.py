"""Topic administration over the wire, and what the catalog keeps across restarts."""

import pytest

from kohort.protocol import messages
from kohort.protocol.errors import ErrorCode, KafkaError
from wire import World, batch


@pytest.fixture
def world():
    return World()


def create(client, *names, version=7, validate_only=False, partitions=1, replicas=1, configs=(), assignments=()):
    kind = messages.CreateTopicsRequest
    topics = [
        kind.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replicas,
            configs=[kind.CreatableTopicConfig(name=key, value=value) for key, value in configs],
            assignments=[
                kind.CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
                for index, brokers in assignments
            ],
        )
        for name in names
    ]
    return client.call(kind(topics=topics, timeout_ms=1000, validate_only=validate_only), version).topics


def metadata(client, *names, version=12, **options):
    kind = messages.MetadataRequest
    topics = [kind.MetadataRequestTopic(name=name) for name in names] if names else None
    return client.call(kind(topics=topics, **options), version)


@pytest.mark.parametrize("version", range(2, 8))
def test_created_topics_show_in_metadata(world, version):
    client = world.connect()
    (row,) = create(client, "t", version=version, partitions=3, configs=[("retention.ms", "1000")])
    assert row.error_code == 0
    (topic,) = metadata(client, "t").topics
    assert [p.partition_index for p in topic.partitions] == [0, 1, 2]
    assert {(p.leader_id, tuple(p.replica_nodes), tuple(p.isr_nodes)) for p in topic.partitions} == {(1, (1,), (1,))}
    if version >= 7:
        assert row.topic_id == topic.topic_id
    if version >= 5:
        assert (row.num_partitions, row.replication_factor) == (3, 1)
        assert {config.name: config.value for config in row.configs}["retention.ms"] == "1000"


def test_nobody_makes_the_log_of_kafkas_controllers(world):
    client = world.connect()
    (row,) = create(client, "__cluster_metadata")
    assert row.error_code == ErrorCode.INVALID_REQUEST and "prohibited" in row.error_message
    (topic,) = metadata(client, "__cluster_metadata", allow_auto_topic_creation=True).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (row,) = create(client, "other")
    assert row.error_message is None


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "ä", "x" * 250])
def test_invalid_names(world, name):
    client = world.connect()
    (row,) = create(client, name)
    assert row.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert row.error_message
    (topic,) = metadata(client, name, allow_auto_topic_creation=True).topics
    assert topic.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert not world.core.topics.by_name


def test_names_that_collide_in_metrics(world):
    client = world.connect()
    create(client, "a.b")
    (row,) = create(client, "a_b")
    assert row.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION and "collides" in row.error_message


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"partitions": 0}, ErrorCode.INVALID_PARTITIONS),
        ({"partitions": -2}, ErrorCode.INVALID_PARTITIONS),
        ({"replicas": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"replicas": 3}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"partitions": 10_001}, ErrorCode.POLICY_VIOLATION),
        ({"configs": [("no.such", "1")]}, ErrorCode.INVALID_CONFIG),
        ({"configs": [("retention.ms", "soon")]}, ErrorCode.INVALID_CONFIG),
        ({"configs": [("retention.ms", None)]}, ErrorCode.INVALID_CONFIG),
        ({"assignments": [(0, [1])]}, ErrorCode.INVALID_REQUEST),
        ({"partitions": -1, "replicas": -1, "assignments": [(1, [1])]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"partitions": -1, "replicas": -1, "assignments": [(0, [2])]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"partitions": -1, "replicas": -1, "assignments": [(0, [1, 1])]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_refused_topics_leave_nothing(world, options, code):
    (row,) = create(world.connect(), "t", **options)
    assert ErrorCode(row.error_code) == code
    assert not world.core.topics.by_name and not world.store.logs


def test_manual_assignments_and_defaults(world):
    client = world.connect()
    (row,) = create(client, "a", partitions=-1, replicas=-1, assignments=[(0, [1]), (1, [1])])
    assert (row.error_code, row.num_partitions) == (0, 2)
    (row,) = create(client, "b", partitions=-1, replicas=-1)
    assert (row.error_code, row.num_partitions) == (0, 1)


def test_duplicates_and_existing(world):
    client = world.connect()
    assert [row.error_code for row in create(client, "a", "a", "b")] == [ErrorCode.INVALID_REQUEST, 0]
    assert create(client, "b")[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_validate_only_creates_nothing(world):
    client = world.connect()
    (row,) = create(client, "t", validate_only=True, partitions=2)
    assert (row.error_code, row.num_partitions) == (0, 2)
    assert create(client, "t", validate_only=True, replicas=2)[0].error_code != 0
    assert not world.core.topics.by_name


def test_auto_creation_follows_the_broker_and_the_client():
    world = World({"num.partitions": 4})
    client = world.connect()
    (topic,) = metadata(client, "t", allow_auto_topic_creation=False).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (topic,) = metadata(client, "t", allow_auto_topic_creation=True).topics
    assert (topic.error_code, len(topic.partitions)) == (0, 4)
    closed = World({"auto.create.topics.enable": "false"}).connect()
    (topic,) = metadata(closed, "t", allow_auto_topic_creation=True).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", range(14))
def test_metadata_of_all_topics_in_every_version(world, version):
    world.create_topic("a")
    world.create_topic("b")
    request = messages.MetadataRequest(topics=[] if version == 0 else None)
    answer = world.connect().call(request, version)
    assert sorted(topic.name for topic in answer.topics) == ["a", "b"]
    if version >= 1:
        assert world.connect().call(messages.MetadataRequest(topics=[]), version).topics == []


def test_metadata_by_id(world):
    topic = world.create_topic("t")
    kind = messages.MetadataRequest
    ids = [kind.MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in (topic.topic_id, b"x" * 16)]
    known, unknown = world.connect().call(kind(topics=ids), 12).topics
    assert (known.name, known.error_code) == ("t", 0)
    assert (unknown.name, unknown.error_code) == (None, ErrorCode.UNKNOWN_TOPIC_ID)


def test_authorized_operations_are_all_of_them(world):
    world.create_topic("t")
    client = world.connect()
    answer = metadata(client, "t", version=8, include_topic_authorized_operations=True)
    assert answer.topics[0].topic_authorized_operations == 3576
    answer = metadata(client, "t", version=8, include_cluster_authorized_operations=True)
    assert answer.cluster_authorized_operations == 8096


def test_deleting_by_name_and_id(world):
    one, two = world.create_topic("one", 2), world.create_topic("two")
    client = world.connect()
    answer = client.call(messages.DeleteTopicsRequest(topic_names=["one", "nope"], timeout_ms=1000), 4)
    assert [(row.name, row.error_code) for row in answer.responses] == [
        ("one", 0),
        ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    kind = messages.DeleteTopicsRequest
    states = [kind.DeleteTopicState(name=None, topic_id=topic_id) for topic_id in (two.topic_id, one.topic_id)]
    answer = client.call(kind(topics=states, timeout_ms=1000), 6)
    assert [(row.name, row.error_code) for row in answer.responses] == [
        ("two", 0),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    assert not world.store.logs
    assert create(client, "one")[0].error_code == 0


def test_deletion_can_be_disabled():
    world = World({"delete.topic.enable": "false"})
    world.create_topic("t")
    answer = world.connect().call(messages.DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
    assert answer.responses[0].error_code == ErrorCode.TOPIC_DELETION_DISABLED


def grow(client, name, count, *, validate_only=False, assignments=None):
    kind = messages.CreatePartitionsRequest
    topic = kind.CreatePartitionsTopic(name=name, count=count, assignments=assignments)
    return client.call(kind(topics=[topic], timeout_ms=1, validate_only=validate_only), 3).results[0]


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_a_change_whose_time_is_over_is_not_begun(world, timeout_ms):
    world.create_topic("t", 2)
    client, over = world.connect(), ErrorCode.REQUEST_TIMED_OUT
    create, delete, more = messages.CreateTopicsRequest, messages.DeleteTopicsRequest, messages.CreatePartitionsRequest
    new = create.CreatableTopic(name="new", num_partitions=1, replication_factor=1)
    row = more.CreatePartitionsTopic(name="t", count=4, assignments=None)
    assert client.call(create(topics=[new], timeout_ms=timeout_ms), 7).topics[0].error_code == over
    assert client.call(delete(topic_names=["t"], timeout_ms=timeout_ms), 5).responses[0].error_code == over
    assert client.call(more(topics=[row], timeout_ms=timeout_ms), 3).results[0].error_code == over
    assert list(world.core.topics.by_name) == ["t"] and len(world.core.topics.by_name["t"].partitions) == 2
    twice = client.call(create(topics=[new, new], timeout_ms=timeout_ms), 7).topics
    assert [row.error_code for row in twice] == [ErrorCode.INVALID_REQUEST], "that is known without a look at the time"


def test_partitions_grow_and_never_shrink(world):
    world.create_topic("t", 2)
    client = world.connect()
    assert grow(client, "t", 4, validate_only=True).error_code == 0
    assert len(world.core.topics.by_name["t"].partitions) == 2
    assert grow(client, "t", 4).error_code == 0
    assert len(metadata(client, "t").topics[0].partitions) == 4
    for count in (4, 1, 0, -1):
        assert grow(client, "t", count).error_code == ErrorCode.INVALID_PARTITIONS
    assert grow(client, "nope", 4).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert client.produce("t", batch(b"a"), partition=3).error_code == 0


def delete_records(client, offset, topic="t"):
    kind = messages.DeleteRecordsRequest
    row = kind.DeleteRecordsPartition(partition_index=0, offset=offset)
    answer = client.call(kind(topics=[kind.DeleteRecordsTopic(name=topic, partitions=[row])]), 2)
    row = answer.topics[0].partitions[0]
    return row.error_code, row.low_watermark


def test_deleting_records(world):
    world.create_topic("t")
    world.create_topic("c", cleanup_policy="compact")
    client = world.connect()
    for _ in range(5):
        client.produce("t", batch(b"a"))
    assert delete_records(client, 3) == (0, 3)
    assert delete_records(client, 1) == (0, 3)
    assert delete_records(client, 6) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete_records(client, -1) == (0, 5)
    assert delete_records(client, 0, "c") == (ErrorCode.POLICY_VIOLATION, -1)
    assert delete_records(client, 0, "nope") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


def test_describe_topic_partitions_pages(world):
    for name, count in (("b", 3), ("a", 2)):
        world.create_topic(name, count)
    client = world.connect()
    kind = messages.DescribeTopicPartitionsRequest
    seen, cursor = [], None
    for _ in range(10):
        request = kind(response_partition_limit=2)
        if cursor is not None:
            request.cursor = kind.Cursor(topic_name=cursor.topic_name, partition_index=cursor.partition_index)
        answer = client.call(request, 0)
        seen += [(topic.name, p.partition_index) for topic in answer.topics for p in topic.partitions]
        cursor = answer.next_cursor
        if cursor is None:
            break
    assert seen == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2)]
    answer = client.call(kind(topics=[kind.TopicRequest(name="zz")], response_partition_limit=10), 0)
    assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_cluster_log_dirs_and_producers(world):
    world.create_topic("t")
    client = world.connect()
    client.produce("t", batch(b"a", producer_id=5, producer_epoch=1, base_sequence=0))
    cluster = client.call(messages.DescribeClusterRequest(), 2)
    assert [(b.broker_id, b.host, b.port) for b in cluster.brokers] == [(1, "broker", 9092)]
    dirs = client.call(messages.DescribeLogDirsRequest(topics=None), 4).results[0]
    assert dirs.topics[0].partitions[0].partition_size == len(batch(b"a"))
    kind = messages.DescribeProducersRequest
    answer = client.call(kind(topics=[kind.TopicRequest(name="t", partition_indexes=[0, 1])]), 0)
    known, unknown = answer.topics[0].partitions
    assert [(p.producer_id, p.producer_epoch, p.last_sequence) for p in known.active_producers] == [(5, 1, 0)]
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# What stays.


def test_topics_configs_and_ids_survive_a_restart(world):
    topic = world.create_topic("t", 3, retention_ms="1234")
    world.connect().produce("t", batch(b"a"), partition=2)
    again = World(store=world.store)
    same = again.core.topics.by_name["t"]
    assert (same.topic_id, len(same.partitions), same.overrides) == (topic.topic_id, 3, {"retention.ms": "1234"})
    assert same.partitions[2].log.end_offset == 1
    assert same.config.retention_ms == 1234
    assert same.partitions[0].leader_epoch == 1


def test_a_state_that_cannot_be_saved_changes_nothing(world, monkeypatch):
    world.create_topic("kept")
    client = world.connect()

    def fail(*_):
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no space left")

    monkeypatch.setattr(world.store, "write_file", fail)
    assert create(client, "t")[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert grow(client, "kept", 2).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    answer = client.call(messages.DeleteTopicsRequest(topic_names=["kept"], timeout_ms=1000), 5)
    assert answer.responses[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert [(name, len(topic.partitions)) for name, topic in world.core.topics.by_name.items()] == [("kept", 1)]
    monkeypatch.undo()
    assert create(client, "t")[0].error_code == 0


def test_a_deletion_cut_short_is_finished_at_the_next_start(world, monkeypatch):
    world.create_topic("t", 2)
    monkeypatch.setattr(world.core.topics, "_delete_log", lambda partition, last: None)
    world.core.topics.delete(world.core.topics.by_name["t"])
    assert world.store.logs
    again = World(store=world.store)
    assert not again.core.topics.by_name and not again.store.logs


def test_logs_of_another_kafka_are_taken_in(world):
    topic = world.create_topic("t", 2)
    world.connect().produce("t", batch(b"a"), partition=1)
    world.store._files.clear()
    again = World(store=world.store)
    found = again.core.topics.by_name["t"]
    assert (found.topic_id, len(found.partitions), found.partitions[1].log.end_offset) == (topic.topic_id, 2, 1)
    assert found.partitions[1].leader_epoch == 1
