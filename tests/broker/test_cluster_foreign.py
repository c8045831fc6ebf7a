"""Foreign clients in groups on a cluster: their coordinator is stopped, killed and started, and nothing is lost."""

import asyncio
import contextlib
import threading
import time
from concurrent.futures import CancelledError

import confluent_kafka
import kafka
import pytest
from aiokafka import AIOKafkaConsumer

import kohort

LIMIT_S = 60
PARTITIONS = 4


@pytest.fixture
def cluster():
    with kohort.Cluster(3) as cluster:
        cluster.create_topic("orders", PARTITIONS)
        yield cluster


def produce(cluster, numbers):
    failed = []
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True})
    for number in numbers:
        producer.produce(
            "orders",
            b"%d" % number,
            partition=number % PARTITIONS,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(LIMIT_S) == 0
    assert not failed


def generation(cluster):
    broker = cluster.brokers[cluster.coordinator_of("billing")]
    return broker._call(lambda running: running.groups.coordinator.group("billing").generation)


class Confluent:
    def __init__(self, cluster):
        self.consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": "billing",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "heartbeat.interval.ms": 500,
            }
        )
        self.consumer.subscribe(["orders"])

    def poll(self):
        found = self.consumer.consume(100, 0.2)
        return [int(message.value()) for message in found if not message.error()]

    def commit(self):
        self.consumer.commit(asynchronous=False)

    def close(self):
        self.consumer.close()


class KafkaPython:
    def __init__(self, cluster):
        self.consumer = kafka.KafkaConsumer(
            "orders",
            bootstrap_servers=cluster.bootstrap_servers.split(","),
            group_id="billing",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=500,
            metadata_max_age_ms=1000,
        )

    def poll(self):
        return [int(record.value) for records in self.consumer.poll(200).values() for record in records]

    def commit(self):
        self.consumer.commit()

    def close(self):
        self.consumer.close()


class AioKafka:
    def __init__(self, cluster):
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.consumer = self._wait(self._start(cluster))

    def _wait(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(LIMIT_S)

    async def _start(self, cluster):
        consumer = AIOKafkaConsumer(
            "orders",
            bootstrap_servers=cluster.bootstrap_servers.split(","),
            group_id="billing",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=500,
            metadata_max_age_ms=1000,
        )
        await consumer.start()
        return consumer

    def poll(self):
        found = self._wait(self.consumer.getmany(timeout_ms=200))
        return [int(record.value) for records in found.values() for record in records]

    def commit(self):
        self._wait(self.consumer.commit())

    def close(self):
        with contextlib.suppress(CancelledError):
            self._wait(self.consumer.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(LIMIT_S)


def read(client, numbers):
    """Until all of them came; some may come twice."""
    found, deadline = set(), time.monotonic() + LIMIT_S
    while not set(numbers) <= found:
        found |= set(client.poll())
        assert time.monotonic() < deadline, f"missing: {sorted(set(numbers) - found)[:10]}"


def commit(client, cluster, count):
    """Until it is stored: a commit may meet the move, and is sent again as an application would."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            client.commit()
        except Exception as error:
            assert time.monotonic() < deadline, error
            client.poll()
            continue
        if sum(cluster.committed("billing").values()) >= count:
            return
        assert time.monotonic() < deadline


@pytest.mark.parametrize("kind", [Confluent, KafkaPython, AioKafka])
def test_a_clean_stop_of_the_coordinator_causes_no_rebalance(cluster, kind):
    produce(cluster, range(40))
    client = kind(cluster)
    try:
        read(client, range(40))
        commit(client, cluster, 40)
        before, was = generation(cluster), cluster.coordinator_of("billing")
        cluster.stop(was)
        produce(cluster, range(40, 80))
        read(client, range(40, 80))
        commit(client, cluster, 80)
        assert cluster.coordinator_of("billing") != was
        assert generation(cluster) == before
    finally:
        client.close()


@pytest.mark.parametrize("kind", [Confluent, KafkaPython, AioKafka])
def test_a_coordinator_that_is_killed_loses_nothing(cluster, kind):
    produce(cluster, range(40))
    client = kind(cluster)
    try:
        read(client, range(40))
        commit(client, cluster, 40)
        was = cluster.coordinator_of("billing")
        cluster.kill(was)
        produce(cluster, range(40, 80))
        read(client, range(40, 80))
        commit(client, cluster, 80)
        assert cluster.coordinator_of("billing") != was
    finally:
        client.close()
