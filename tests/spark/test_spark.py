"""End to end with a real Spark: bounded reads, sinks, queries that share a group, crash and take over."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

import kohort.spark
from spark.query import committed, create, members, produce, unique, until

pytestmark = pytest.mark.timeout(300)

RUNNER = "python_streaming_source_runner"


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    session = kohort.spark.session("tests", "local[2]", {"spark.driver.memory": "512m", "spark.log.level": "ERROR"})
    yield session
    session.stop()


def numbers(first: int, stop: int) -> list[str]:
    return [str(number) for number in range(first, stop)]


def driver_processes() -> set[int]:
    """The Python processes in which streaming queries plan and are members."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if RUNNER in path.read_bytes().decode(errors="replace") and str(os.getpid()) in ancestors(path.parent):
                found.add(int(path.parent.name))
        except OSError:
            continue
    return found


def ancestors(process: Path) -> list[str]:
    pids = []
    while process.name not in ("0", "1"):
        parent = process.joinpath("stat").read_text().rpartition(")")[2].split()[1]
        pids.append(parent)
        process = process.with_name(parent)
    return pids


def patiently(condition: Callable[[], Any], what: str) -> Any:
    return until(condition, 120, what, every=0.3)


class Stream:
    """A running query into Spark's memory sink."""

    def __init__(self, spark: Any, servers: str, group: str, topic: str, checkpoint: Path, **options: str) -> None:
        before = driver_processes()
        self._spark, self._table = spark, unique("rows").replace("-", "_")
        self._checkpoint = checkpoint
        reader = spark.readStream.format("kohort").option("kafka.bootstrap.servers", servers)
        settings = {
            "group.id": group,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "session.timeout.ms": "3000",
            "heartbeat.interval.ms": "300",
            **options,
        }
        frame = reader.options(**settings).load().selectExpr("partition", "offset", "cast(value as string) AS value")
        writer = frame.writeStream.format("memory").queryName(self._table)
        self.query = writer.option("checkpointLocation", str(checkpoint)).start()
        self.pid = until(
            lambda: driver_processes() - before or self.query.exception(), 120, "the query's process"
        ).pop()

    def values(self) -> list[str]:
        return [row.value for row in self._spark.table(self._table).select("value").collect()]

    def places(self, values: set[str]) -> set[tuple[int, int]]:
        rows = self._spark.table(self._table).collect()
        return {(row.partition, row.offset) for row in rows if row.value in values}

    def last_batch(self) -> set[tuple[int, int]]:
        """What the last batch planned holds, from the checkpoint."""
        newest = max((path for path in (self._checkpoint / "offsets").glob("[0-9]*")), key=lambda path: int(path.name))
        topics = json.loads(newest.read_text().splitlines()[-1])["offsets"]
        spans = [(int(p), span) for partitions in topics.values() for p, span in partitions.items()]
        return {(partition, offset) for partition, (begin, stop) in spans for offset in range(begin, stop)}

    def owned(self) -> set[str]:
        """Partitions of the last batch."""
        progress = self.query.lastProgress
        offsets = json.loads(progress["sources"][0]["endOffset"])["offsets"] if progress else {}
        return {partition for partitions in offsets.values() for partition in partitions}


# -- bounded reads and sinks ---------------------------------------------------------------------------------------


def test_a_bounded_read_has_the_columns_of_sparks_own_source(spark: Any, servers: str) -> None:
    topic = unique("orders")
    create(servers, topic)
    produce(servers, topic, numbers(0, 400))
    reader = spark.read.format("kohort").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    frame = reader.load()
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"
    )
    rows = frame.collect()
    assert sorted((row.value.decode() for row in rows), key=int) == numbers(0, 400)
    assert {(row.topic, row.timestampType) for row in rows} == {(topic, 0)}
    assert sorted((row.partition, row.offset) for row in rows) == [(p, o) for p in range(4) for o in range(100)]
    span = json.dumps({topic: {"0": 10, "1": -2, "2": -1, "3": 99}})
    part = (
        reader.option("startingOffsets", span).option("minPartitions", "7").schema("offset long, value binary").load()
    )
    assert part.columns == ["offset", "value"] and part.rdd.getNumPartitions() >= 7
    assert part.count() == 90 + 100 + 0 + 1


