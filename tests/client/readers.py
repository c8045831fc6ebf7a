"""Consumers of several clients behind one small interface, each on a thread or in a process of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer as Confluent
from kafka import KafkaConsumer

import kohort


class Reader:
    """A consumer of some client on a thread of its own, until it is stopped. `values` is what it read."""

    def __init__(self, poll: Callable[[], list[int]], close: Callable[[], None], owned: Callable[[], int]) -> None:
        self.values: list[int] = []
        self.owned = 0
        self.librdkafka = False
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

    reader = Reader(poll, consumer.close, lambda: len(consumer.assignment()))
    reader.librdkafka = True
    return reader


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


def check_all_read_once(members: list[Any], total: int) -> None:
    """Every record was read, and none twice.

    Except by librdkafka: after two eager rebalances in quick succession it now and then starts a partition at 0
    although 50 is committed, or gives one up without a commit, on a real Kafka too. What it read may be repeated.
    """
    readers: dict[int, list[Any]] = {}
    for member in members:
        for value in member.values:
            readers.setdefault(value, []).append(member)
    assert sorted(readers) == list(range(total))
    repeated = [value for value, by in readers.items() if len(by) > 1 and not any(one.librdkafka for one in by)]
    assert not repeated, f"read twice: {repeated[:10]}"
