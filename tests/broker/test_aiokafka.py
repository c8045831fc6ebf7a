"""aiokafka against the broker, which runs as an asynchronous context manager beside it."""

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

import kohort


async def round_trip(codec):
    async with kohort.Broker(config={"num.partitions": 2}) as broker:
        producer = AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap_servers, compression_type=codec, enable_idempotence=True
        )
        await producer.start()
        values = [b"%d " % i * 20 for i in range(200)]
        for partition in (0, 1):
            for value in values:
                await producer.send("t", value, partition=partition, headers=[("h", b"x")])
        await producer.stop()
        consumer = AIOKafkaConsumer("t", bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest")
        await consumer.start()
        found = {0: [], 1: []}
        async with asyncio.timeout(60):
            while sum(map(len, found.values())) < 400:
                record = await consumer.getone()
                found[record.partition].append(record.value)
        await consumer.stop()
        assert found == {0: values, 1: values}


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_round_trip(codec):
    asyncio.run(round_trip(codec))
