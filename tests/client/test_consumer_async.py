"""AsyncConsumer against kohort's broker: what differs from the blocking one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from client.conftest import PATIENCE_S, QUICK, Topics
from kohort import AsyncConsumer, ConfigError
from kohort.client import TopicPartition


def run(work: Any) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(PATIENCE_S):
            return await work

    return asyncio.run(bounded())


def test_iterates_and_commits(topics: Topics, group_id: str) -> None:
    topic = topics.make(records=100)

    async def work() -> list[int]:
        values = []
        async with AsyncConsumer(bootstrap_servers=topics.servers, group_id=group_id, **QUICK) as consumer:
            await consumer.subscribe([topic])
            async for record in consumer:
                values.append(int(record.value))
                if len(values) == 100:
                    break
            await consumer.commit()
            assert {one.offset for one in (await consumer.committed(consumer.assignment())).values()} == {25}
        return values

    assert sorted(run(work())) == list(range(100))


def test_listeners_may_be_coroutines(topics: Topics, group_id: str) -> None:
    topic = topics.make(1)
    topics.produce(topic, 10, partitions=1)

    async def work() -> list[int]:
        consumer = AsyncConsumer(bootstrap_servers=topics.servers, group_id=group_id, **QUICK)

        async def assigned(partitions: list[TopicPartition]) -> None:
            assert await consumer.position(partitions[0]) == 0
            await consumer.seek(partitions[0], 8)

        async with consumer:
            await consumer.subscribe(topic, on_partitions_assigned=assigned)
            records: list[Any] = []
            while len(records) < 2:
                records += await consumer.poll(1)
            return [record.offset for record in records]

    assert run(work()) == [8, 9]


def test_several_consumers_in_one_loop(topics: Topics, group_id: str) -> None:
    topic = topics.make(records=200)

    async def read(values: list[int], done: asyncio.Event) -> None:
        async with AsyncConsumer(bootstrap_servers=topics.servers, group_id=group_id, **QUICK) as consumer:
            await consumer.subscribe(topic)
            while not done.is_set():
                values += [int(record.value) for record in await consumer.poll(0.2)]
                if len(values) >= 200:
                    done.set()

    async def work() -> list[int]:
        values: list[int] = []
        done = asyncio.Event()
        await asyncio.gather(*(read(values, done) for _ in range(3)))
        return values

    assert sorted(run(work())) == list(range(200))


def test_a_cancelled_poll_loses_nothing(topics: Topics, group_id: str) -> None:
    topic = topics.make()

    async def work() -> list[int]:
        async with AsyncConsumer(bootstrap_servers=topics.servers, group_id=group_id, **QUICK) as consumer:
            await consumer.subscribe(topic)
            while not consumer.assignment():
                await consumer.poll(0.1)
            waiting = asyncio.create_task(consumer.poll(30))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            await asyncio.to_thread(topics.produce, topic, 20)
            values: list[int] = []
            while len(values) < 20:
                values += [int(record.value) for record in await consumer.poll(1)]
            return values

    assert sorted(run(work())) == list(range(20))


def test_a_forgotten_await_is_told(topics: Topics, group_id: str) -> None:
    async def work() -> None:
        async with AsyncConsumer(bootstrap_servers=topics.servers, group_id=group_id, **QUICK) as consumer:
            with pytest.warns(RuntimeWarning, match="never awaited"):
                consumer.subscribe(topics.make(1))  # type: ignore[unused-coroutine]
            with pytest.raises(ConfigError, match=r"write await consumer\.subscribe"):
                await consumer.poll(0.1)

    run(work())
