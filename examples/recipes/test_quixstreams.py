"""Quix Streams: a stateful application with its changelog topic, run on a real broker until it has nothing more to do.

pip install kohort quixstreams pytest, then `pytest test_quixstreams.py`.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from quixstreams import Application, State

GROUP = "totals"
ORDERS = [{"customer": f"c{number % 3}", "amount": number} for number in range(30)]
TOTALS = Counter({f"c{rest}": sum(range(rest, 30, 3)) for rest in range(3)})


def application(servers: str, state_dir: Path) -> Application:
    """The application: it would be imported."""
    quix = Application(
        broker_address=servers,
        consumer_group=GROUP,
        auto_offset_reset="earliest",
        state_dir=state_dir,
        commit_interval=0.1,
        loglevel="ERROR",
        consumer_extra_config={"heartbeat.interval.ms": 100, "reconnect.backoff.max.ms": 100},
    )
    orders = quix.topic("orders", value_deserializer="json")
    totals = quix.topic("totals", value_serializer="json")

    def add(order: dict[str, Any], state: State) -> dict[str, Any]:
        total = state.get("total", 0) + order["amount"]
        state.set("total", total)
        return {"customer": order["customer"], "total": total}

    quix.dataframe(orders).apply(add, stateful=True).to_topic(totals)
    return quix


@pytest.fixture
def servers(kohort_broker, kohort_topic) -> str:
    records = [(order["customer"].encode(), json.dumps(order).encode()) for order in ORDERS]
    kohort_topic("orders", partitions=3, records=records)
    kohort_topic("totals", partitions=1)
    return kohort_broker.bootstrap_servers


def latest_totals(broker: Any) -> Counter[str]:
    rows = [json.loads(record.value) for record in broker.records("totals")]
    return Counter({row["customer"]: row["total"] for row in rows})


def test_totals_and_commits(servers, kohort_broker, tmp_path):
    application(servers, tmp_path).run(count=len(ORDERS), timeout=60)
    assert latest_totals(kohort_broker) == TOTALS
    assert sum(kohort_broker.committed(GROUP).values()) == len(ORDERS)


def test_state_comes_back_from_the_changelog(servers, kohort_broker, tmp_path):
    """The second run has an empty directory: its sums go on from what the changelog has."""
    application(servers, tmp_path / "first").run(count=15, timeout=60)
    application(servers, tmp_path / "second").run(count=len(ORDERS) - 15, timeout=60)
    assert latest_totals(kohort_broker) == TOTALS


def test_a_coordinator_that_is_away_for_a_moment(servers, kohort_broker, tmp_path):
    away = kohort_broker.faults.fail("FindCoordinator", code="COORDINATOR_NOT_AVAILABLE", times=3)
    application(servers, tmp_path).run(count=len(ORDERS), timeout=60)
    assert latest_totals(kohort_broker) == TOTALS and away.hits == 3
