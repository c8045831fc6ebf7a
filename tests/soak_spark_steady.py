"""600 micro-batches of one query: memory, sockets, processes and members do not grow."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Producer

import kohort
import kohort.spark
from kohort.client.admin_types import NewTopic
from spark.streams import RUNNER, descendants

GROUP, TOPIC = "steady", "orders"
WORKER = "pyspark.worker"
FIRST = 100
"""By then all that is needed is there."""


class Sizes(NamedTuple):
    source_mb: float
    workers_mb: float
    sockets: int
    processes: int
    members: int


def taken(servers: str) -> Sizes:
    own = {os.getpid()}
    source, workers = descendants(RUNNER, own), descendants(WORKER, own)
    with kohort.Admin(bootstrap_servers=servers) as admin:
        members = len(admin.describe_groups([GROUP])[GROUP].members)
    everything = descendants("python", own)
    return Sizes(
        _megabytes(source), _megabytes(workers), sum(map(_sockets, source | workers)), len(everything), members
    )


def _megabytes(pids: set[int]) -> float:
    """What they have for themselves, and their share of what they share."""
    total = 0
    for pid in pids:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


def _sockets(pid: int) -> int:
    return sum("socket" in os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir())


def feed(servers: str, over: threading.Event) -> None:
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 1})
    while not over.wait(0.02):
        for _ in range(20):
            producer.produce(TOPIC, b"x" * 100)
        producer.flush()


def grown(first: Sizes, last: Sizes) -> list[str]:
    broken = [
        f"{name} grew from {before:.0f} to {after:.0f} MB"
        for name, before, after in (
            ("the source's process", first.source_mb, last.source_mb),
            ("workers", first.workers_mb, last.workers_mb),
        )
        if after > before * 1.1 + 5
    ]
    for name, before, after in (
        ("sockets", first.sockets, last.sockets),
        ("processes", first.processes, last.processes),
        ("members", first.members, last.members),
    ):
        if after > before:
            broken.append(f"{before} {name} became {after}")
    return broken


def run(servers: str, batches: int, checkpoint: str) -> list[str]:
    with kohort.Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(TOPIC, 4, 1)])
    spark = kohort.spark.session("steady", "local[2]", {"spark.log.level": "ERROR", "spark.driver.memory": "512m"})
    done = 0

    def count(frame: Any, number: int) -> None:
        nonlocal done
        frame.count()
        done = number

    reader = spark.readStream.format("kohort").option("kafka.bootstrap.servers", servers)
    frame = reader.options(**{"group.id": GROUP, "subscribe": TOPIC}).load()
    query = frame.writeStream.foreachBatch(count).option("checkpointLocation", checkpoint).start()
    over = threading.Event()
    feeder = threading.Thread(target=feed, args=(servers, over))
    feeder.start()
    found: list[Sizes] = []
    try:
        for mark in range(FIRST, batches + 1, FIRST):
            while done < mark and query.isActive:
                time.sleep(0.1)
            if not query.isActive:
                return [f"the query has ended: {query.exception()}"]
            found.append(taken(servers))
            print(
                f"{done:5d} batches",
                *(f"{name} {value:.0f}" for name, value in found[-1]._asdict().items()),
                flush=True,
            )
    finally:
        over.set()
        feeder.join()
        query.stop()
        spark.stop()
    return grown(found[0], found[-1])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--batches", type=int, default=600)
    options = parser.parse_args()
    checkpoint = tempfile.mkdtemp(prefix="steady-")
    try:
        with kohort.Broker(config={"group.initial.rebalance.delay.ms": 0}) as broker:
            broken = run(broker.bootstrap_servers, options.batches, checkpoint)
    finally:
        shutil.rmtree(checkpoint, ignore_errors=True)
    for what in broken:
        print(f"BROKEN: {what}")
    print("nothing has grown" if not broken else f"{len(broken)} promises broken", flush=True)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
