"""Racks on a real Kafka of three nodes: reads from near replicas (KIP-392), assignments that match racks (KIP-881)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import kohort
from apache_kafka import ApacheKafkaCluster
from kohort.client.admin_types import NewTopic
from kohort.client.blocking import BlockingTransport
from kohort.client.config import Config
from kohort.client.types import TopicPartition
from kohort.spark import fetch
from kohort.spark.connection import Pool
from spark.query import Query, committed, numbers, produce, stopping, unique, until

NEAR = {"kafka.client.rack": "rack-3", "metadata.max.age.ms": "60000"}
"""A leader's word on where to read counts for as long as metadata does."""


@pytest.fixture(scope="module")
def kafka(jdk: None) -> Iterator[ApacheKafkaCluster]:
    with ApacheKafkaCluster(3, {"offsets.topic.num.partitions": 1, "group.min.session.timeout.ms": 100}) as running:
        yield running


def create_on(kafka: ApacheKafkaCluster, replicas: dict[int, list[int]]) -> str:
    """A topic with its replicas on these nodes; the first of each leads."""
    topic = unique("orders")
    with kohort.Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(topic, replicas=replicas)])
    return topic


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The ports that tasks take connections to, in order."""
    ports: list[int] = []
    take = Pool.take

    def noted(self: Pool, host: str, port: int, config: Config) -> BlockingTransport:
        ports.append(port)
        return take(self, host, port, config)

    monkeypatch.setattr(Pool, "take", noted)
    return ports


def test_tasks_read_from_the_replica_in_their_rack(kafka: ApacheKafkaCluster, asked: list[int]) -> None:
    topic = create_on(kafka, {0: [1, 2, 3], 1: [2, 3, 1]})
    for partition in (0, 1):
        produce(kafka.bootstrap_servers, topic, numbers(partition * 100, partition * 100 + 100), partition=partition)
    group = unique()
    query = Query(kafka.bootstrap_servers, group, subscribe=topic, **NEAR)
    third = kafka.nodes[2].port
    with stopping(query):
        until(query.plan)
        asked.clear()
        query.run()
        query.step_until(200)
        assert sorted(query.values(), key=int) == numbers(0, 200)
        assert asked.count(third) >= 2, "one fetch for each partition went to the follower in rack-3"
        produce(kafka.bootstrap_servers, topic, numbers(200, 300), partition=0)
        until(query.plan)
        asked.clear()
        query.run()
        assert set(asked) == {third}, "the leader is not asked again, it has said where to read"
        query.plan_nothing()
    assert committed(kafka.bootstrap_servers, group, topic, 2) == {0: 200, 1: 100}


def test_tasks_read_from_the_leader_where_the_replica_is_gone(kafka: ApacheKafkaCluster, asked: list[int]) -> None:
    topic = create_on(kafka, {0: [1, 2]})
    produce(kafka.bootstrap_servers, topic, numbers(0, 100), partition=0)
    query = Query(kafka.bootstrap_servers, unique(), subscribe=topic, **{**NEAR, "kafka.client.rack": "rack-2"})
    first, second = kafka.nodes[0].port, kafka.nodes[1].port
    with stopping(query):
        query.step_until(100)
        assert second in asked
        cluster = fetch.cluster_for(query.options.settings)
        produce(kafka.bootstrap_servers, topic, numbers(100, 200), partition=0)
        until(query.plan)
        cluster._nodes[2] = ("127.0.0.1", 1)  # nobody listens there
        assert cluster.replica(TopicPartition(topic, 0)) == ("127.0.0.1", 1)
        asked.clear()
        query.run()
        assert asked[0] == 1 and asked[-1] == first
        assert query.values() == numbers(0, 200)


def test_a_consumer_reads_from_the_replica_in_its_rack(kafka: ApacheKafkaCluster) -> None:
    topic = create_on(kafka, {0: [1, 2, 3]})
    produce(kafka.bootstrap_servers, topic, numbers(0, 500), partition=0)
    settings = {"auto_offset_reset": "earliest", "client_rack": "rack-2", "max_partition_fetch_bytes": 2000}
    with kohort.Consumer(bootstrap_servers=kafka.bootstrap_servers, **settings) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        values: list[str] = []

        def read() -> bool:
            values.extend(record.value.decode() for record in consumer.poll(1))
            return len(values) >= 500

        until(read)
        assert values == numbers(0, 500)
        driver = consumer._async._driver
        assert driver is not None and driver.core.fetcher is not None
        state = driver.core.fetcher._partitions[TopicPartition(topic, 0)]
        assert (state.leader.node_id, state.preferred_replica) == (1, 2)


@pytest.mark.parametrize("assignor", ["range", "sticky", "cooperative-sticky"])
def test_partitions_go_to_members_in_the_racks_of_their_replicas(kafka: ApacheKafkaCluster, assignor: str) -> None:
    """A query and a consumer of ours, in two racks; without racks each of the assignors would do otherwise."""
    topic = create_on(kafka, {0: [1], 1: [1], 2: [3], 3: [1], 4: [3], 5: [3]})
    group = unique()
    servers = kafka.bootstrap_servers
    query = Query(servers, group, subscribe=topic, kafka_client_rack="rack-3", partition_assignment_strategy=assignor)
    settings = {"group_id": group, "client_rack": "rack-1", "partition_assignment_strategy": assignor}
    with stopping(query), kohort.Consumer(bootstrap_servers=servers, heartbeat_interval_ms=200, **settings) as other:
        until(lambda: not query.plan() and len(query.owned()) == 6)
        other.subscribe([topic])

        def shared() -> bool:
            query.plan()
            other.poll(0.1)
            return len(query.owned()) == len(other.assignment()) == 3

        until(shared)
        assert {partition for _, partition in query.owned()} == {2, 4, 5}
        assert {tp.partition for tp in other.assignment()} == {0, 1, 3}
