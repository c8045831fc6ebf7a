"""aiokafka: an asynchronous worker, tested through a crash, an eviction and an outage.

pip install kohort aiokafka pytest, then `pytest test_aiokafka.py`. What waits for the broker is called on a thread
(`asyncio.to_thread`), so that the event loop of the consumers goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import aiokafka
import aiokafka.errors
import pytest

GROUP = "billing"
ORDERS = [b"%d" % number for number in range(40)]


class Worker:
    """The application: it would be imported."""

    def __init__(self, servers: str, done: list[bytes], name: str, **settings: Any) -> None:
        self._done = done
        self._consumer = aiokafka.AIOKafkaConsumer(
            "orders",
            bootstrap_servers=servers,
            group_id=GROUP,
            client_id=name,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=100,
            retry_backoff_ms=50,
            **settings,
        )

    async def run(self) -> None:
        await self._consumer.start()
        try:
            while True:
                for records in (await self._consumer.getmany(timeout_ms=50, max_records=5)).values():
                    self._done += [record.value for record in records]
                try:
                    await self._consumer.commit()
                except aiokafka.errors.KafkaError:
                    pass  # the partitions are somebody else's now, who does these orders again
        finally:
            await self._consumer.stop()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.fixture
def servers(kohort_broker, kohort_topic) -> str:
    kohort_topic("orders", partitions=4, records=ORDERS)
    return kohort_broker.bootstrap_servers


def test_two_workers_share_the_orders(servers, kohort_broker):
    async def scenario() -> None:
        done: list[bytes] = []
        async with asyncio.TaskGroup() as group:
            workers = [group.create_task(Worker(servers, done, name).run()) for name in ("one", "two")]
            found = await asyncio.to_thread(kohort_broker.wait_stable, GROUP, members=2, partitions=4)
            assert sorted(len(member.assignment["orders"]) for member in found.members) == [2, 2]
            await until(lambda: set(done) == set(ORDERS))
            for worker in workers:
                worker.cancel()

    asyncio.run(scenario())
    assert sum(kohort_broker.committed(GROUP).values()) == len(ORDERS)


def test_a_crash_loses_nothing(servers, kohort_broker, kohort_clock):
    async def scenario() -> None:
        done: list[bytes] = []
        async with asyncio.TaskGroup() as group:
            crashing = group.create_task(Worker(servers, done, "crashing", session_timeout_ms=10_000).run())
            await until(lambda: len(done) >= 5)
            kohort_broker.faults.disconnect("LeaveGroup", client="crashing")  # nobody hears its goodbye
            crashing.cancel()
            await asyncio.wait([crashing])
            survivor = group.create_task(Worker(servers, done, "survivor").run())
            kohort_clock.advance(10)
            await until(lambda: set(done) == set(ORDERS))
            survivor.cancel()

    asyncio.run(scenario())
    assert "MemberEvicted" in [event.type for event in kohort_broker.story(GROUP)]


def test_thrown_out_while_it_works(servers, kohort_broker):
    """Not with fail("OffsetCommit", code="ILLEGAL_GENERATION"): that is a lie which only the client believes.

    aiokafka then joins as somebody new, and the broker waits a whole session for the member that it still knows.
    evict() makes it true for both.
    """

    async def scenario() -> None:
        done: list[bytes] = []
        async with asyncio.TaskGroup() as group:
            worker = group.create_task(Worker(servers, done, "only").run())
            await until(lambda: len(done) >= 5)
            kohort_broker.evict(GROUP, client="only")
            await until(lambda: set(done) == set(ORDERS))
            await until(lambda: sum(kohort_broker.committed(GROUP).values()) == len(ORDERS))
            worker.cancel()

    asyncio.run(scenario())


def test_an_outage_is_survived(servers, kohort_broker):
    async def scenario() -> None:
        done: list[bytes] = []
        async with asyncio.TaskGroup() as group:
            worker = group.create_task(Worker(servers, done, "only").run())
            await until(lambda: len(done) >= 5)
            await asyncio.to_thread(kohort_broker.restart)
            await until(lambda: set(done) == set(ORDERS))
            worker.cancel()

    asyncio.run(scenario())
