"""Section `transactions`: what a transaction costs the broker, the same transactions by the same producers to both.

Each writes one 100-byte record to each of three partitions and commits; with offsets it commits those of a group too.
By kohort's own producer, which speaks TV2 to both, and by confluent-kafka, which speaks TV1.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import kohort
from broker import create_topic
from process import cpu_seconds
from tables import Table
from targets import Target, running

PARTITIONS = 3
VALUE = b"v" * 100
Transact = Callable[[], None]


def run(options: argparse.Namespace) -> Iterator[Table]:
    table = Table(f"Transactions (a record of {len(VALUE)} bytes to each of {PARTITIONS} partitions, one at a time)")
    for side in options.sides:
        with running(side) as target:
            create_topic(target.bootstrap_servers, "paid", PARTITIONS)
            own = {"bootstrap_servers": target.bootstrap_servers, "linger_ms": 0}
            with kohort.Producer(transactional_id="own", **own) as producer:
                _measure(target, table, "kohort's producer, TV2", partial(_own, producer), options)
                with_offsets = partial(_own, producer, "payers")
                _measure(target, table, "kohort's producer, TV2, with offsets", with_offsets, options)
            theirs = _confluent_producer(target)
            _measure(target, table, "confluent-kafka, TV1", partial(_confluent, theirs), options)
            del theirs  # or it looks for its broker for as long as the bench runs
    table.notes.append("one producer, one transaction after the other: the rate is that of round trips")
    yield table


def _own(producer: kohort.Producer, group: str | None = None) -> None:
    with producer.transaction():
        for partition in range(PARTITIONS):
            producer.send("paid", VALUE, partition=partition)
        if group is not None:
            producer.send_offsets({kohort.TopicPartition("paid", 0): 1}, group)


def _confluent_producer(target: Target) -> Any:
    from confluent_kafka import Producer

    made = Producer({"bootstrap.servers": target.bootstrap_servers, "transactional.id": "theirs", "linger.ms": 0})
    made.init_transactions(60)
    return made


def _confluent(producer: Any) -> None:
    producer.begin_transaction()
    for partition in range(PARTITIONS):
        producer.produce("paid", VALUE, partition=partition)
    producer.commit_transaction(60)


def _measure(target: Target, table: Table, name: str, transact: Transact, options: argparse.Namespace) -> None:
    warm_at = time.perf_counter() + options.warmup
    while time.perf_counter() < warm_at:
        transact()
    times: list[float] = []
    cpu, began = cpu_seconds(target.pid), time.perf_counter()
    while time.perf_counter() < began + options.seconds:
        before = time.perf_counter()
        transact()
        times.append(time.perf_counter() - before)
    cpu = cpu_seconds(target.pid) - cpu
    table.put(target.side, name, 1e6 * cpu / len(times), "broker CPU us/transaction")
    table.put(target.side, name, 1000 * statistics.median(times), "ms, median")
