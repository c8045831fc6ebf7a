"""One broker for the tests of a module, and a topic of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import kohort
import kohort.spark

BROKER = {"group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 100, "num.partitions": 4}


@pytest.fixture(scope="module")
def broker() -> Iterator[kohort.Broker]:
    with kohort.Broker(config=BROKER) as running:
        yield running


@pytest.fixture
def servers(broker: kohort.Broker) -> str:
    return broker.bootstrap_servers


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    session = kohort.spark.session("tests", "local[2]", {"spark.driver.memory": "512m", "spark.log.level": "ERROR"})
    yield session
    session.stop()
