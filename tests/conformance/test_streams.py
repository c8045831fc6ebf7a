"""Kafka Streams with exactly_once_v2 on kohort: kill -9 of the application and of brokers; every word counts once."""

from __future__ import annotations

import itertools
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kohort
from apache_kafka import compile_java, java_command
from kafka_streams import fetch_streams
from kohort.client import TopicPartition

SOURCE = Path(__file__).parent / "streams"
WORDS = ("to", "be", "or", "not", "that", "is", "the", "question")
LIMIT_S = 240
PARTITIONS = 2
LINES = 150
AHEAD = 60  # words that are sent and not counted
_numbers = itertools.count()


class Application:
    """One instance of WordCount in a process of its own."""

    def __init__(self, servers: str, folder: Path) -> None:
        state = folder / f"state-{next(_numbers)}"
        jars = fetch_streams()
        classes = compile_java(SOURCE, more_jars=[jars / "*"])
        command = java_command(
            "WordCount", servers, "wordcount", "lines", "counts", str(state), extra_class_path=[classes, jars / "*"]
        )
        self._log = open(folder / f"{state.name}.log", "wb")  # noqa: SIM115
        self._process = subprocess.Popen(command, stdout=self._log, stderr=self._log)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()


@pytest.fixture(params=["a broker", "three brokers"])
def where(request: pytest.FixtureRequest) -> Iterator[Any]:
    config = {"group.initial.rebalance.delay.ms": 0, "transaction.state.log.num.partitions": 3}
    config |= {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 500}
    made = kohort.Broker(config=config) if request.param == "a broker" else kohort.Cluster(3, config)
    with made as running:
        yield running


def read(servers: str) -> list[tuple[str, int]]:
    partitions = [TopicPartition("counts", n) for n in range(PARTITIONS)]
    settings: dict[str, Any] = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
    with kohort.Consumer(bootstrap_servers=servers, **settings) as consumer:
        ends = consumer.end_offsets(partitions)
        consumer.assign(partitions)
        found: list[tuple[str, int]] = []
        while any(consumer.position(tp) < ends[tp] for tp in partitions):
            found += [(record.key.decode(), int(record.value)) for record in consumer.poll(1)]
        return found


@pytest.mark.timeout(LIMIT_S + 120)
def test_every_word_counts_once(where: Any, jdk: None, tmp_path: Path) -> None:
    for name in ("lines", "counts"):
        where.create_topic(name, PARTITIONS)
    lines = [[WORDS[number % 8], WORDS[number % 3], WORDS[number % 5]] for number in range(LINES)]
    expected = Counter(itertools.chain.from_iterable(lines))
    servers = where.bootstrap_servers
    total, deadline, sent, kills = expected.total(), time.monotonic() + LIMIT_S, 0, 0
    application = Application(servers, tmp_path)
    try:
        with kohort.Producer(bootstrap_servers=servers) as producer:
            while len(found := read(servers)) < total:
                assert time.monotonic() < deadline, f"{len(found)} of {total} after {kills} kills"
                while sent < LINES and 3 * sent < len(found) + AHEAD:  # so that there is always something in its hands
                    producer.send("lines", " ".join(lines[sent]), partition=sent % PARTITIONS)
                    sent += 1
                if kills < 2 and len(found) > total * (kills + 1) // 4:
                    kills += 1
                    application.kill()
                    application = Application(servers, tmp_path)
                    if isinstance(where, kohort.Cluster):
                        victim = where.coordinator_of("wordcount")
                        where.kill(victim)
                        where.start(victim)
                time.sleep(0.2)
    finally:
        application.kill()
    assert kills == 2, "it was over before both were killed"
    counted: dict[str, list[int]] = {}
    for word, count in read(servers):
        counted.setdefault(word, []).append(count)
    assert {word: len(counts) for word, counts in counted.items()} == dict(expected)
    for word, counts in counted.items():
        assert counts == list(range(1, expected[word] + 1)), word
