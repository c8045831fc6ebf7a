"""The tables of the history read what a real Apache Kafka stored: generations, commits, a transaction's commits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import kohort.spark
from apache_kafka import ApacheKafka
from kohort import history
from kohort.history.ingest import Ingest
from spark.query import create, unique

LIMIT_S = 60


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    session = kohort.spark.session("tests", "local[2]", {"spark.driver.memory": "512m", "spark.log.level": "ERROR"})
    yield session
    session.stop()


def at_work(servers: str, group: str, topic: str, protocol: str) -> None:
    """A member that reads 30 records, commits two offsets and a transaction of its own, aborts another, and leaves."""
    create(servers, topic, 3)
    producer = Producer({"bootstrap.servers": servers, "transactional.id": unique("till")})
    producer.init_transactions(LIMIT_S)
    producer.begin_transaction()
    for number in range(30):
        producer.produce(topic, str(number), partition=number % 3)
    producer.commit_transaction(LIMIT_S)
    settings = {"group.id": group, "client.id": "worker", "auto.offset.reset": "earliest", "group.protocol": protocol}
    consumer = Consumer({"bootstrap.servers": servers, "enable.auto.commit": False, **settings})
    consumer.subscribe([topic])
    read = 0
    while read < 30:
        read += len(consumer.consume(30, LIMIT_S))
    consumer.commit(
        offsets=[TopicPartition(topic, 0, 4, metadata="half"), TopicPartition(topic, 1, 10)], asynchronous=False
    )
    for offset, keep in ((9, False), (10, True)):
        producer.begin_transaction()
        mine = consumer.consumer_group_metadata()
        producer.send_offsets_to_transaction([TopicPartition(topic, 2, offset)], mine, LIMIT_S)
        producer.commit_transaction(LIMIT_S) if keep else producer.abort_transaction(LIMIT_S)
    consumer.close()


def test_what_a_real_kafka_stored(spark: Any, apache_kafka: ApacheKafka, tmp_path: Path) -> None:
    servers, group, topic = apache_kafka.bootstrap_servers, unique("workers"), unique("orders")
    at_work(servers, group, topic, "classic")
    at_work(servers, unique("modern"), unique("orders"), "consumer")
    commits = history.commits(spark, servers, group).toArrow().to_pylist()
    # librdkafka sends its text with the byte that ends it in C.
    assert sorted((row["partition"], row["offset"], row["metadata"].rstrip("\0")) for row in commits) == [
        (0, 4, "half"), (1, 10, ""), (2, 10, ""),
    ], "and not what was aborted"  # fmt: skip
    generations = history.generations(spark, servers, group).orderBy("record_offset").cache()
    first, *_, last = (row for row in generations.toArrow().to_pylist() if row["generation"])
    (member,) = first["members"]
    assert (first["protocol"], member["client_id"], member["topics"]) == ("range", "worker", [topic])
    assert member["assignment"] == [{"topic": topic, "partitions": [0, 1, 2]}] and last["members"] == []
    events = history.group_events(spark, servers, group)
    told = history.rebalances(events, generations).orderBy("started").toArrow().to_pylist()
    assert [row["cause"] for row in told] == ["joined", "gone"]
    counts = {row["key_type"]: row for row in history.record_counts(spark, servers).toArrow().to_pylist()}
    assert set(counts) >= {1, 2, 3, 5, 8}, "classic records, and those of KIP-848"
    assert [(row["kind"], row["problem"], row["value"]) for row in history.quarantine(spark, servers).collect()] == []
    assert not any(row["damaged"] for row in counts.values())
    modern = history.group_records(spark, servers).toArrow().to_pylist()
    assert {row["kind"] for row in modern} >= {"ConsumerGroupMetadata", "ConsumerGroupCurrentMemberAssignment"}
    ends = history.end_offsets(spark, servers, [topic])
    lag = history.lag(history.commits(spark, servers, group), ends).toArrow().to_pylist()
    # The marker of the transaction that wrote the records is an offset of its own.
    assert {row["partition"]: row["lag"] for row in lag} == {0: 7, 1: 1, 2: 1}
    Ingest(spark, servers, tmp_path).run()
    assert Ingest(spark, servers, tmp_path).run() == 0, "nothing is left"
    for name in ("commits", "generations", "group_records", "quarantine"):
        live, kept = getattr(history, name)(spark, servers), history.kept_table(spark, tmp_path, name)
        assert sorted(map(str, kept.toArrow().to_pylist())) == sorted(map(str, live.toArrow().to_pylist())), name
