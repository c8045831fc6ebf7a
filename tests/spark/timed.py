"""A topic whose records have known times: one a second in all partitions but the last, which is empty."""

from __future__ import annotations

from confluent_kafka import Producer

from spark.query import create

PARTITIONS, RECORDS, FIRST_MS = 3, 40, 1_700_000_000_000


def at(second: float) -> str:
    """In ms since 1970; record n is at second n."""
    return str(int(FIRST_MS + second * 1000))


def create_timed(servers: str, topic: str) -> None:
    """Some records have no key, one no value, some have headers."""
    create(servers, topic, PARTITIONS, retention_ms="-1")
    producer = Producer({"bootstrap.servers": servers})
    for number in range(RECORDS):
        for partition in range(PARTITIONS - 1):
            producer.produce(
                topic,
                None if number == 11 else f"value {number}",
                None if number % 3 == 0 else f"key {number}",
                partition=partition,
                timestamp=FIRST_MS + number * 1000,
                headers=[("n", str(number)), ("n", "again")] if number % 4 == 0 else None,
            )
    assert producer.flush(30) == 0
