"""Topics for Spark to read, filled fast: a few hundred different record batches, sent over and over.

Batches are of the size a Java producer makes with its defaults. Nothing here measures.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import cycle, islice

from broker import PRODUCE_VERSION, create_topic
from kafka_socket import KafkaSocket
from kohort.protocol.messages import ProduceRequest
from kohort.records.batch import Record, build_batch
from kohort.records.compression import Compression

DIFFERENT_BATCHES = 400
REQUESTS_IN_FLIGHT = 5
PARTITIONS_PER_REQUEST = 16


def records_per_batch(value_size: int) -> int:
    """15 KB of small records, 50 KB of large ones."""
    return 125 if value_size < 500 else 50


def value(number: int, size: int) -> bytes:
    """Words and numbers, which compress about as JSON does."""
    text = f'{{"order": {number}, "customer": {number * 7919 % 100_003}, "amount": {number % 997}.{number % 100:02d}'
    text += ', "note": "' + "the quick brown fox jumps over the lazy dog " * (size // 40)
    return f'{text[: size - 2]}"}}'.encode()


def batches(size: int, codec: str) -> list[bytes]:
    count, now_ms = records_per_batch(size), int(time.time() * 1000)
    return [
        build_batch(
            [
                Record(at, now_ms + at, f"{number % 10_000:08d}".encode(), value(number, size))
                for at, number in enumerate(range(first, first + count))
            ],
            compression=Compression[codec.upper()],
        )
        for first in range(0, DIFFERENT_BATCHES * count, count)
    ]


def requests(topic: str, partitions: int, rounds: int, size: int, codec: str) -> Iterator[ProduceRequest]:
    """`rounds` batches for every partition."""
    source = cycle(batches(size, codec))
    for _ in range(rounds):
        for first in range(0, partitions, PARTITIONS_PER_REQUEST):
            numbers = range(first, min(first + PARTITIONS_PER_REQUEST, partitions))
            data = [
                ProduceRequest.PartitionProduceData(index=number, records=records)
                for number, records in zip(numbers, islice(source, len(numbers)), strict=True)
            ]
            topic_data = ProduceRequest.TopicProduceData(name=topic, partition_data=data)
            yield ProduceRequest(acks=1, timeout_ms=60_000, topic_data=[topic_data])


def fill(servers: str, topic: str, records: int, size: int, partitions: int = 4, codec: str = "none") -> int:
    """Create a topic and put at least `records` records into it, evenly; how many it has then."""
    per_round = records_per_batch(size) * partitions
    rounds = -(-records // per_round)
    create_topic(servers, topic, partitions)
    with KafkaSocket(servers, client_id="bench-fill") as connection:
        for request in requests(topic, partitions, rounds, size, codec):
            connection.send(request, PRODUCE_VERSION)
            if len(connection.in_flight) >= REQUESTS_IN_FLIGHT:
                check(connection)
        while connection.in_flight:
            check(connection)
    return rounds * per_round


def check(connection: KafkaSocket) -> None:
    for topic in connection.receive().responses:
        for partition in topic.partition_responses:
            assert partition.error_code == 0, f"{topic.name}-{partition.index}: error {partition.error_code}"
