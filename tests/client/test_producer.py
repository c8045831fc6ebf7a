"""Producers against a broker: what they store, where, and what they say when they cannot."""

import asyncio

import pytest

import kohort
from kohort.client import AsyncProducer, ConfigError, KafkaError, TopicPartition
from kohort.client.partitioner import partition_for_key

LIMIT_S = 60


@pytest.fixture(scope="module")
def broker():
    with kohort.Broker(config={"num.partitions": 4}) as running:
        yield running


def producer(broker, **settings):
    return kohort.Producer(bootstrap_servers=broker.bootstrap_servers, **settings)


def stored(broker, topic):
    """Every record of a topic, by (partition, offset)."""
    with kohort.Consumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        partitions = [TopicPartition(topic, p.partition) for p in consumer.partitions_for(topic)]
        left = sum(consumer.end_offsets(partitions).values())
        consumer.assign(partitions)
        records = []
        while len(records) < left:
            records += consumer.poll(LIMIT_S)
    return sorted(records, key=lambda r: (r.partition, r.offset))


def test_a_record_with_all_it_can_have(broker):
    with producer(broker) as p:
        done = p.send("whole", "v", key="k", headers={"a": "b", "n": None}, partition=3, timestamp_ms=5).result(LIMIT_S)
    assert done == ("whole", 3, 0, 5)
    (record,) = stored(broker, "whole")
    assert (record.key, record.value, record.headers) == (b"k", b"v", (("a", b"b"), ("n", None)))


def test_keys_go_where_every_kafka_client_puts_them(broker):
    with producer(broker) as p:
        sent = [(key, p.send("keyed", b"", key=key)) for key in (b"%d" % i for i in range(50))]
    assert all(delivery.result(LIMIT_S).partition == partition_for_key(key, 4) for key, delivery in sent)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_order_and_number_survive_every_codec(broker, codec):
    with producer(broker, compression_type=codec, batch_size=2000, linger_ms=0) as p:
        for i in range(500):
            p.send(f"codec-{codec}", str(i), partition=i % 2)
    values = [(r.partition, int(r.value)) for r in stored(broker, f"codec-{codec}")]
    assert values == [(0, i) for i in range(0, 500, 2)] + [(1, i) for i in range(1, 500, 2)]


def test_a_restart_of_the_broker_neither_loses_nor_doubles(broker):
    with producer(broker, linger_ms=0, batch_size=500) as p:
        for i in range(2000):
            p.send("restarted", str(i), partition=0)
            if i == 700:
                broker.restart()
        p.flush(LIMIT_S)
    assert [int(r.value) for r in stored(broker, "restarted")] == list(range(2000))


def test_a_broker_that_is_not_there_is_told_as_such():
    settings = {"delivery_timeout_ms": 400, "request_timeout_ms": 300, "max_block_ms": 400}
    lonely = kohort.Producer(bootstrap_servers="127.0.0.1:1", **settings)
    with pytest.raises(KafkaError, match=r"cannot connect to 127\.0\.0\.1:1") as raised:
        lonely.send("orders", b"x")
        lonely.flush()
    assert "UNKNOWN_TOPIC" not in str(raised.value)
    lonely.close()


@pytest.mark.parametrize(("acks", "offset"), [("0", -1), ("1", 0), ("all", 0)])
def test_acks(broker, acks, offset):
    with producer(broker, acks=acks) as p:
        assert p.send(f"acks-{acks}", b"x").result(LIMIT_S).offset == offset
    assert len(stored(broker, f"acks-{acks}")) == 1 or acks == "0"


def test_a_batch_the_topic_refuses_is_divided(broker):
    from kohort.client.admin_types import NewTopic

    with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("small", 1, 1, {"max.message.bytes": "1000"})])
    with producer(broker, linger_ms=200) as p:
        sent = [p.send("small", b"x" * 200) for _ in range(16)]
        with pytest.raises(KafkaError, match="exceeds the maximum"):
            p.send("small", b"x" * 2000).result(LIMIT_S)
        assert sorted(d.result(LIMIT_S).offset for d in sent) == list(range(16))
        assert p.send("small", b"after").result(LIMIT_S).offset == 16


def test_flush_raises_what_nobody_looked_at(broker):
    p = producer(broker)
    with pytest.raises(KafkaError, match="partitions 0 to 3"):
        p.send("keyed", b"", partition=9)
    p.send("small", b"x" * 2000)
    with pytest.raises(KafkaError, match="exceeds"):
        p.flush(LIMIT_S)
    p.flush(LIMIT_S)
    p.close()


def test_wrong_settings_say_what_to_do(broker):
    with pytest.raises(ConfigError, match=r"did you mean 'linger.ms'"):
        producer(broker, linge_ms=5)
    with pytest.raises(ConfigError, match="needs acks=all"):
        producer(broker, acks=1, enable_idempotence=True)
    with pytest.raises(ConfigError, match="none, gzip"):
        producer(broker, compression_type="brotli")
    with producer(broker) as p, pytest.raises(TypeError, match="bytes, str or None"):
        p.send("keyed", 5)
    with producer(broker) as p, pytest.raises(TypeError, match="header h must be bytes"):
        p.send("keyed", b"", headers={"h": 5})
    with producer(broker) as p, pytest.raises(ValueError, match="milliseconds since 1970"):
        p.send("keyed", b"", timestamp_ms=-5)


def test_a_small_buffer_only_makes_send_wait(broker):
    with producer(broker, buffer_memory=5000, linger_ms=0) as p:
        for _ in range(200):
            p.send("keyed", b"x" * 1000)


def test_asyncio(broker):
    async def main():
        async with AsyncProducer(bootstrap_servers=broker.bootstrap_servers) as p:
            deliveries = [await p.send("async", str(i), partition=0) for i in range(100)]
            return [(await delivery).offset for delivery in deliveries]

    assert asyncio.run(main()) == list(range(100))
