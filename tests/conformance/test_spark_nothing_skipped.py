"""On a real Apache Kafka: topics that grow or are created again, and what its clients see of a query's commits."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ConfluentPartition

from apache_kafka import ApacheKafka
from kohort.spark import fetch
from kohort.spark.accounting import DataLossError
from spark.query import Query, committed, create, create_again, grow, numbers, produce, stopping, unique, until


@pytest.fixture
def servers(apache_kafka: ApacheKafka) -> str:
    return apache_kafka.bootstrap_servers


@pytest.fixture
def topic(servers: str) -> str:
    name = unique("orders")
    create(servers, name, 2)
    return name


def test_a_topic_that_grows_is_read_from_the_first_record_of_its_new_partitions(servers: str, topic: str) -> None:
    group = unique()
    query = Query(servers, group, subscribe=topic, startingOffsets="latest")
    with stopping(query):
        until(lambda: not query.plan() and len(query.owned()) == 2)
        grow(servers, topic, 4)
        for partition in (2, 3):
            produce(servers, topic, numbers(partition * 1100, partition * 1100 + 1100), partition=partition)
        query.step_until(2200)
        assert sorted(query.values(), key=int) == numbers(2200, 4400)
    assert committed(servers, group, topic) == {0: 0, 1: 0, 2: 1100, 3: 1100}


@pytest.mark.parametrize("running", [True, False])
@pytest.mark.parametrize("strict", [True, False])
def test_a_topic_that_was_created_again(
    servers: str, topic: str, running: bool, strict: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "GONE_PATIENCE_MS", 1000)
    produce(servers, topic, numbers(0, 100), partition=0)
    group, options = unique(), {"subscribe": topic, "failOnDataLoss": "true" if strict else "false"}
    query = Query(servers, group, **options)
    query.step_until(100)
    if not running:
        query.stop()
    create_again(servers, topic)
    produce(servers, topic, numbers(100, 250), partition=0)
    if not running:
        query = Query(servers, group, checkpoint=query.offset, **options)
    with stopping(query):
        if strict:
            with pytest.raises(DataLossError, match="created again"):
                until(query.step)
        else:
            until(lambda: query.step() is not None and "249" in query.values())
            query.plan_nothing()
            assert query.values()[-150:] == numbers(100, 250)
            assert committed(servers, group, topic, 2)[0] == 150


def test_librdkafka_reads_the_metadata_of_commits(servers: str) -> None:
    topic, group = unique("wide"), unique()
    create(servers, topic, 40)
    query = Query(servers, group, subscribe=topic)
    until(lambda: not query.plan() and len(query.owned()) == 40)
    query.stop()
    for _ in range(5):
        consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
        try:
            found = consumer.committed([ConfluentPartition(topic, number) for number in range(40)], timeout=30)
        finally:
            consumer.close()
        assert len({tp.metadata for tp in found}) == 1
        assert found[0].metadata.split(":")[0] == "kohort-spark" and found[0].metadata.endswith(":40")
