"""kafka-python against the broker."""

import kafka.codec
import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic

LIMIT_S = 60


def produce(broker, topic, values, **options):
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, **options)
    sent = [
        producer.send(topic, value, key=b"k", headers=[("h", b"x")], timestamp_ms=5000 + i)
        for i, value in enumerate(values)
    ]
    producer.flush(LIMIT_S)
    offsets = [future.get(LIMIT_S).offset for future in sent]
    producer.close()
    return offsets


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_round_trip(broker, codec):
    if codec and not getattr(kafka.codec, f"has_{codec}")():
        pytest.skip(f"kafka-python finds no {codec} library")
    values = [b"%d " % i * 20 for i in range(300)]
    assert produce(broker, "t", values, compression_type=codec) == list(range(300))
    consumer = KafkaConsumer(
        "t", bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest", consumer_timeout_ms=30_000
    )
    found = []
    for record in consumer:
        found.append(record)
        if len(found) == len(values):
            break
    consumer.close()
    assert [record.value for record in found] == values
    assert (found[7].key, list(found[7].headers), found[7].timestamp) == (b"k", [("h", b"x")], 5007)


def test_offsets(broker):
    produce(broker, "t", [b"a", b"b", b"c"])
    partition = TopicPartition("t", 0)
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers)
    assert consumer.beginning_offsets([partition]) == {partition: 0}
    assert consumer.end_offsets([partition]) == {partition: 3}
    assert consumer.offsets_for_times({partition: 5001})[partition].offset == 1
    consumer.close()


def test_administration(broker):
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    admin.create_topics([NewTopic("t", num_partitions=3, replication_factor=1)])
    assert "t" in admin.list_topics()
    admin.delete_topics(["t"])
    assert "t" not in admin.list_topics()
    admin.close()
