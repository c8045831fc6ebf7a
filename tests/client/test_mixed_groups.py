"""kohort's consumer in one group with confluent-kafka and kafka-python members: all is read, nothing twice."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer as Confluent
from kafka import KafkaConsumer

import kohort
from client.conftest import Topics, until

STRATEGIES = ["range", "roundrobin", "cooperative-sticky"]


class Reader:
    """A consumer of some client on a thread of its own, until it is stopped. `values` is what it read."""

    def __init__(self, poll: Callable[[], list[int]], close: Callable[[], None], owned: Callable[[], int]) -> None:
        self.values: list[int] = []
        self.owned = 0
        self._poll, self._close, self._owned = poll, close, owned
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            self.values += self._poll()
            self.owned = self._owned()
        self._close()
        self.owned = 0

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()


def kohort_reader(servers: str, topic: str, group: str, strategy: str) -> Reader:
    consumer = kohort.Consumer(
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        partition_assignment_strategy=strategy,
        heartbeat_interval_ms=100,
    )
    consumer.subscribe(topic)
    return Reader(
        lambda: [int(record.value) for record in consumer.poll(0.1)], consumer.close, lambda: len(consumer.assignment())
    )


def confluent_reader(servers: str, topic: str, group: str, strategy: str) -> Reader:
    consumer = Confluent(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": strategy,
            "heartbeat.interval.ms": 100,
        }
    )
    consumer.subscribe([topic])

    def poll() -> list[int]:
        return [int(message.value()) for message in consumer.consume(100, 0.1) if not message.error()]

    return Reader(poll, consumer.close, lambda: len(consumer.assignment()))


def kafka_python_reader(servers: str, topic: str, group: str, strategy: str) -> Reader:
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

    assignor = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}[strategy]
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        partition_assignment_strategy=[assignor],
        heartbeat_interval_ms=100,
        session_timeout_ms=6_000,
    )

    def poll() -> list[int]:
        return [int(record.value) for records in consumer.poll(100).values() for record in records]

    return Reader(poll, consumer.close, lambda: len(consumer.assignment()))


@pytest.fixture
def readers() -> Iterator[list[Reader]]:
    running: list[Reader] = []
    yield running
    for reader in running:
        reader.stop()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_mixed_group_reads_everything(topics: Topics, group_id: str, readers: list[Reader], strategy: str) -> None:
    topic = topics.make(6)
    makers: list[Any] = [kohort_reader, confluent_reader]
    if strategy != "cooperative-sticky":  # kafka-python has no cooperative assignor
        makers.append(kafka_python_reader)
    for make in makers:
        readers.append(make(topics.servers, topic, group_id, strategy))
    share = 6 // len(makers)
    until(lambda: [reader.owned for reader in readers] == [share] * len(makers), "equal shares")
    topics.produce(topic, 300, 6)
    until(lambda: sum(len(reader.values) for reader in readers) >= 300, "300 records")

    first = readers.pop(0)
    first.stop()  # a clean hand-over re-reads nothing
    until(lambda: sum(reader.owned for reader in readers) == 6, "the others have taken over")
    topics.produce(topic, 300, 6)
    readers.append(kohort_reader(topics.servers, topic, group_id, strategy))
    everyone = [first, *readers]
    until(lambda: sum(len(reader.values) for reader in everyone) >= 600, "600 records")
    assert sorted(value for reader in everyone for value in reader.values) == list(range(600))


def test_either_can_lead(topics: Topics, group_id: str, readers: list[Reader]) -> None:
    """The first member leads: once librdkafka assigns for kohort, once kohort for librdkafka."""
    for number, makers in enumerate([(kohort_reader, confluent_reader), (confluent_reader, kohort_reader)]):
        topic, group = topics.make(4), f"{group_id}-{number}"
        pair = []
        for make in makers:
            pair.append(make(topics.servers, topic, group, "cooperative-sticky"))
            readers.append(pair[-1])
            until(lambda first=pair[0]: first.owned, "the first member")
        until(lambda both=pair: [reader.owned for reader in both] == [2, 2], "two each")
