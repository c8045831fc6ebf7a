"""A broker with group events, a live console over it, members in the background, and a kept history on disk."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

import kohort
from kohort.client.admin_types import NewTopic

PATIENCE_S = 60


@pytest.fixture(scope="module")
def broker() -> Iterator[kohort.Broker]:
    config = {
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "500",
        "offsets.topic.num.partitions": "4",
        "kohort.group.events.topic.enable": "true",
    }
    with kohort.Broker(config=config) as running:
        yield running


@pytest.fixture(scope="module")
def admin(broker: kohort.Broker) -> Iterator[kohort.Admin]:
    with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as made:
        made.create_topics([NewTopic("orders", 4)])
        yield made


@pytest.fixture(scope="module")
def live(broker: kohort.Broker, admin: kohort.Admin) -> Iterator[Any]:
    from console_running import Running
    from kohort.cli.console_changes import ClusterChanges
    from kohort.cli.target import Target
    from kohort.console.live import LiveSource

    settings = {"bootstrap.servers": broker.bootstrap_servers}
    changes = ClusterChanges(Target(broker.bootstrap_servers, None, []))
    with Running(lambda: LiveSource(settings=settings, look_every_s=0.2), changes) as console:
        yield console


class Member:
    """Polls in a thread until it is stopped."""

    def __init__(self, broker: kohort.Broker, group: str, client: str, **settings: Any) -> None:
        self._stop = threading.Event()
        given = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 100, "auto_offset_reset": "earliest"}
        servers = broker.bootstrap_servers
        self._consumer = kohort.Consumer(
            {"bootstrap.servers": servers, "group.id": group, "client.id": client},
            **{name: value for name, value in (given | settings).items() if value is not None},
        )
        self._consumer.subscribe(["orders"])
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()

    def _poll(self) -> None:
        while not self._stop.is_set():
            self._consumer.poll(0.05)
        self._consumer.close()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_S)


@pytest.fixture
def members(broker: kohort.Broker, admin: kohort.Admin) -> Iterator[Any]:
    made: list[Member] = []

    def start(group: str, client: str, **settings: Any) -> Member:
        made.append(Member(broker, group, client, **settings))
        return made[-1]

    yield start
    for member in made:
        member.stop()
