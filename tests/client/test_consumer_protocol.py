"""Groups of the consumer protocol (KIP-848) on kohort's own broker: the stories of `client.protocol_stories`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

pytest.register_assert_rewrite("client.protocol_stories")

import kohort  # noqa: E402
from client.conftest import Topics  # noqa: E402
from client.protocol_stories import *  # noqa: E402, F403

QUICK = {
    "group.consumer.heartbeat.interval.ms": 100,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.session.timeout.ms": 2_000,
    "group.consumer.min.session.timeout.ms": 1_000,
    "group.min.session.timeout.ms": 100,
    "group.initial.rebalance.delay.ms": 0,
}


@pytest.fixture
def broker_matches() -> Callable[[], object]:
    return lambda: pytest.importorskip("re2", reason="pip install google-re2")


@pytest.fixture(scope="module")
def topics() -> Iterator[Topics]:
    with kohort.Broker(config=QUICK) as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        yield Topics(broker.bootstrap_servers, admin)
