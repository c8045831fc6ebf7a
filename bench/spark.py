"""How fast Spark reads topics: kohort's source beside Spark's own Kafka connector, at its defaults and tuned.

One broker, the same topics, one Spark session of two cores, the readers taking turns. Bounded reads of all columns and
of the value alone, micro-batches of a stream, topics of 1 to 64 partitions, the memory of a Python worker.
A source that does no work (spark_ceiling.py) shows how much of kohort's time is Spark's own.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import statistics
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import spark_latency
from kohort.spark.interpreter import DAEMONS
from process import family
from spark_ceiling import FORMAT as NO_WORK
from spark_ceiling import register
from spark_connector import connector_jars
from spark_topics import fill
from targets import running

TUNED = {
    "kafka.max.poll.records": "10000",
    "kafka.max.partition.fetch.bytes": str(4 * 1024 * 1024),
    "kafka.fetch.max.bytes": str(64 * 1024 * 1024),
    "kafka.receive.buffer.bytes": str(4 * 1024 * 1024),
}
T = TypeVar("T")
READERS = ("kohort", "connector", "connector, tuned")
CEILING = "no work"
ALL_COLUMNS = ("count(*)", "sum(length(key))", "sum(length(value))", "max(partition)", "max(offset)", "max(timestamp)")
VALUE_ONLY = ("count(*)", "sum(length(value))")
GOALS = {"all columns": (3.0, 1.8), "value only": (4.0, 2.0), "micro-batch": (2.0, 1.3)}


@dataclass(frozen=True)
class Sizes:
    records: int
    large_records: int
    scaling_records: int
    batches: tuple[int, ...]
    rounds: int
    latency_seconds: float
    sink_rows: int


FULL = Sizes(4_000_000, 500_000, 1_000_000, (500_000, 1_000_000), 3, 8, 1_000_000)
QUICK = Sizes(100_000, 10_000, 50_000, (20_000,), 1, 3, 20_000)


# -- results -------------------------------------------------------------------------------------------------------


@dataclass
class Line:
    name: str
    unit: str
    values: dict[str, float]
    lower_is_better: bool = False
    goals: tuple[float, float] | None = None

    def factors(self) -> dict[str, float]:
        """How many times better kohort is than each of the others."""
        own = self.values["kohort"]
        return {
            side: (value / own if self.lower_is_better else own / value)
            for side, value in self.values.items()
            if side not in ("kohort", CEILING) and own and value
        }


@dataclass
class SparkTable:
    title: str
    lines: list[Line] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def as_text(self) -> str:
        head = ("", "unit", *READERS, "factor", "tuned", "goals", CEILING)
        rows = [head, *(self._cells(line) for line in self.lines)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
        texts = [
            "  ".join(c.ljust(w) if i < 2 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
            for row in rows
        ]
        rule = "-" * max(map(len, texts))
        lines = [self.title, rule, texts[0], rule, *texts[1:], rule, *(f"  {note}" for note in self.notes)]
        return "\n".join(line.rstrip() for line in lines)

    @staticmethod
    def _cells(line: Line) -> tuple[str, ...]:
        factors = line.factors()
        shown = {side: f"{line.values[side]:,.2f}" if side in line.values else "-" for side in (*READERS, CEILING)}
        times = [f"{factors[side]:.2f}x" if side in factors else "-" for side in READERS[1:]]
        goals = "" if line.goals is None else f"{line.goals[0]:g}x / {line.goals[1]:g}x"
        return (line.name, line.unit, *(shown[side] for side in READERS), *times, goals, shown[CEILING])

    def as_json(self) -> dict[str, object]:
        rows = [
            {"name": line.name, "unit": line.unit, **line.values, "factors": line.factors(), "goals": line.goals}
            for line in self.lines
        ]
        return {"title": self.title, "rows": rows, "notes": self.notes}


# -- measuring -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Topic:
    name: str
    records: int
    size: int


class Bench:
    def __init__(self, spark: Any, servers: str, sizes: Sizes, readers: tuple[str, ...]) -> None:
        self.spark, self.servers, self.sizes, self.readers = spark, servers, sizes, readers

    def filled(self, name: str, records: int, size: int, partitions: int = 4, codec: str = "none") -> Topic:
        return Topic(name, fill(self.servers, name, records, size, partitions, codec), size)

    def frame(self, reader: str, topic: Topic, columns: str | None, stream: bool = False, **options: str) -> Any:
        spark = self.spark.readStream if stream else self.spark.read
        if reader == CEILING:
            source = spark.format(NO_WORK).options(records=topic.records, size=topic.size, **options)
        else:
            source = spark.format("kohort" if reader == "kohort" else "kafka")
            source = source.option("kafka.bootstrap.servers", self.servers).option("subscribe", topic.name)
            source = source.option("startingOffsets", "earliest").options(**options)
        if reader == "connector, tuned":
            source = source.options(**TUNED)
        if columns is not None and reader in ("kohort", CEILING):
            source = source.schema(columns)
        return source.load()

    def batch(self, reader: str, topic: Topic, aggregates: tuple[str, ...], columns: str | None = None) -> float:
        """Seconds to aggregate a whole topic."""
        frame = self.frame(reader, topic, columns).selectExpr(*aggregates)
        began = time.perf_counter()
        frame.collect()
        return time.perf_counter() - began

    def stream(self, reader: str, topic: Topic, records: int) -> list[float]:
        """Seconds for each micro-batch but the first and the last.

        The last one ends with the log. There the tuned connector waits for its next fetch to come back empty, half a
        second a task (fetch.max.wait.ms): left out in its favour.
        """
        from pyspark.errors import StreamingQueryException

        while True:
            try:
                return self._stream(reader, topic, records)
            except StreamingQueryException as error:
                # Spark gives a Python process 10 s to start, which a busy machine may need longer for.
                if "connect back" not in str(error):
                    raise

    def _stream(self, reader: str, topic: Topic, records: int) -> list[float]:
        options = {"maxOffsetsPerTrigger": str(records)}
        if reader == "kohort":
            options["group.id"] = f"bench-{uuid.uuid4().hex[:8]}"
        checkpoint = tempfile.mkdtemp(prefix="bench-")
        frame = self.frame(reader, topic, None, True, **options)
        writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint).trigger(availableNow=True)
        try:
            query = writer.start()
            query.awaitTermination()
            times = [p["durationMs"]["triggerExecution"] / 1000 for p in query.recentProgress if p["numInputRows"]]
        finally:
            shutil.rmtree(checkpoint, ignore_errors=True)
        return times[1:-1] or times

    def best(self, measure: Callable[[str], float], rounds: int | None = None) -> dict[str, float]:
        """The best of several rounds for each reader."""
        return {reader: min(times) for reader, times in self.taking_turns(measure, rounds).items()}

    def typical(self, measure: Callable[[str], list[float]]) -> dict[str, float]:
        """The median of all that several rounds gave for each reader."""
        return {reader: statistics.median(chain(*times)) for reader, times in self.taking_turns(measure).items()}

    def taking_turns(self, measure: Callable[[str], T], rounds: int | None = None) -> dict[str, list[T]]:
        """What each round measured, for each reader; one round before them does not count."""
        found: dict[str, list[T]] = {reader: [] for reader in self.readers}
        for number in range((rounds or self.sizes.rounds) + 1):
            for reader in self.readers:
                measured = measure(reader)
                if number or self.sizes.rounds == 1:
                    found[reader].append(measured)
        return found


def rates(topic: Topic, seconds: dict[str, float]) -> dict[str, float]:
    """Million records per second."""
    return {reader: topic.records / time_taken / 1e6 for reader, time_taken in seconds.items()}


class WorkerMemory:
    """The most memory any Python worker under this process has had so far, watched from a thread."""

    def __init__(self, pid: int) -> None:
        self._pid, self._done, self.most_bytes = pid, threading.Event(), 0
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> WorkerMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.2):
            for pid in family(self._pid):
                with contextlib.suppress(OSError):
                    command = Path(f"/proc/{pid}/cmdline").read_bytes()
                    if any(daemon.encode() in command for daemon in DAEMONS):
                        self.most_bytes = max(self.most_bytes, self._peak(pid))

    @staticmethod
    def _peak(pid: int) -> int:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def main_tables(bench: Bench) -> Iterator[SparkTable]:
    sizes = bench.sizes
    topics = [
        ("100 bytes", sizes.records, 100, "none"),
        ("100 bytes, lz4", sizes.records, 100, "lz4"),
        ("1 KB", sizes.large_records, 1000, "none"),
    ]
    for name, records, size, codec in topics:
        topic = bench.filled(f"bench-{size}-{codec}", records, size, codec=codec)
        table = SparkTable(f"Spark reads {topic.records:,} records of {name}, 4 partitions, local[2]")
        seconds = bench.best(lambda reader, topic=topic: bench.batch(reader, topic, ALL_COLUMNS))
        table.lines.append(Line("all columns", "M records/s", rates(topic, seconds), goals=GOALS["all columns"]))
        seconds = bench.best(lambda reader, topic=topic: bench.batch(reader, topic, VALUE_ONLY, "value binary"))
        table.lines.append(Line("value only", "M records/s", rates(topic, seconds), goals=GOALS["value only"]))
        table.lines.extend(micro_batches(bench, topic))
        yield table


def micro_batches(bench: Bench, topic: Topic) -> Iterator[Line]:
    """Sizes of which the topic has four or more, so that some are left without the first and the last; else a fifth."""
    chosen = [size for size in bench.sizes.batches if size * 4 <= topic.records] or [topic.records // 5]
    for size in chosen:
        seconds = bench.typical(lambda reader, size=size: bench.stream(reader, topic, size))
        yield Line(f"micro-batch of {size:,}", "s", seconds, lower_is_better=True, goals=GOALS["micro-batch"])


def scaling_table(bench: Bench) -> SparkTable:
    records = bench.sizes.scaling_records
    table = SparkTable(f"Partitions: {records:,} records of 100 bytes, all columns, local[2]")
    for partitions in (1, 4, 16, 64):
        topic = bench.filled(f"bench-scale-{partitions}", records, 100, partitions)
        seconds = bench.best(lambda reader, topic=topic: bench.batch(reader, topic, ALL_COLUMNS), 1)
        table.lines.append(Line(f"{partitions} partitions", "M records/s", rates(topic, seconds)))
    return table


def latency_table(bench: Bench) -> SparkTable:
    """Without the source that does no work: it has no records to wait for.

    The readers take turns here too: a JVM that has just started takes three times as long for a small batch as one that
    has run for two minutes, which is far more than what tells the readers apart.
    """
    seconds = bench.sizes.latency_seconds
    title = f"A streaming query: its start, and {spark_latency.RATE:,} records a second for {seconds:g} s a round"
    table = SparkTable(title)
    topic = bench.filled("bench-latency", 1000, 100)
    timed = Bench(bench.spark, bench.servers, bench.sizes, tuple(side for side in bench.readers if side != CEILING))
    first = timed.best(lambda reader: spark_latency.first_row(timed, reader, topic))
    table.lines.append(Line("start() to the first row", "s", first, lower_is_better=True))
    found = timed.taking_turns(lambda reader: spark_latency.latencies(timed, reader, topic, seconds))
    for name, part in (("p50", 0.5), ("p99", 0.99)):
        values = {reader: spark_latency.percentile([*chain(*times)], part) for reader, times in found.items()}
        table.lines.append(Line(f"produce to foreachBatch, {name}", "ms", values, lower_is_better=True))
    return table


def tables(bench: Bench) -> Iterator[SparkTable]:
    yield from main_tables(bench)
    yield scaling_table(bench)
    yield latency_table(bench)


def run(options: argparse.Namespace) -> Iterator[SparkTable]:
    """Each table as soon as it is there."""
    with opened(options) as (bench, notes), WorkerMemory(os.getpid()) as memory:
        notes.append(f"{CEILING}: a Python source that hands out rows from memory, the most that Spark's API allows")
        for table in tables(bench):
            used = f"a Python worker of kohort's source used at most {memory.most_bytes / 2**20:.0f} MB so far"
            table.notes = [*notes, used]
            yield table


@contextlib.contextmanager
def opened(options: argparse.Namespace) -> Iterator[tuple[Bench, list[str]]]:
    """A broker and a session, and what is to be said of them."""
    import kohort.spark

    sizes = QUICK if options.quick else FULL
    sizes = replace(sizes, rounds=options.rounds or sizes.rounds)
    readers, config = READERS, {"spark.driver.memory": "2g", "spark.log.level": "ERROR"}
    side = "kafka" if "kafka" in options.sides else "kohort"
    notes = [f"broker: {'Apache Kafka' if side == 'kafka' else 'kohort'}"]
    try:
        config["spark.jars"] = ",".join(map(str, connector_jars()))
        notes.append("factors: kohort against Spark's connector 4.2 at its defaults, and tuned")
    except (OSError, subprocess.CalledProcessError) as error:
        readers = ("kohort",)
        notes.append(f"Spark's connector is left out, its jars cannot be fetched: {error}")
    with running(side, {"group.initial.rebalance.delay.ms": 0}) as broker:
        spark = kohort.spark.session("bench", "local[2]", config)
        register(spark)
        try:
            yield Bench(spark, broker.bootstrap_servers, sizes, (*readers, CEILING)), notes
        finally:
            spark.stop()
