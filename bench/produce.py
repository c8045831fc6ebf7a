"""How fast records are produced: kohort's columns and single sends beside confluent-kafka and kafka-python.

Same broker, keyed records with 100-byte values, all of them stored by the end (acks=all), every client in a process of
its own. kohort's are idempotent and in order, as by default; the others at their defaults, with room for all records in
librdkafka's queue. Started as a program with a client's name it is one of those processes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PARTITIONS = 4
VALUE_SIZE = 100
ROUNDS = 2
PAIRS = {
    "send_columns() / confluent-kafka": ("kohort send_columns", "confluent-kafka produce", 5.0),
    "send() / kafka-python send()": ("kohort send", "kafka-python send", 3.0),
}


# -- one client, in its own process ---------------------------------------------------------------------------------


def kohort_columns(servers: str, keys: list[bytes], values: list[bytes], topic: str) -> Callable[[], None]:
    import pyarrow as pa

    import kohort.client.column_batches
    import kohort.client.producer_columns  # noqa: F401
    from kohort import Producer

    table = pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})

    def send() -> None:
        with Producer(bootstrap_servers=servers) as producer:
            stored = producer.send_columns(topic, table).result()
        assert sum(row.rows for row in stored) == len(values)

    return send


def kohort_send(servers: str, keys: list[bytes], values: list[bytes], topic: str) -> Callable[[], None]:
    from kohort import Producer

    def send() -> None:
        with Producer(bootstrap_servers=servers) as producer:
            for key, value in zip(keys, values, strict=True):
                producer.send(topic, value, key)

    return send


def confluent(servers: str, keys: list[bytes], values: list[bytes], topic: str) -> Callable[[], None]:
    from confluent_kafka import Producer

    def send() -> None:
        settings = {"queue.buffering.max.messages": 2_000_000, "queue.buffering.max.kbytes": 1_000_000}
        producer = Producer({"bootstrap.servers": servers, **settings})
        for number, (key, value) in enumerate(zip(keys, values, strict=True)):
            producer.produce(topic, value, key)
            if number % 10_000 == 0:
                producer.poll(0)
        assert producer.flush() == 0

    return send


def kafka_python(servers: str, keys: list[bytes], values: list[bytes], topic: str) -> Callable[[], None]:
    from kafka import KafkaProducer

    def send() -> None:
        producer = KafkaProducer(bootstrap_servers=servers, acks="all", linger_ms=5, batch_size=262_144)
        for key, value in zip(keys, values, strict=True):
            producer.send(topic, value, key)
        producer.flush()
        producer.close()

    return send


CLIENTS: dict[str, Callable[[str, list[bytes], list[bytes], str], Callable[[], None]]] = {
    "kohort send_columns": kohort_columns,
    "confluent-kafka produce": confluent,
    "kohort send": kohort_send,
    "kafka-python send": kafka_python,
}
SLOW = {"kohort send": 5, "kafka-python send": 5}
"""These send a fifth of the records."""


def produce(client: str, servers: str, topic: str, total: int) -> dict[str, float]:
    keys = [b"customer-%07d" % (number * 7919 % 100_000) for number in range(total)]
    form = b'{"order":%08d,"state":"shipped","country":"DE"}'
    values = [(form % number).ljust(VALUE_SIZE) for number in range(total)]
    send = CLIENTS[client](servers, keys, values, topic)
    began, cpu = time.perf_counter(), time.process_time()
    send()
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    return {"rate": total / seconds, "cpu_us": cpu / total * 1e6}


# -- the section ----------------------------------------------------------------------------------------------------


def measure(client: str, servers: str, topic: str, total: int) -> dict[str, float]:
    command = [sys.executable, __file__, client, servers, topic, str(total // SLOW.get(client, 1))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise RuntimeError(f"{client}: {done.stderr[-2000:]}")
    found: dict[str, float] = json.loads(done.stdout)
    return found


def run(options: argparse.Namespace) -> list[Any]:
    from broker import create_topic
    from consume import Comparison
    from targets import running

    total = 50_000 if options.quick else 1_000_000
    tables = []
    for side in options.sides:
        with running(side) as target:
            broker = "kohort" if side == "kohort" else "Apache Kafka"
            table = Comparison(f"Producing {total:,} records of {VALUE_SIZE} bytes to {broker}", PAIRS)
            for number in range(1 if options.quick else ROUNDS):
                for place, client in enumerate(CLIENTS):
                    topic = f"produce-{number}-{place}"
                    create_topic(target.bootstrap_servers, topic, PARTITIONS)
                    table.put(client, measure(client, target.bootstrap_servers, topic, total))
            tables.append(table)
    return tables


if __name__ == "__main__":
    if len(sys.argv) == 5:
        print(json.dumps(produce(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))))
    else:
        sys.path[:0] = [str(Path(__file__).resolve().parent)]
        from run import main

        sys.exit(main(["--only", "produce", *sys.argv[1:]]))
