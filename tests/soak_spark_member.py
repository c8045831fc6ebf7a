"""One member of the group in the soak with Spark: an application with a streaming query, or a plain consumer.

What was read goes to the ledger before anything is committed: a line of JSON for each batch,
[who, life, time, batch, [[topic, incarnation, partition, first offset, last offset], ...]].
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any

SESSION_MS = 6_000
HEARTBEAT_MS = 500
METADATA_MS = 1_000

stopping = threading.Event()


class Ledger:
    def __init__(self, path: str, who: str, life: int) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._who, self._life = who, life

    def write(self, batch: int, rows: Iterable[tuple[str, int, int, bytes]]) -> None:
        runs: list[list[Any]] = []
        for topic, partition, offset, value in sorted(rows):
            place = [topic, int(value.split(b":")[0]), partition]
            if runs and runs[-1][:3] == place and runs[-1][4] == offset - 1:
                runs[-1][4] = offset
            else:
                runs.append([*place, offset, offset])
        if runs:
            line = json.dumps([self._who, self._life, time.monotonic(), batch, runs])
            os.write(self._file, line.encode() + b"\n")


def spark_application(options: argparse.Namespace, ledger: Ledger) -> int:
    import kohort.spark

    spark = kohort.spark.session("soak", "local[2]", {"spark.driver.memory": "512m", "spark.log.level": "ERROR"})
    reader = spark.readStream.format("kohort").option("kafka.bootstrap.servers", options.servers)
    settings = {
        "group.id": options.group,
        "subscribe": options.topics,
        "session.timeout.ms": str(SESSION_MS),
        "heartbeat.interval.ms": str(HEARTBEAT_MS),
        "metadata.max.age.ms": str(METADATA_MS),
        "failOnDataLoss": "false",
        "checkpointLocation": options.checkpoint,
    }

    def note(frame: Any, number: int) -> None:
        columns = ("topic", "partition", "offset", "value")
        ledger.write(number, ((row[0], row[1], row[2], bytes(row[3])) for row in frame.select(*columns).collect()))

    writer = reader.options(**settings).load().writeStream.foreachBatch(note)
    query = writer.option("checkpointLocation", options.checkpoint).start()
    while query.isActive and not stopping.wait(0.2):
        pass
    failure = query.exception()
    query.stop()
    spark.stop()
    if failure is not None:
        print(f"FAILED {' '.join(str(failure).split())[-600:]}", flush=True)
    return 0 if failure is None else 3


def plain_consumer(options: argparse.Namespace, ledger: Ledger) -> int:
    from confluent_kafka import Consumer, KafkaException

    consumer = Consumer(
        {
            "bootstrap.servers": options.servers,
            "group.id": options.group,
            "partition.assignment.strategy": "cooperative-sticky",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "topic.metadata.refresh.interval.ms": METADATA_MS,
            "log_level": 0,
        }
    )
    consumer.subscribe(options.topics.split(","))
    batch = 0
    while not stopping.is_set():
        messages = [message for message in consumer.consume(500, 0.5) if message.error() is None]
        if not messages:
            continue
        ledger.write(batch, ((m.topic(), m.partition(), m.offset(), m.value()) for m in messages))
        batch += 1
        try:
            consumer.commit(asynchronous=False)
        except KafkaException as error:
            print(f"commit: {error}", flush=True)
    consumer.close()
    return 0


def main() -> int:
    parser = argparse.ArgumentParser()
    for name in ("kind", "servers", "group", "topics", "checkpoint", "ledger", "who"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--life", type=int, required=True)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    run = spark_application if options.kind == "spark" else plain_consumer
    return run(options, Ledger(options.ledger, options.who, options.life))


if __name__ == "__main__":
    sys.exit(main())
