"""The pytest plugin: a broker and what can be asked of it as fixtures. Loaded by pytest once kohort is installed.

    def test_my_application(kohort_broker, kohort_topic):
        orders = kohort_topic(partitions=3, records=[b"first", b"second"])
        my_application.run(kohort_broker.bootstrap_servers, orders)

Nothing of kohort is imported before a test asks for it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from kohort.broker.client_requests import ClientRequest
    from kohort.broker.controls import BrokerClock, BrokerFaults
    from kohort.broker.embedded import Broker
    from kohort.broker.embedded_cluster import Cluster
    from kohort.broker.inside import GroupSnapshot, StoredRecord

__all__ = [
    "kohort_broker",
    "kohort_clock",
    "kohort_cluster",
    "kohort_committed",
    "kohort_evict",
    "kohort_faults",
    "kohort_records",
    "kohort_requests",
    "kohort_topic",
    "kohort_wait_stable",
]

MARKER = "kohort"
CLUSTER_MARKER = "kohort_cluster"
_numbers = itertools.count(1)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f'{MARKER}(clock="running", config={{}}, data_dir=None): how the kohort_broker of a test is made, '
        "the arguments of kohort.Broker",
    )
    config.addinivalue_line(
        "markers",
        f"{CLUSTER_MARKER}(brokers=3, config={{}}, clock='running'): how the kohort_cluster of a test is made, "
        "the arguments of kohort.Cluster",
    )


@pytest.fixture
def kohort_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A Kafka broker of the test's own, in memory, on a free port; started in milliseconds, gone after the test.

    @pytest.mark.kohort(clock="manual", config={"num.partitions": 3}) gives it other arguments.
    """
    from kohort.broker.embedded import Broker

    options: dict[str, Any] = {}
    for marker in reversed(list(request.node.iter_markers(MARKER))):
        if marker.args:
            raise pytest.UsageError("@pytest.mark.kohort takes keyword arguments, those of kohort.Broker")
        options |= marker.kwargs
    with Broker(**options) as broker:
        yield broker


@pytest.fixture
def kohort_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Three brokers of one cluster, empty, in memory, of this test alone; kohort.Cluster says what can be done to it.

    Arguments of the marker kohort_cluster are those of kohort.Cluster.
    """
    from kohort.broker.embedded_cluster import Cluster

    marker = request.node.get_closest_marker(CLUSTER_MARKER)
    with Cluster(*marker.args, **marker.kwargs) if marker is not None else Cluster(3) as cluster:
        yield cluster


@pytest.fixture
def kohort_clock(kohort_broker: Broker) -> BrokerClock:
    """The time of kohort_broker: `advance(45)` lets 45 seconds pass at once."""
    return kohort_broker.clock


@pytest.fixture
def kohort_faults(kohort_broker: Broker) -> BrokerFaults:
    """The faults of kohort_broker: `fail`, `delay`, `drop`, `disconnect`, or `ask` a function."""
    return kohort_broker.faults


@pytest.fixture
def kohort_records(kohort_broker: Broker) -> Callable[..., list[StoredRecord]]:
    """What is stored: `kohort_records(topic, partition=None)`."""
    return kohort_broker.records


@pytest.fixture
def kohort_committed(kohort_broker: Broker) -> Callable[[str], dict[tuple[str, int], int]]:
    """What a group has committed: `kohort_committed("billing") == {("orders", 0): 17}`."""
    return kohort_broker.committed


@pytest.fixture
def kohort_requests(kohort_broker: Broker) -> Callable[..., list[ClientRequest]]:
    """What was sent: `kohort_requests(api="OffsetCommit", client="billing")`."""
    return kohort_broker.requests


@pytest.fixture
def kohort_wait_stable(kohort_broker: Broker) -> Callable[..., GroupSnapshot]:
    """Waits for a group: `kohort_wait_stable("billing", members=2)`."""
    return kohort_broker.wait_stable


@pytest.fixture
def kohort_evict(kohort_broker: Broker) -> Callable[..., list[str]]:
    """Puts members out of a group: `kohort_evict("billing", client="worker-1")`."""
    return kohort_broker.evict


@pytest.fixture
def kohort_topic(kohort_broker: Broker, request: pytest.FixtureRequest) -> Callable[..., str]:
    """Makes topics in kohort_broker and returns their names.

    kohort_topic(name=None, partitions=1, records=(), configs=None): without a name it gets one of its own, after the
    test. Records are values, or (key, value); those with a key go to the partition that every Kafka client chooses,
    those without to one partition after the other.
    """

    def make(
        name: str | None = None,
        partitions: int = 1,
        records: Iterable[Any] = (),
        configs: Mapping[str, str] | None = None,
    ) -> str:
        if name is None:
            name = f"{re.sub(r'[^A-Za-z0-9._-]+', '-', request.node.name)[:200]}-{next(_numbers)}"
        kohort_broker.create_topic(name, partitions, configs)
        records = list(records)
        if records:
            _produce(kohort_broker.bootstrap_servers, name, partitions, records)
        return name

    return make


def _produce(servers: str, topic: str, partitions: int, records: list[Any]) -> None:
    from kohort.client.producer import Producer

    with Producer(bootstrap_servers=servers) as producer:
        sent = []
        for number, record in enumerate(records):
            key, value = record if isinstance(record, tuple) else (None, record)
            partition = number % partitions if key is None else None
            sent.append(producer.send(topic, value, key, partition=partition))
        for delivery in sent:
            delivery.result()