def test_rows_are_written_with_headers_and_partitions(spark: Any, servers: str) -> None:
    topic = unique("out")
    create(servers, topic)
    frame = spark.range(100).selectExpr(
        "cast(id as string) AS key",
        "cast(id * 2 as string) AS value",
        "cast(id % 3 as int) AS partition",
        "array(named_struct('key', 'n', 'value', cast(cast(id as string) as binary))) AS headers",
    )
    frame.write.format("kohort").option("kafka.bootstrap.servers", servers).option("topic", topic).mode("append").save()
    reader = spark.read.format("kohort").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    rows = reader.option("includeHeaders", "true").load().collect()
    assert len(rows) == 100
    for row in rows:
        number = int(row.key)
        assert int(row.value) == number * 2 and row.partition == number % 3
        assert [(header.key, int(header.value)) for header in row.headers] == [("n", number)]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"subscribe": "orders", "startingOffset": "earliest"}, "did you mean startingOffsets"),
        ({"subscribe": "orders", "group.id": "g"}, "a bounded read joins no group"),
        ({"subscribe": "no-such-topic"}, "no such topic or partition: no-such-topic"),
    ],
)
def test_a_wrong_option_is_an_error_that_names_the_right_one(
    spark: Any, servers: str, options: dict[str, str], says: str
) -> None:
    reader = spark.read.format("kohort").option("kafka.bootstrap.servers", servers).options(**options)
    with pytest.raises(Exception, match=says):
        reader.load().count()


# -- streams -------------------------------------------------------------------------------------------------------


def test_available_now_copies_each_record_once_over_two_runs(spark: Any, servers: str, tmp_path: Path) -> None:
    source, target, group = unique("in"), unique("out"), unique()
    create(servers, source)
    create(servers, target, 1)

    def run() -> list[Any]:
        reader = spark.readStream.format("kohort").option("kafka.bootstrap.servers", servers)
        frame = reader.options(**{"group.id": group, "subscribe": source, "startingOffsets": "earliest"}).load()
        writer = frame.select("key", "value").writeStream.format("kohort").option("kafka.bootstrap.servers", servers)
        query = (
            writer.option("topic", target)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        return [json.loads(progress["sources"][0]["latestOffset"]) for progress in query.recentProgress]

    produce(servers, source, numbers(0, 100))
    progress = run()
    assert progress[-1]["lag"][source] == {"0": 0, "1": 0, "2": 0, "3": 0}
    assert committed(servers, group, source) == {0: 25, 1: 25, 2: 25, 3: 25}
    produce(servers, source, numbers(100, 140))
    run()
    reader = spark.read.format("kohort").option("kafka.bootstrap.servers", servers).option("subscribe", target)
    values = [row.value.decode() for row in reader.load().select("value").collect()]
    assert sorted(values, key=int) == numbers(0, 140)
    assert members(servers, group) == 0, "a query that ends leaves the group"


def test_queries_and_a_plain_consumer_share_a_group_and_take_over(spark: Any, servers: str, tmp_path: Path) -> None:
    topic, group = unique("orders"), unique()
    create(servers, topic)
    produce(servers, topic, numbers(0, 400))
    first = Stream(spark, servers, group, topic, tmp_path / "1")
    patiently(lambda: len(first.values()) == 400, "the first query reads all")
    second = Stream(spark, servers, group, topic, tmp_path / "2")
    fed = 400

    def feed() -> int:
        nonlocal fed
        produce(servers, topic, numbers(fed, fed + 40))
        fed += 40
        return fed

    def shared() -> bool:
        feed()
        return len(first.owned()) == len(second.owned()) == 2

    patiently(shared, "the two queries share the partitions")
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "partition.assignment.strategy": "cooperative-sticky",
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 3000,
            "heartbeat.interval.ms": 300,
            "enable.auto.commit": False,
        }
    )
    seen: list[str] = []

    def poll() -> bool:
        for message in consumer.consume(100, 0.1):
            assert message.error() is None
            seen.append(message.value().decode())
            consumer.commit(message, asynchronous=False)
        return bool(consumer.assignment())

    consumer.subscribe([topic])
    patiently(poll, "the plain consumer gets a partition")
    feed()
    patiently(lambda: poll() and len(seen) >= 10, "and reads it")
    consumer.close()

    os.kill(first.pid, signal.SIGKILL)
    patiently(lambda: not first.query.isActive, "the killed query has failed")
    feed()

    def everything() -> bool:
        return set(seen) | set(first.values()) | set(second.values()) == set(numbers(0, fed))

    patiently(everything, "the second query takes over")
    patiently(lambda: sum(committed(servers, group, topic).values()) == fed, "zero lag")
    assert len(second.values()) == len(set(second.values())), "no query reads a record twice"
    assert len(first.values()) == len(set(first.values()))
    assert not set(seen) & (set(first.values()) | set(second.values())), "clean hand-overs re-read nothing"
    twice = set(first.values()) & set(second.values())
    assert first.places(twice) <= first.last_batch(), "only the batch uncommitted at the kill may be read twice"
    second.query.stop()
    patiently(lambda: second.pid not in driver_processes(), "its process ends")
    assert members(servers, group) == 0
