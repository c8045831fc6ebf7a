"""librdkafka against the broker: what a user of confluent-kafka sees."""

import threading

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

LIMIT_S = 60


def produce(broker, topic, values, *, config=None, **fields):
    delivered = []
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap_servers} | (config or {}))
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, message: delivered.append((error, message)), **fields)
        producer.poll(0)
    assert producer.flush(LIMIT_S) == 0
    assert [error for error, _ in delivered if error] == []
    return [message for _, message in delivered]


def consumer(broker, **config):
    base = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "unused", "enable.auto.commit": False}
    return ck.Consumer(base | {name.replace("_", "."): value for name, value in config.items()})


def read(broker, topic, count, *, partition=0, offset=0, **config):
    reader = consumer(broker, **config)
    reader.assign([ck.TopicPartition(topic, partition, offset)])
    messages = []
    while len(messages) < count:
        batch = reader.consume(count - len(messages), LIMIT_S)
        assert batch, f"only {len(messages)} of {count} records"
        for message in batch:
            assert message.error() is None
            messages.append(message)
    reader.close()
    return messages


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("idempotent", [False, True])
def test_round_trip(broker, codec, idempotent):
    values = [b"%d " % i * 20 for i in range(500)]
    config = {"compression.type": codec, "enable.idempotence": idempotent, "linger.ms": 5}
    sent = produce(broker, "t", values, config=config)
    assert [message.offset() for message in sent] == list(range(500))
    assert [message.value() for message in read(broker, "t", 500)] == values


def test_keys_headers_timestamps_and_nulls(broker):
    headers = [("a", b"1"), ("a", b"2"), ("empty", b""), ("none", None)]
    produce(broker, "t", [b"v"], key=b"k", headers=headers, timestamp=1_600_000_000_123)
    produce(broker, "t", [None], key=None)
    first, second = read(broker, "t", 2)
    assert (first.key(), first.value(), first.headers()) == (b"k", b"v", headers)
    assert first.timestamp() == (ck.TIMESTAMP_CREATE_TIME, 1_600_000_000_123)
    assert (second.key(), second.value(), second.headers()) == (None, None, None)


def test_large_messages(broker):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    topic = NewTopic("big", 1, config={"max.message.bytes": str(40_000_000)})
    admin.create_topics([topic])["big"].result(LIMIT_S)
    value = bytes(range(256)) * 40_000
    produce(broker, "big", [value, value], config={"message.max.bytes": 20_000_000})
    messages = read(broker, "big", 2, fetch_max_bytes=1_000_000_000, max_partition_fetch_bytes=20_000_000)
    assert [message.value() == value for message in messages] == [True, True]


def test_a_message_over_the_limit_is_an_error_for_that_message(broker):
    errors = []
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap_servers, "message.max.bytes": 20_000_000})
    producer.produce("t", b"x" * 5_000_000, on_delivery=lambda error, _: errors.append(error.code()))
    producer.flush(LIMIT_S)
    assert errors == [ck.KafkaError.MSG_SIZE_TOO_LARGE]
    produce(broker, "t", [b"fine"])


def test_seek_by_timestamp(broker):
    for timestamp in (1000, 2000, 3000):
        produce(broker, "t", [b"%d" % timestamp], timestamp=timestamp)
    reader = consumer(broker)
    found = reader.offsets_for_times([ck.TopicPartition("t", 0, 1500)], LIMIT_S)
    assert [partition.offset for partition in found] == [1]
    assert reader.get_watermark_offsets(ck.TopicPartition("t", 0), LIMIT_S) == (0, 3)
    reader.close()


def test_long_poll_delivers_what_comes_later(broker):
    produce(broker, "t", [b"first"])
    reader = consumer(broker, fetch_wait_max_ms=10_000)
    reader.assign([ck.TopicPartition("t", 0, 1)])
    assert reader.poll(0.5) is None
    later = threading.Timer(0.1, produce, (broker, "t", [b"second"]))
    later.start()
    assert reader.poll(LIMIT_S).value() == b"second"
    later.join()
    reader.close()


def test_offset_out_of_range_resets(broker):
    produce(broker, "t", [b"a", b"b"])
    (message,) = read(broker, "t", 1, offset=100, auto_offset_reset="earliest")
    assert message.offset() == 0


def test_topic_administration(broker):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic("a", 2, 1), NewTopic("b", 1, 1)])["a"].result(LIMIT_S)
    with pytest.raises(ck.KafkaException) as raised:
        admin.create_topics([NewTopic("a", 2, 1)])["a"].result(LIMIT_S)
    assert raised.value.args[0].code() == ck.KafkaError.TOPIC_ALREADY_EXISTS
    admin.create_partitions([NewPartitions("a", 5)])["a"].result(LIMIT_S)
    assert len(admin.list_topics("a", LIMIT_S).topics["a"].partitions) == 5
    described = admin.describe_topics(ck.TopicCollection(["a"]))["a"].result(LIMIT_S)
    assert len(described.partitions) == 5 and described.topic_id is not None
    assert len(admin.describe_cluster().result(LIMIT_S).nodes) == 1
    admin.delete_topics(["b"])["b"].result(LIMIT_S)
    assert "b" not in admin.list_topics(timeout=LIMIT_S).topics


def test_configs(broker):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic("t", 1, 1)])["t"].result(LIMIT_S)
    entry = ConfigEntry("retention.ms", "4321", incremental_operation=AlterConfigOpType.SET)
    change = ConfigResource(ResourceType.TOPIC, "t", incremental_configs=[entry])
    admin.incremental_alter_configs([change])[change].result(LIMIT_S)
    resource = ConfigResource(ResourceType.TOPIC, "t")
    values = admin.describe_configs([resource])[resource].result(LIMIT_S)
    assert values["retention.ms"].value == "4321"
    assert values["cleanup.policy"].is_default
    resource = ConfigResource(ResourceType.BROKER, "1")
    assert admin.describe_configs([resource])[resource].result(LIMIT_S)["node.id"].value == "1"


def test_delete_records_and_list_offsets(broker):
    produce(broker, "t", [b"a"] * 10)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    partition = ck.TopicPartition("t", 0, 4)
    assert admin.delete_records([partition])[partition].result(LIMIT_S).low_watermark == 4
    partition = ck.TopicPartition("t", 0)
    for spec, offset in ((OffsetSpec.earliest(), 4), (OffsetSpec.latest(), 10)):
        assert admin.list_offsets({partition: spec})[partition].result(LIMIT_S).offset == offset


def test_statistics_show_the_api_versions_in_use(broker):
    """librdkafka negotiates: nothing it needs is missing from ApiVersions."""
    produce(broker, "t", [b"a"], config={"enable.idempotence": True, "api.version.request": True})
    assert read(broker, "t", 1, isolation_level="read_committed")[0].value() == b"a"
