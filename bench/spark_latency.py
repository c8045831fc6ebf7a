"""How soon a streaming query hands out rows: from start() to the first, and from producing to foreachBatch.

Measured with the readers of spark.py beside each other, each query with a checkpoint and (kohort) a group of its own.
"""

from __future__ import annotations

import math
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer

if TYPE_CHECKING:
    from spark import Bench, Topic

RATE = 1000
"""Records a second that are produced while the latency is measured."""


def started(bench: Bench, reader: str, topic: Topic, handle: Callable[[Any, int], None]) -> tuple[Any, str]:
    options = {"group.id": f"bench-{uuid.uuid4().hex[:8]}"} if reader == "kohort" else {}
    checkpoint = tempfile.mkdtemp(prefix="bench-")
    writer = bench.frame(reader, topic, None, True, **options).writeStream.foreachBatch(handle)
    return writer.option("checkpointLocation", checkpoint).start(), checkpoint


def first_row(bench: Bench, reader: str, topic: Topic) -> float:
    """Seconds from start() until foreachBatch has counted the first rows."""
    seen = threading.Event()

    def handle(frame: Any, number: int) -> None:
        if frame.count():
            seen.set()

    began = time.perf_counter()
    query, checkpoint = started(bench, reader, topic, handle)
    try:
        while not seen.wait(0.01):
            assert query.isActive, query.exception()
        return time.perf_counter() - began
    finally:
        query.stop()
        shutil.rmtree(checkpoint, ignore_errors=True)


def latencies(bench: Bench, reader: str, topic: Topic, seconds: float) -> list[float]:
    """Milliseconds from a record's timestamp until the foreachBatch that has it is over."""
    found: list[float] = []

    def handle(frame: Any, number: int) -> None:
        times = [row.ms for row in frame.selectExpr("unix_millis(timestamp) AS ms").collect()]
        now = time.time() * 1000
        found.extend(now - ms for ms in times if ms >= begin_ms)

    begin_ms = time.time() * 1000 + 3_600_000
    query, checkpoint = started(bench, reader, topic, handle)
    producer = Producer({"bootstrap.servers": bench.servers, "linger.ms": 1})
    try:
        query.processAllAvailable()
        begin_ms = time.time() * 1000
        end = time.monotonic() + seconds
        due = time.monotonic()
        while due < end:
            producer.produce(topic.name, b"x" * 100)
            producer.poll(0)
            due += 1 / RATE
            time.sleep(max(due - time.monotonic(), 0))
        producer.flush()
        query.processAllAvailable()
    finally:
        query.stop()
        shutil.rmtree(checkpoint, ignore_errors=True)
    return found


def percentile(values: list[float], part: float) -> float:
    return sorted(values)[min(int(len(values) * part), len(values) - 1)] if values else math.nan
