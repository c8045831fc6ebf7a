"""kafka-python: a service that copies orders to a topic of invoices, tested through errors of the broker and a crash.

pip install kohort kafka-python pytest, then `pytest test_kafka_python.py`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import kafka
import kafka.errors
import pytest

# kafka-python sometimes joins before it knows the partitions of its topics, and then has none for good. Kafka's default
# of three seconds hides that; one is enough.
pytestmark = pytest.mark.kohort(config={"group.initial.rebalance.delay.ms": 1000})

GROUP = "invoicing"
ORDERS = [b"%d" % number for number in range(30)]


class Invoicing:
    """The application: it would be imported."""

    def __init__(self, servers: str, name: str = "invoicing-1", **settings: Any) -> None:
        self._producer = kafka.KafkaProducer(bootstrap_servers=servers, client_id=name, acks="all", retries=10)
        self._consumer = kafka.KafkaConsumer(
            "orders",
            bootstrap_servers=servers,
            group_id=GROUP,
            client_id=name,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_poll_records=5,
            heartbeat_interval_ms=100,
            retry_backoff_ms=50,
            **settings,
        )

    def work(self) -> None:
        for records in self._consumer.poll(timeout_ms=50).values():
            for record in records:
                self._producer.send("invoices", b"invoice " + record.value).get(30)
            try:
                self._consumer.commit()
            except kafka.errors.CommitFailedError:
                return  # somebody else has the partitions now

    def close(self) -> None:
        self._consumer.close(autocommit=False)
        self._producer.close()


@pytest.fixture
def start(kohort_broker, kohort_topic) -> Iterator[Callable[..., Invoicing]]:
    kohort_topic("orders", partitions=2, records=ORDERS)
    kohort_topic("invoices")
    started: list[Invoicing] = []

    def make(name: str = "invoicing-1", **settings: Any) -> Invoicing:
        started.append(Invoicing(kohort_broker.bootstrap_servers, name, **settings))
        return started[-1]

    yield make
    for service in started:
        service.close()


def work_until(condition: Callable[[], bool], *services: Invoicing) -> None:
    limit = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < limit, "it never came true"
        for service in services:
            service.work()


def invoices(broker: Any) -> Counter[bytes]:
    return Counter(record.value.removeprefix(b"invoice ") for record in broker.records("invoices"))


def test_every_order_gets_one_invoice(start, kohort_broker):
    service = start()
    work_until(lambda: sum(kohort_broker.committed(GROUP).values()) == len(ORDERS), service)
    assert invoices(kohort_broker) == Counter(ORDERS)


def test_a_broker_that_is_busy(start, kohort_broker):
    """Errors that pass: the client tries again by itself, and nothing is invoiced twice."""
    kohort_broker.faults.fail("Produce", code="NOT_LEADER_OR_FOLLOWER", times=2)
    kohort_broker.faults.fail("OffsetCommit", code="COORDINATOR_NOT_AVAILABLE", times=2)
    kohort_broker.faults.fail("Fetch", code="NOT_LEADER_OR_FOLLOWER", topic="orders", times=1)
    service = start()
    work_until(lambda: sum(kohort_broker.committed(GROUP).values()) == len(ORDERS), service)
    assert invoices(kohort_broker) == Counter(ORDERS)


def test_thrown_out_while_it_works(start, kohort_broker):
    """At least once: what was not committed is invoiced again."""
    service = start()
    work_until(lambda: sum(invoices(kohort_broker).values()) >= 10, service)
    kohort_broker.evict(GROUP, client="invoicing-1")
    work_until(lambda: set(invoices(kohort_broker)) == set(ORDERS), service)
    work_until(lambda: sum(kohort_broker.committed(GROUP).values()) == len(ORDERS), service)


def test_a_slow_fetch_of_one_partition(start, kohort_broker):
    """A function decides: whoever asks for partition 1 waits a moment, once."""

    def slow(request: Any) -> Any:
        asked = [row.partition for topic in request.topics for row in topic.partitions]
        return request.delay(0.2) if 1 in asked else None

    fault = kohort_broker.fault("Fetch", slow, client="invoicing-1", times=1)
    service = start()
    work_until(lambda: set(invoices(kohort_broker)) == set(ORDERS), service)
    assert fault.hits == 1
