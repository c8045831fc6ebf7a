"""A server assignor that never comes back: the broker serves everybody else, says so, and stops when it is told to."""

from __future__ import annotations

import threading
import time
from typing import Any

import kohort
from cli.conftest import until
from kohort.assignors import GroupSpec
from kohort.coordinator.events import TargetFailed

RELEASE = threading.Event()
CONFIG = {
    "group.consumer.assignors": "uniform,broker.test_stuck_assignor:Stuck",
    "kohort.group.consumer.assignor.timeout.ms": "50",
    "group.consumer.assignment.interval.ms": "0",
    "num.partitions": "2",
}
MODERN = {"group_protocol": "consumer", "auto_offset_reset": "earliest"}


class Stuck:
    name = "stuck"

    def assign(self, spec: GroupSpec) -> Any:
        RELEASE.wait()
        return {}


def test_a_stuck_assignor_is_contained() -> None:
    with kohort.Broker(config=CONFIG) as broker:
        servers = {"bootstrap_servers": broker.bootstrap_servers}
        with kohort.Producer(**servers) as producer:
            producer.send("orders", b"x")
        with kohort.Consumer(**servers, **MODERN, group_id="g", group_remote_assignor="stuck") as waiting:
            waiting.subscribe("orders")
            waiting.poll(0)
            failed = until(lambda: [e for e in broker.story("g") if isinstance(e, TargetFailed)], "it is told")
            assert failed[0].cause is not None and failed[0].cause.said == "stuck: no answer within 50 ms"
            with kohort.Consumer(**servers, **MODERN, group_id="other") as other:
                other.subscribe("orders")
                assert until(lambda: other.poll(0.1), "other groups are served")
            assert waiting.assignment() == set()
        began = time.monotonic()
    assert time.monotonic() - began < 30, "nobody waits for it at the end"
    RELEASE.set()
