"""Section `spark_sink`: how fast Spark writes, by kohort's sink at least once and exactly once, and by Spark's own
connector, which has no exactly-once; and by a sink that does no work. One broker, one session of two cores; Spark makes
the rows, writers take turns. `--parts 100` or `--parts 1000`: the table of rows of that size alone; `--rounds N`.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator
from typing import Any

from broker import create_topic
from spark import CEILING, NO_WORK, Bench, Line, SparkTable, opened

PARTITIONS = 4
SHARES = {100: 1, 1000: 5}
"""Bytes of a row, and which part of the rows is written of that size."""
WRITERS = {"kohort": "kohort", "connector": "kafka", CEILING: NO_WORK}
"""No work: a Python sink that drops its rows, the most that Spark's API allows."""


def rows(bench: Bench, count: int, size: int) -> Any:
    """Made in the JVM, two tasks, keys of ten thousand customers."""
    frame = bench.spark.range(0, count, 1, 2)
    key = "cast(id % 10000 as string) as key"
    return frame.selectExpr(key, f"rpad(concat('order-', cast(id as string)), {size}, 'x') as value")


def write(bench: Bench, frame: Any, writer: str) -> float:
    """Seconds of a bounded write."""
    topic = new_topic(bench)
    began = time.perf_counter()
    sink = frame.write.format(writer).option("kafka.bootstrap.servers", bench.servers)
    sink.option("topic", topic).mode("append").save()
    return time.perf_counter() - began


def stream(bench: Bench, count: int, size: int, writer: str, delivery: str | None) -> float:
    """Seconds of one micro-batch, from planning to Spark's commit log."""
    topic, checkpoint = new_topic(bench), tempfile.mkdtemp(prefix="bench-")
    source = bench.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", count)
    frame = source.option("numPartitions", 2).load().selectExpr(
        "cast(value % 10000 as string) as key", f"rpad(concat('order-', cast(value as string)), {size}, 'x') as value"
    )  # fmt: skip
    sink = frame.writeStream.format(writer).option("kafka.bootstrap.servers", bench.servers).option("topic", topic)
    if delivery is not None:
        sink = sink.option("delivery", delivery)
    try:
        query = sink.option("checkpointLocation", checkpoint).trigger(processingTime="0 seconds").start()
        while len(query.recentProgress) < 4 and query.isActive:
            time.sleep(0.05)
        query.stop()
        if query.exception() is not None:
            raise RuntimeError(str(query.exception()))
        times = [p["durationMs"]["triggerExecution"] / 1000 for p in query.recentProgress if p["numInputRows"]]
    finally:
        shutil.rmtree(checkpoint, ignore_errors=True)
    return min(times[1:] or times)


def new_topic(bench: Bench) -> str:
    topic = f"sink-{uuid.uuid4().hex[:8]}"
    create_topic(bench.servers, topic, PARTITIONS)
    return topic


def run(options: argparse.Namespace) -> Iterator[SparkTable]:
    names = [str(size) for size in SHARES]
    if unknown := [part for part in options.parts if part not in names]:
        raise SystemExit(f"no table of rows of {unknown[0]} bytes: --parts is one of {', '.join(names)}")
    sizes = [int(part) for part in options.parts or names]
    with opened(options) as (bench, notes):
        for size in sizes:
            made = table(bench, bench.sizes.sink_rows // SHARES[size], size)
            made.notes = notes
            yield made


def table(bench: Bench, count: int, size: int) -> SparkTable:
    """Rows a second."""
    made = SparkTable(f"Spark writes {count:,} rows of {size} bytes, {PARTITIONS} partitions, local[2]")
    writers = {side: name for side, name in WRITERS.items() if side in bench.readers}
    frame = rows(bench, count, size)
    found: dict[str, dict[str, list[float]]] = {"bounded": {}, "stream": {}, "exactly": {}}
    for number in range(bench.sizes.rounds + 1):
        for side, name in writers.items():
            _note(found["bounded"], side, write(bench, frame, name), number, bench)
            _note(found["stream"], side, stream(bench, count, size, name, None), number, bench)
        _note(found["exactly"], "kohort", stream(bench, count, size, "kohort", "exactly-once"), number, bench)
    best = {name: {side: count / min(times) / 1e6 for side, times in sides.items()} for name, sides in found.items()}
    if "connector" in best["stream"]:
        best["exactly"]["connector"] = best["stream"]["connector"]
    lines = {
        "df.write, at least once": ("bounded", 3.0),
        "micro-batch, at least once": ("stream", 3.0),
        "micro-batch, exactly once (connector: at least once)": ("exactly", 2.0),
    }
    for name, (kind, goal) in lines.items():
        made.lines.append(Line(name, "M rows/s", best[kind], goals=(goal, goal)))
    return made


def _note(found: dict[str, list[float]], side: str, seconds: float, number: int, bench: Bench) -> None:
    """The first round does not count."""
    if number or bench.sizes.rounds == 1:
        found.setdefault(side, []).append(seconds)
