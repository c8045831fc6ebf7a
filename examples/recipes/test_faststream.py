"""FastStream on a real broker: what TestKafkaBroker cannot show, groups, commits, redelivery and outages.

pip install kohort 'faststream[kafka]' pytest, then `pytest test_faststream.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from faststream import AckPolicy, FastStream
from faststream.kafka import KafkaBroker

GROUP = "billing"
ORDERS = [f"order {number}" for number in range(20)]


def application(servers: str, done: list[str], instance: str) -> FastStream:
    """The application: it would be imported."""
    kafka = KafkaBroker(servers, client_id=instance, retry_backoff_ms=50, logger=None)

    @kafka.subscriber(
        "orders",
        group_id=GROUP,
        auto_offset_reset="earliest",
        heartbeat_interval_ms=100,
        ack_policy=AckPolicy.ACK,
    )
    @kafka.publisher("invoices")
    async def bill(order: str) -> str:
        done.append(order)
        return f"invoice for {order}"

    return FastStream(kafka, logger=None)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.fixture
def servers(kohort_broker, kohort_topic) -> str:
    kohort_topic("orders", partitions=4, records=[order.encode() for order in ORDERS])
    kohort_topic("invoices")
    return kohort_broker.bootstrap_servers


def test_every_order_is_billed_and_committed(servers, kohort_broker):
    async def scenario() -> None:
        done: list[str] = []
        app = application(servers, done, "one")
        await app.start()
        await until(lambda: len(kohort_broker.records("invoices")) == len(ORDERS))
        await until(lambda: sum(kohort_broker.committed(GROUP).values()) == len(ORDERS))
        await app.stop()

    asyncio.run(scenario())
    invoices = {record.value.decode() for record in kohort_broker.records("invoices")}
    assert invoices == {f"invoice for {order}" for order in ORDERS}


def test_two_instances_share_the_partitions_and_one_takes_over(servers, kohort_broker):
    async def scenario() -> None:
        done: list[str] = []
        first, second = application(servers, done, "one"), application(servers, done, "two")
        await first.start()
        await second.start()
        group = await asyncio.to_thread(kohort_broker.wait_stable, GROUP, members=2, partitions=4)
        assert sorted(len(member.assignment["orders"]) for member in group.members) == [2, 2]
        await first.stop()
        await asyncio.to_thread(kohort_broker.wait_stable, GROUP, members=1, partitions=4)
        await until(lambda: set(done) == set(ORDERS))
        await second.stop()

    asyncio.run(scenario())


def test_an_outage_is_survived(servers, kohort_broker):
    async def scenario() -> None:
        done: list[str] = []
        app = application(servers, done, "one")
        await app.start()
        await until(lambda: len(done) >= 5)
        await asyncio.to_thread(kohort_broker.restart)
        await until(lambda: set(done) == set(ORDERS))
        await until(lambda: sum(kohort_broker.committed(GROUP).values()) == len(ORDERS))
        await app.stop()

    asyncio.run(scenario())
