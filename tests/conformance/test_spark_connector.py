"""The same options for kohort's source and sink and for Spark's own: the same rows, or an error from both."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from apache_kafka import ApacheKafka
from spark import connector_job
from spark.query import create, produce_transactions, unique
from spark.timed import PARTITIONS, RECORDS, at, create_timed
from spark_connector import connector_jars


def each(topic: str, *numbers: object) -> str:
    return json.dumps({topic: {str(partition): int(number) for partition, number in enumerate(numbers)}})  # type: ignore[call-overload]


def reads(topic: str, other: str, payments: str) -> dict[str, dict[str, str]]:
    """Bounded reads: options by name."""
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


def streams(topic: str, other: str, payments: str) -> dict[str, dict[str, str]]:
    """Streams of what is there: options by name. For kohort's source the group is a new one."""
    everything = {"subscribe": topic}
    earliest = {**everything, "startingOffsets": "earliest"}
    return {
        "a stream": earliest,
        "a stream of the latest": everything,
        "a stream in many batches": {**earliest, "maxOffsetsPerTrigger": "9"},
        "a stream in more tasks": {**earliest, "minPartitions": "7"},
        "a stream with headers": {**earliest, "includeHeaders": "true"},
        "a stream from offsets": {**everything, "startingOffsets": each(topic, 5, -2, -1)},
        "a stream of two topics": {**earliest, "subscribe": f"{topic},{other}"},
        "a stream of a pattern": {"subscribePattern": topic[2:], "startingOffsets": "earliest"},
        "a stream from a time": {
            **everything,
            "startingTimestamp": at(30),
            "startingOffsetsByTimestampStrategy": "latest",
        },
        "a stream from a time after all": {**everything, "startingTimestamp": at(RECORDS)},
        "a stream from times": {
            **everything,
            "startingOffsetsByTimestamp": each(topic, at(3), at(33), at(0)),
            "startingOffsetsByTimestampStrategy": "latest",
        },
        "a stream of what was committed": {
            "subscribe": payments,
            "startingOffsets": "earliest",
            "kafka.isolation.level": "read_committed",
        },
        "a stream that ends": {**earliest, "endingOffsets": "latest"},
    }


def writes(target: str) -> dict[str, tuple[dict[str, str], list[str]]]:
    """Options and columns by name. Rows have a key or a partition: where others go is up to the producer."""
    there, key, value = {"topic": target}, "cast(id AS string) AS key", "concat('value ', id) AS value"
    as_binary = ["cast(cast(id AS string) AS binary) AS key", "cast(concat('value ', id) AS binary) AS value"]
    headers = "array(named_struct('key', 'n', 'value', cast(cast(id AS string) AS binary))) AS headers"
    no_headers = "if(id % 2 = 0, null, array(named_struct('key', 'n', 'value', cast(null AS binary)))) AS headers"
    return {
        "keys and values": (there, [key, value]),
        "binary keys and values": (there, as_binary),
        "no values": (there, [key, "cast(null AS string) AS value"]),
        "partitions": (there, [value, "cast(id % 3 AS int) AS partition"]),
        "partitions of some": (there, [key, value, "if(id % 2 = 0, 1, null) AS partition"]),
        "headers of all": (there, [key, value, headers]),
        "headers of some": (there, [key, value, no_headers]),
        "a column of topics": ({}, [key, value, f"'{target}' AS topic"]),
        "a column of topics and an option": (there, [key, value, "'elsewhere' AS topic"]),
        "columns that are not written": (there, [key, value, "id AS offset", "now() AS timestamp"]),
        "columns in capitals": (there, [key.replace(" key", " Key"), value.replace(" value", " VALUE")]),
        "only values": (there, ["'x' AS value", "0 AS partition"]),
        "without values": (there, [key]),
        "without a topic": ({}, [key, value]),
        "null as a topic": ({}, [key, value, "cast(null AS string) AS topic"]),
        "numbers as values": (there, [key, "id AS value"]),
        "numbers as keys": (there, ["id AS key", value]),
        "long partitions": (there, [key, value, "id % 3 AS partition"]),
        "headers of another type": (there, [key, value, "array('n') AS headers"]),
        "an empty topic": ({"topic": ""}, [key, value]),
    }


DIFFERENT = ("a start past the end, loss allowed",)
"""Where failOnDataLoss=false says to go on with what there is, and Spark's source raises all the same."""
NOTHING = {"a pattern of nothing", "a start at the end", "a stream of the latest"}
ERRORS = {
    "latest as the start of a partition",
    "an end before the start",
    "offsets of too few partitions",
    "offsets of too many partitions",
    "offsets of another topic",
    "offsets that are no JSON",
    "latest as a start",
    "earliest as an end",
    "earliest as the end of a partition",
    "a start past the end",
    "a time that ends before it starts",
    "a time after all",
    "times of too few partitions",
    "no task at all",
    "a topic that does not exist",
    "no topic",
    "a topic and a pattern",
    "a flag that is none",
    "a stream from a time after all",
    "a stream that ends",
    "columns in capitals",
    "without values",
    "without a topic",
    "null as a topic",
    "numbers as values",
    "numbers as keys",
    "long partitions",
    "headers of another type",
    "an empty topic",
}
NAMES = [*reads("t", "o", "p"), *streams("t", "o", "p"), *writes("t")]


@pytest.fixture(scope="module")
def told(apache_kafka: ApacheKafka, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    servers, topic = apache_kafka.bootstrap_servers, unique("orders")
    other, payments = f"{topic}-too", unique("payments")
    create_timed(servers, topic)
    create_timed(servers, other)
    create(servers, payments, 1)
    produce_transactions(servers, payments)
    given: list[tuple[str, str, dict[str, str], list[str]]] = []
    for kind, named in (("read", reads), ("stream", streams)):
        given += [(name, kind, options, []) for name, options in named(topic, other, payments).items()]
    for name in writes(""):
        target = unique("{format}")
        for source in connector_job.FORMATS:
            create(servers, target.replace("{format}", source), PARTITIONS)
        options, columns = writes(target)[name]
        given.append((name, "write", {**options, "target": target}, columns))
    for _, _, options, _ in given:
        options["kafka.bootstrap.servers"] = servers
    file = tmp_path_factory.mktemp("cases") / "cases.json"
    file.write_text(json.dumps(given))
    jars = ",".join(map(str, connector_jars()))
    command = [sys.executable, str(Path(connector_job.__file__)), jars, str(file)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", NAMES)
def test_the_same_rows_or_an_error(told: dict[str, Any], name: str) -> None:
    ours, theirs = (told[name][source] for source in connector_job.FORMATS)
    if name in DIFFERENT:
        assert "error" not in ours and "error" in theirs, "no longer different"
        return
    assert ("error" in ours) == ("error" in theirs), f"{ours.get('error')!r} against {theirs.get('error')!r}"
    assert ("error" in ours) == (name in ERRORS), ours.get("error")
    if "error" not in ours:
        assert ours == theirs
        assert bool(ours["rows"]) == (name not in NOTHING)
