"""Faust: an agent with a table, its changelog and its commits, on a real broker.

pip install kohort faust-streaming pytest, then `pytest test_faust.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import faust
import pytest

GROUP = "totals"
ORDERS = [(b"c%d" % (number % 3), b"%d" % number) for number in range(30)]
TOTALS = {f"c{rest}": sum(range(rest, 30, 3)) for rest in range(3)}


def application(servers: str, datadir: Path) -> tuple[faust.App, faust.Table]:
    """The application: it would be imported."""
    app = faust.App(
        GROUP,
        broker=f"kafka://{servers}",
        datadir=str(datadir),
        topic_partitions=3,
        broker_commit_interval=0.1,
        broker_heartbeat_interval=0.1,
        stream_wait_empty=False,
        web_enabled=False,
    )
    orders = app.topic("orders", key_type=str, value_type=int, key_serializer="raw", value_serializer="raw")
    totals = app.Table("totals", default=int, partitions=3)

    @app.agent(orders)
    async def add(stream: faust.Stream) -> None:
        async for customer, amount in stream.items():
            totals[customer] += amount

    return app, totals


async def run(app: faust.App, until: Callable[[], bool]) -> None:
    """A worker within this event loop, until something has come true."""
    app.finalize()
    await app.start()
    try:
        async with asyncio.timeout(60):
            while not until():
                await asyncio.sleep(0.05)
    finally:
        await app.stop()


@pytest.fixture
def servers(kohort_broker, kohort_topic) -> str:
    kohort_topic("orders", partitions=3, records=ORDERS)
    return kohort_broker.bootstrap_servers


def test_totals_and_commits(servers, kohort_broker, tmp_path):
    async def scenario() -> None:
        app, totals = application(servers, tmp_path)

        def done() -> bool:
            committed = kohort_broker.committed(GROUP)
            return sum(offset for (topic, _), offset in committed.items() if topic == "orders") == len(ORDERS)

        await run(app, done)
        assert dict(totals) == TOTALS

    asyncio.run(scenario())
    assert kohort_broker.records(f"{GROUP}-totals-changelog")
