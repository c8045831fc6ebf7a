"""Streaming queries on a real Spark that the tests start, watch and kill, and the story that two of them go through."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer

from spark.query import committed, create, members, numbers, produce, unique, until

TIMES = {
    "classic": {"session.timeout.ms": "3000", "heartbeat.interval.ms": "300"},
    "consumer": {"kafka.group.protocol": "consumer"},
}
"""In a group of the consumer protocol they are the broker's."""
RUNNER = "python_streaming_source_runner"


def driver_processes() -> set[int]:
    """The Python processes in which streaming queries plan and are members.

    Not their witnesses, which are forks of them and go by the same command line from the query's first call on.
    """
    found = descendants(RUNNER, {os.getpid()})
    return found - descendants(RUNNER, found)


def one_of(found: set[int]) -> int | None:
    """None where there are more: one that was given up may need a moment to end."""
    return next(iter(found)) if len(found) == 1 else None


def descendants(command: str, of: set[int]) -> set[int]:
    """The processes with this in their command line that these have started, or those they have started."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if command in path.read_bytes().decode(errors="replace") and of & set(ancestors(path.parent)):
                found.add(int(path.parent.name))
        except OSError:
            continue
    return found


def ancestors(process: Path) -> list[int]:
    pids = []
    while process.name not in ("0", "1"):
        parent = process.joinpath("stat").read_text().rpartition(")")[2].split()[1]
        pids.append(int(parent))
        process = process.with_name(parent)
    return pids


def patiently(condition: Callable[[], Any], what: str) -> Any:
    return until(condition, 120, what, every=0.3)


class Stream:
    """A running query into Spark's memory sink."""

    def __init__(
        self,
        spark: Any,
        servers: str,
        group: str,
        topic: str,
        checkpoint: Path,
        protocol: str = "classic",
        **options: str,
    ) -> None:
        before = driver_processes()
        self._spark, self._table = spark, unique("rows").replace("-", "_")
        self._folder, self._attempts = checkpoint, 0
        reader = spark.readStream.format("kohort").option("kafka.bootstrap.servers", servers)
        settings = {
            "group.id": group,
            "subscribe": topic,
            "startingOffsets": "earliest",
            **TIMES[protocol],
            **options,
        }
        frame = reader.options(**settings).load().selectExpr("partition", "offset", "cast(value as string) AS value")
        self._writer = frame.writeStream.format("memory").queryName(self._table)
        self._start()
        self.pid = patiently(lambda: self._started() and one_of(driver_processes() - before), "the query's process")

    def _start(self) -> None:
        self._attempts += 1
        self._checkpoint = self._folder / str(self._attempts)
        self.query = self._writer.option("checkpointLocation", str(self._checkpoint)).start()

    def _started(self) -> bool:
        """Spark gives a Python process 10 s to start, which a busy machine may need longer for: then start again."""
        if not self.query.isActive:
            assert "connect back" in str(self.query.exception())
            self._start()
        return self.query.isActive and "Initializing" not in self.query.status["message"]

    def values(self) -> list[str]:
        return [row.value for row in self._spark.table(self._table).select("value").collect()]

    def places(self, values: set[str]) -> set[tuple[int, int]]:
        rows = self._spark.table(self._table).collect()
        return {(row.partition, row.offset) for row in rows if row.value in values}

    def last_batch(self) -> set[tuple[int, int]]:
        """What the last batch planned holds, from the checkpoint; those without rows only tell what was waited for."""
        files = sorted((self._checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name), reverse=True)
        return next((rows for path in files if (rows := self._rows_of(path))), set())

    @staticmethod
    def _rows_of(batch: Path) -> set[tuple[int, int]]:
        topics = json.loads(batch.read_text().splitlines()[-1])["offsets"]
        spans = [(int(p), span) for partitions in topics.values() for p, span in partitions.items()]
        return {(partition, offset) for partition, (begin, stop) in spans for offset in range(begin, stop)}

    def owned(self) -> set[str]:
        """Partitions of the last batch."""
        progress = self.query.lastProgress
        offsets = json.loads(progress["sources"][0]["endOffset"])["offsets"] if progress else {}
        return {partition for partitions in offsets.values() for partition in partitions}


class PlainConsumer:
    """A confluent-kafka consumer that commits every record it has seen."""

    def __init__(self, servers: str, group: str, topic: str, protocol: str = "classic") -> None:
        self.seen: list[str] = []
        times: dict[str, Any] = {"group.protocol": "consumer"}
        if protocol == "classic":
            times = {**TIMES[protocol], "partition.assignment.strategy": "cooperative-sticky"}
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **times,
            }
        )
        self._consumer.subscribe([topic])

    def poll(self) -> bool:
        for message in self._consumer.consume(100, 0.1):
            assert message.error() is None
            self.seen.append(message.value().decode())
            self._consumer.commit(message, asynchronous=False)
        return bool(self._consumer.assignment())

    def close(self) -> list[str]:
        self._consumer.close()
        return self.seen


def share_and_take_over(
    spark: Any,
    servers: str,
    folder: Path,
    when_shared: Callable[[str, str], None] = lambda group, topic: None,
    at_the_end: Callable[[str, str], None] = lambda group, topic: None,
    protocol: str = "classic",
) -> None:
    """Two queries share a group, a plain consumer joins and leaves, one query is killed, the other takes over."""
    topic, group = unique("orders"), unique()
    create(servers, topic)
    produce(servers, topic, numbers(0, 400))
    first = Stream(spark, servers, group, topic, folder / "1", protocol)
    patiently(lambda: len(first.values()) == 400, "the first query reads all")
    second = Stream(spark, servers, group, topic, folder / "2", protocol)
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
    when_shared(group, topic)
    consumer = PlainConsumer(servers, group, topic, protocol)
    patiently(consumer.poll, "the plain consumer gets a partition")
    feed()
    patiently(lambda: consumer.poll() and len(consumer.seen) >= 10, "and reads it")
    seen = consumer.close()

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
    at_the_end(group, topic)
    second.query.stop()
    patiently(lambda: second.pid not in driver_processes(), "its process ends")
    assert members(servers, group) == 0
