"""Bounded reads with the same options by kohort's source and by Spark's own: the same rows, or an error from both."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from apache_kafka import ApacheKafka
from spark import reads_job
from spark.query import create, unique
from spark_connector import connector_jars

PARTITIONS, RECORDS, FIRST_MS, APART_MS = 3, 40, 1_700_000_000_000, 1000
"""The last partition is empty. Record n of the others is APART_MS after record n - 1."""


def at(number: float) -> str:
    return str(int(FIRST_MS + number * APART_MS))


def each(topic: str, *numbers: object) -> str:
    return json.dumps({topic: {str(partition): int(number) for partition, number in enumerate(numbers)}})  # type: ignore[call-overload]


def cases(topic: str, other: str, payments: str) -> dict[str, dict[str, str]]:
    everything = {"subscribe": topic}
    return {
        "all there is": everything,
        "two topics": {"subscribe": f"{topic}, {other}"},
        "a pattern": {"subscribePattern": topic[:-1] + "."},
        "a pattern within names": {"subscribePattern": topic[2:-1]},
        "a pattern of one name": {"subscribePattern": f"^{topic}$"},
        "a pattern of nothing": {"subscribePattern": f"^{topic[2:]}"},
        "a pattern of internal topics": {"subscribePattern": f"{topic}|^__"},
        "some partitions": {"assign": json.dumps({topic: [0, 2]})},
        "headers": {**everything, "includeHeaders": "true"},
        "from and to offsets": {
            **everything,
            "startingOffsets": each(topic, 5, -2, 0),
            "endingOffsets": each(topic, 30, -1, 0),
        },
        "latest as the start of a partition": {**everything, "startingOffsets": each(topic, 5, -2, -1)},
        "an end before the start": {
            **everything,
            "startingOffsets": each(topic, 20, 0, 0),
            "endingOffsets": each(topic, 10, -1, -1),
        },
        "offsets of too few partitions": {**everything, "startingOffsets": each(topic, 5, 5)},
        "offsets of too many partitions": {**everything, "startingOffsets": each(topic, 5, 5, 0, 0)},
        "offsets of another topic": {**everything, "startingOffsets": each(other, 5, 5, 0)},
        "offsets that are no JSON": {**everything, "startingOffsets": "5"},
        "latest as a start": {**everything, "startingOffsets": "latest"},
        "earliest as an end": {**everything, "endingOffsets": "earliest"},
        "earliest as the end of a partition": {**everything, "endingOffsets": each(topic, -2, -1, -1)},
        "a start past the end": {**everything, "startingOffsets": each(topic, 99, 0, 0)},
        "a start past the end, loss allowed": {
            **everything,
            "startingOffsets": each(topic, 99, 0, 0),
            "failOnDataLoss": "false",
        },
        "a start at the end": {**everything, "startingOffsets": each(topic, RECORDS, RECORDS, 0)},
        "a time": {
            "assign": json.dumps({topic: [0, 1]}),
            "startingTimestamp": at(7.5),
            "endingTimestamp": at(20),
        },
        "a time that ends before it starts": {
            "assign": json.dumps({topic: [0, 1]}),
            "startingTimestamp": at(20),
            "endingTimestamp": at(10),
        },
        "a time of a record": {"assign": json.dumps({topic: [0]}), "startingTimestamp": at(7)},
        "a time before all": {"assign": json.dumps({topic: [0, 1]}), "startingTimestamp": "1"},
        "a time after all": {**everything, "startingTimestamp": at(RECORDS)},
        "a time after all, then the end": {
            **everything,
            "startingTimestamp": at(30),
            "startingOffsetsByTimestampStrategy": "latest",
        },
        "an end in the future": {**everything, "endingTimestamp": at(10 * RECORDS)},
        "times of partitions": {
            "assign": json.dumps({topic: [0, 1]}),
            "startingOffsetsByTimestamp": each(topic, at(3), at(33)),
            "endingOffsetsByTimestamp": each(topic, at(10), at(RECORDS)),
        },
        "times of too few partitions": {**everything, "startingOffsetsByTimestamp": each(topic, at(3))},
        "more tasks": {**everything, "minPartitions": "5"},
        "smaller tasks": {**everything, "maxRecordsPerPartition": "7"},
        "no task at all": {**everything, "minPartitions": "0"},
        "a topic that does not exist": {"subscribe": unique("missing")},
        "no topic": {},
        "a topic and a pattern": {**everything, "subscribePattern": ".*"},
        "a flag that is none": {**everything, "failOnDataLoss": "perhaps"},
        "with what was aborted": {"subscribe": payments},
        "only what was committed": {"subscribe": payments, "kafka.isolation.level": "read_committed"},
    }


DIFFERENT = ("a start past the end, loss allowed",)
"""Where failOnDataLoss=false says to go on with what there is, and Spark's source raises all the same."""
NAMES = list(cases("topic", "other", "payments"))


@pytest.fixture(scope="module")
def told(apache_kafka: ApacheKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    servers, topic = apache_kafka.bootstrap_servers, unique("orders")
    other, payments = f"{topic}-too", unique("payments")
    fill(servers, topic)
    fill(servers, other)
    pay(servers, payments)
    given = [
        (name, {**options, "kafka.bootstrap.servers": servers})
        for name, options in cases(topic, other, payments).items()
    ]
    file = tmp_path_factory.mktemp("reads") / "cases.json"
    file.write_text(json.dumps(given))
    jars = ",".join(map(str, connector_jars()))
    command = [sys.executable, str(Path(reads_job.__file__)), jars, str(file)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert run.returncode == 0, run.stderr
    yield json.loads(run.stdout.splitlines()[-1])


def fill(servers: str, topic: str) -> None:
    create(servers, topic, PARTITIONS, retention_ms="-1")
    producer = Producer({"bootstrap.servers": servers})
    for number in range(RECORDS):
        for partition in range(PARTITIONS - 1):
            producer.produce(
                topic,
                None if number == 11 else f"value {number}",
                None if number % 3 == 0 else f"key {number}",
                partition=partition,
                timestamp=FIRST_MS + number * APART_MS,
                headers=[("n", str(number)), ("n", "again")] if number % 4 == 0 else None,
            )
    assert producer.flush(30) == 0


def pay(servers: str, topic: str) -> None:
    """A committed, an aborted and again a committed transaction."""
    create(servers, topic, 1)
    producer = Producer({"bootstrap.servers": servers, "transactional.id": unique("till")})
    producer.init_transactions(60)
    for name, keep in (("a", True), ("b", False), ("c", True)):
        producer.begin_transaction()
        for number in range(3):
            producer.produce(topic, f"{name}{number}", partition=0)
        producer.flush()
        producer.commit_transaction(60) if keep else producer.abort_transaction(60)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_rows_or_an_error(told: dict[str, Any], name: str) -> None:
    ours, theirs = (told[name][source] for source in reads_job.FORMATS)
    if name in DIFFERENT:
        assert ours != theirs, "no longer different"
        return
    assert ("error" in ours) == ("error" in theirs), f"{ours.get('error')!r} against {theirs.get('error')!r}"
    if "error" not in ours:
        assert ours == theirs
