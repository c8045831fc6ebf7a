"""A broker for the module's consumers, topics with records in them, waiting for conditions."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

import kohort
from kohort.client.admin_types import NewTopic

PATIENCE_S = 60
QUICK = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 100, "auto_offset_reset": "earliest"}
_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker() -> Iterator[kohort.Broker]:
    config = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "1000"}
    with kohort.Broker(config=config) as running:
        yield running


@pytest.fixture(scope="module")
def admin(broker: kohort.Broker) -> Iterator[kohort.Admin]:
    with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as made:
        yield made


class Topics:
    """Makes topics and produces numbered records; values are unique within a topic."""

    def __init__(self, servers: str, admin: kohort.Admin) -> None:
        self.servers = servers
        self._admin = admin
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 1})
        self._produced: dict[str, int] = {}

    def make(self, partitions: int = 4, records: int = 0) -> str:
        name = f"topic-{next(_numbers)}"
        self._admin.create_topics([NewTopic(name, partitions, 1)])
        self.produce(name, records, partitions)
        return name

    def produce(self, topic: str, records: int, partitions: int = 4) -> None:
        start = self._produced.get(topic, 0)
        for number in range(start, start + records):
            self._producer.produce(topic, b"%d" % number, b"key", partition=number % partitions)
        self._producer.flush()
        self._produced[topic] = start + records


@pytest.fixture(scope="module")
def topics(broker: kohort.Broker, admin: kohort.Admin) -> Topics:
    return Topics(broker.bootstrap_servers, admin)


@pytest.fixture
def group_id() -> str:
    return f"group-{next(_numbers)}"


@pytest.fixture
def consumer(broker: kohort.Broker, group_id: str) -> Iterator[Callable[..., kohort.Consumer]]:
    """Makes consumers that are closed at the end of the test."""
    made = []

    def make(**settings: Any) -> kohort.Consumer:
        settings = {"bootstrap_servers": broker.bootstrap_servers, "group_id": group_id, **QUICK, **settings}
        if settings["group_id"] is None:
            del settings["group_id"]
        made.append(kohort.Consumer(**settings))
        return made[-1]

    yield make
    for one in made:
        one.close(timeout=5)


def until(condition: Callable[[], Any], what: str = "the condition", step: Callable[[], Any] | None = None) -> Any:
    """Wait for it, generously; `step` is done between looks."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} did not come true in {PATIENCE_S} s"
        if step is not None:
            step()
        else:
            time.sleep(0.01)
    return found
