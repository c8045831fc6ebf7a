"""Which offsets a bounded read covers: options against a real broker. Spark's own source agrees (conformance)."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

import kohort
from kohort.client.types import TopicPartition
from kohort.spark.accounting import DataLossError
from kohort.spark.fetch import cluster_for
from kohort.spark.offsets import OffsetSpec
from kohort.spark.options import OptionError, parse_read_options
from kohort.spark.planning import bounded_ranges, resolve
from spark.query import create, unique
from spark.timed import at, create_timed


@pytest.fixture(scope="module")
def topic(broker: kohort.Broker) -> str:
    """There is an empty topic with a longer name, too."""
    name, servers = unique("orders"), broker.bootstrap_servers
    create_timed(servers, name)
    create(servers, f"{name}-too", 1)
    return name


def ranges(servers: str, topic: str, options: Mapping[str, object]) -> list[tuple[int, int]]:
    """[from, to) of each partition; a list among the options is one number a partition."""
    given = {"kafka.bootstrap.servers": servers}
    if "assign" in options:
        given["assign"] = json.dumps({topic: options["assign"]})
    else:
        given["subscribe"] = topic
    for name, value in options.items():
        if name != "assign":
            each = json.dumps({topic: dict(enumerate(map(int, value)))}) if isinstance(value, list) else str(value)
            given[name] = each
    parsed = parse_read_options(given, "batch")
    return [span for _, span in sorted(bounded_ranges(cluster_for(parsed.settings), parsed).items())]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [(0, 40), (0, 40), (0, 0)]),
        ({"assign": [1]}, [(0, 40)]),
        ({"startingOffsets": [5, -2, 0], "endingOffsets": [30, -1, 0]}, [(5, 30), (0, 40), (0, 0)]),
        ({"startingOffsets": [40, 39, 0]}, [(40, 40), (39, 40), (0, 0)]),
        ({"assign": [0, 1], "startingTimestamp": at(7.5), "endingTimestamp": at(20)}, [(8, 20), (8, 20)]),
        ({"assign": [0], "startingTimestamp": at(7)}, [(7, 40)]),
        ({"assign": [0], "startingTimestamp": 1}, [(0, 40)]),
        ({"startingTimestamp": at(30), "startingOffsetsByTimestampStrategy": "latest"}, [(30, 40), (30, 40), (0, 0)]),
        ({"endingTimestamp": at(400)}, [(0, 40), (0, 40), (0, 0)]),
        (
            {
                "assign": [0, 1],
                "startingOffsetsByTimestamp": [at(3), at(33)],
                "endingOffsetsByTimestamp": [at(9), at(99)],
            },
            [(3, 9), (33, 40)],
        ),
        ({"failOnDataLoss": "false", "startingOffsets": [99, 0, 0]}, [(40, 40), (0, 40), (0, 0)]),
        ({"failOnDataLoss": "false", "endingOffsets": [99, 7, -1]}, [(0, 40), (0, 7), (0, 0)]),
    ],
)
def test_what_is_read(servers: str, topic: str, options: Mapping[str, object], expected: list[tuple[int, int]]) -> None:
    assert ranges(servers, topic, options) == expected


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"startingOffsets": [5, 5]}, OptionError, r"startingOffsets has nothing for .*-2: name every partition, -1"),
        ({"startingOffsets": [5, 5, 0, 0]}, OptionError, "which this read does not cover"),
        (
            {"startingOffsetsByTimestamp": [at(3)]},
            OptionError,
            "startingOffsetsByTimestamp has nothing for",
        ),
        ({"startingOffsets": [5, 5, -1]}, OptionError, r"startingOffsets=-1 \(latest\) would read nothing of"),
        ({"startingOffsets": [20, 0, 0], "endingOffsets": [10, -1, -1]}, OptionError, "end at offset 10, before"),
        ({"assign": [0], "startingTimestamp": at(9), "endingTimestamp": at(3)}, OptionError, "end at offset 3, before"),
        ({"startingTimestamp": at(30)}, OptionError, "-2: no record is as new as the timestamp asked for"),
        ({"startingOffsets": [99, 0, 0]}, DataLossError, r"\[99, 40\) was asked for, the log holds \[0, 40\)"),
        ({"endingOffsets": [99, -1, -1]}, DataLossError, r"\[0, 99\) was asked for, the log holds \[0, 40\)"),
        ({"assign": [0, 7]}, OptionError, "no such topic or partition"),
    ],
)
def test_what_is_an_error(
    servers: str, topic: str, options: Mapping[str, object], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        ranges(servers, topic, options)


def test_a_time_never_lies_past_the_end_seen_before(servers: str, topic: str) -> None:
    """Records that arrive while a read is planned are not part of it."""
    partition, spec = TopicPartition(topic, 0), OffsetSpec("timestamp", int(at(20)))
    assert resolve(cluster_for({"bootstrap.servers": servers}), spec, {partition: (0, 10)}) == {partition: 10}


@pytest.mark.parametrize(
    ("pattern", "found"), [("{0}", 2), ("^{0}$", 1), ("{0}-.oo", 1), ("^too", 0), ("{0}-too|^__consumer", 1)]
)
def test_a_pattern_is_found_in_names(servers: str, topic: str, pattern: str, found: int) -> None:
    given = {"kafka.bootstrap.servers": servers, "subscribePattern": pattern.format(topic)}
    options = parse_read_options(given, "batch")
    assert len({tp.topic for tp in bounded_ranges(cluster_for(options.settings), options)}) == found
