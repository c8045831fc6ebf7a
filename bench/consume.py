"""How fast records are consumed: kohort's consumer beside confluent-kafka (librdkafka) and kafka-python, in one run.

Same broker, same topics (100-byte values, plain and lz4), every client in a process of its own that reads a topic from
beginning to end. Started as a program with a client's name it is one of those processes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PARTITIONS = 4
VALUE_SIZE = 100
ROUNDS = 2

PAIRS = {
    "poll_arrow() / confluent-kafka consume(10000)": ("kohort poll_arrow", "confluent-kafka consume(10000)", 3.0),
    "poll_arrow() / confluent-kafka tuned": ("kohort poll_arrow", "confluent-kafka tuned", 3.0),
    "poll() / kafka-python poll()": ("kohort poll", "kafka-python poll", 3.0),
}


# -- one client, in its own process ---------------------------------------------------------------------------------


def kohort_arrow(servers: str, topic: str) -> Iterator[int]:
    import kohort.records.columns  # noqa: F401
    from kohort import Consumer

    yield 0
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, partition) for partition in range(PARTITIONS)])
        while True:
            yield sum(batch.num_rows for batch in consumer.poll_arrow(5.0))


def kohort_poll(servers: str, topic: str, max_records: int = 500) -> Iterator[int]:
    from kohort import Consumer

    yield 0
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, partition) for partition in range(PARTITIONS)])
        while True:
            yield len(consumer.poll(5.0, max_records))


def confluent_tuned(servers: str, topic: str) -> Iterator[int]:
    """At its defaults librdkafka pauses a second (fetch.queue.backoff.ms) whenever 100,000 messages are queued."""
    return confluent(servers, topic, {"queued.min.messages": 1_000_000, "fetch.queue.backoff.ms": 1})


def confluent(servers: str, topic: str, tuning: dict[str, Any] | None = None) -> Iterator[int]:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    yield 0
    settings = {"bootstrap.servers": servers, "group.id": "bench", "enable.auto.commit": False}
    consumer = Consumer(settings | (tuning or {}))
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)])
    try:
        while True:
            # value() is where a Message becomes bytes, as kohort's records already are.
            yield sum(message.value() is not None for message in consumer.consume(10_000, 5.0))
    finally:
        consumer.close()


def kafka_python(servers: str, topic: str) -> Iterator[int]:
    from kafka import KafkaConsumer, TopicPartition

    yield 0
    consumer = KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest", enable_auto_commit=False)
    consumer.assign([TopicPartition(topic, partition) for partition in range(PARTITIONS)])
    try:
        while True:
            yield sum(map(len, consumer.poll(5_000).values()))
    finally:
        consumer.close()


CLIENTS: dict[str, Callable[..., Iterator[int]]] = {
    "kohort poll_arrow": kohort_arrow,
    "confluent-kafka consume(10000)": confluent,
    "confluent-kafka tuned": confluent_tuned,
    "kohort poll": kohort_poll,
    "kafka-python poll": kafka_python,
}


def consume(client: str, servers: str, topic: str, total: int) -> dict[str, float]:
    """Read the topic once; the clock starts before the consumer is made, so nobody has fetched ahead of it."""
    polls = CLIENTS[client](servers, topic)
    next(polls)  # imports
    began, cpu, seen = time.perf_counter(), time.process_time(), 0
    while seen < total:
        seen += next(polls)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    polls.close()
    return {"rate": total / seconds, "cpu_us": cpu / total * 1e6}


# -- the section ----------------------------------------------------------------------------------------------------


@dataclass
class Comparison:
    """Clients in rows: records a second and CPU per record, the best of a few rounds."""

    title: str
    pairs: dict[str, tuple[str, str, float]]
    rows: dict[str, dict[str, float]] = field(default_factory=dict)

    def put(self, client: str, result: dict[str, float] | None) -> None:
        if result is None:
            return
        best = self.rows.setdefault(client, result)
        if result["rate"] > best["rate"]:
            self.rows[client] = result

    def ratios(self) -> dict[str, tuple[float, float, float]]:
        """Times the rate, times less CPU, goal."""
        found = {}
        for name, (ours, theirs, goal) in self.pairs.items():
            if ours in self.rows and theirs in self.rows:
                a, b = self.rows[ours], self.rows[theirs]
                found[name] = (a["rate"] / b["rate"], b["cpu_us"] / a["cpu_us"], goal)
        return found

    def as_text(self) -> str:
        lines = [self.title, "-" * 78, f"{'client':<34}{'records/s':>14}{'client CPU us/record':>24}"]
        for client, row in self.rows.items():
            lines.append(f"{client:<34}{row['rate']:>14,.0f}{row['cpu_us']:>24.2f}")
        lines.append("-" * 78)
        for name, (rate, cpu, goal) in self.ratios().items():
            lines.append(f"  {name}: {rate:.1f}x the rate (goal {goal:g}x), {cpu:.1f}x less CPU")
        return "\n".join(lines)

    def as_json(self) -> dict[str, object]:
        ratios = {name: {"rate": r, "cpu": c, "goal": g} for name, (r, c, g) in self.ratios().items()}
        return {"title": self.title, "rows": self.rows, "ratios": ratios}


def fill(servers: str, topic: str, codec: str, total: int) -> None:
    from confluent_kafka import Producer

    from kohort import Admin
    from kohort.client.admin_types import NewTopic

    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "linger.ms": 50,
            "batch.size": 131_072,
            "compression.type": codec,
            "queue.buffering.max.messages": 2_000_000,
        }
    )
    customers = [os.urandom(16).hex().encode() for _ in range(5_000)]
    form = b'{"order":%08d,"customer":"%s","state":"shipped","country":"DE"}'
    for number in range(total):
        value = (form % (number, customers[number % len(customers)])).ljust(VALUE_SIZE)
        producer.produce(topic, value, partition=number % PARTITIONS)
        if number % 10_000 == 0:
            producer.poll(0)
    producer.flush()


def measure(client: str, servers: str, topic: str, total: int) -> dict[str, float] | None:
    """None where the client lacks the library for the codec (kafka-python without the package lz4)."""
    command = [sys.executable, __file__, client, servers, topic, str(total)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if "UnsupportedCodecError" in done.stderr:
        return None
    if done.returncode != 0:
        raise RuntimeError(f"{client}: {done.stderr[-2000:]}")
    return json.loads(done.stdout)


def run(options: argparse.Namespace) -> list[Any]:
    from targets import running

    total = 100_000 if options.quick else 1_000_000
    tables = []
    for side in options.sides:
        with running(side) as target:
            for codec in ("none", "lz4"):
                topic = f"consume-{codec}"
                fill(target.bootstrap_servers, topic, codec, total)
                broker = "kohort" if side == "kohort" else "Apache Kafka"
                title = f"Consuming {total:,} records of {VALUE_SIZE} bytes, compression {codec}, from {broker}"
                table = Comparison(title, PAIRS)
                for _ in range(1 if options.quick else ROUNDS):
                    for client in CLIENTS:
                        table.put(client, measure(client, target.bootstrap_servers, topic, total))
                tables.append(table)
    return tables


if __name__ == "__main__":
    if len(sys.argv) == 5:
        print(json.dumps(consume(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))))
    else:
        sys.path[:0] = [str(Path(__file__).resolve().parent)]
        from run import main

        sys.exit(main(["--only", "consume", *sys.argv[1:]]))
