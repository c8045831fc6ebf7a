"""Which places are left to read by which filters, and by a real Spark."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from kohort.client.types import TopicPartition
from kohort.spark.batch import FilteringReader
from kohort.spark.filters import Bounds, bounds_of, since
from kohort.spark.options import OptionError, parse_read_options
from spark.query import create, numbers, produce, unique

RANGES = {TopicPartition(topic, number): (10, 100) for topic in ("a", "b") for number in range(3)}
NOON = datetime.datetime(2026, 1, 1, 12, 0, 0, 1500, tzinfo=datetime.UTC)


def left(*filters: Filter) -> dict[str, tuple[int, int]]:
    return {f"{tp.topic}{tp.partition}": span for tp, span in bounds_of(filters).clip(RANGES).items()}


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([EqualTo(("partition",), 1)], {"a1": (10, 100), "b1": (10, 100)}),
        ([EqualTo(("topic",), "a"), In(("partition",), (0, 2, 7, None))], {"a0": (10, 100), "a2": (10, 100)}),
        ([GreaterThan(("partition",), 1), EqualTo(("topic",), "b")], {"b2": (10, 100)}),
        ([LessThan(("partition",), 1), EqualTo(("topic",), "b")], {"b0": (10, 100)}),
        ([EqualTo(("partition",), 1), EqualTo(("partition",), 2)], {}),
        ([In(("topic",), ())], {}),
    ],
)
def test_partitions_that_need_not_be_read(filters: list[Filter], expected: dict[str, tuple[int, int]]) -> None:
    assert left(*filters) == expected


@pytest.mark.parametrize(
    ("filters", "span"),
    [
        ([GreaterThan(("offset",), 40)], (41, 100)),
        ([GreaterThanOrEqual(("offset",), 40), LessThan(("offset",), 50)], (40, 50)),
        ([LessThanOrEqual(("offset",), 50), LessThan(("offset",), 70)], (10, 51)),
        ([EqualTo(("offset",), 42)], (42, 43)),
        ([In(("offset",), (42, 44))], (42, 45)),
        ([LessThan(("offset",), 5)], (10, 10)),
        ([GreaterThan(("offset",), 500)], (100, 100)),
        ([GreaterThan(("offset",), 60), LessThan(("offset",), 20)], (20, 20)),
    ],
)
def test_offsets_that_need_not_be_read(filters: list[Filter], span: tuple[int, int]) -> None:
    assert left(*filters, EqualTo(("partition",), 0), EqualTo(("topic",), "a")) == {"a0": span}


@pytest.mark.parametrize(
    "other",
    [
        Not(EqualTo(("partition",), 1)),
        EqualNullSafe(("partition",), 1),
        EqualTo(("partition",), None),
        EqualTo(("partition",), 1.0),
        IsNotNull(("offset",)),
        GreaterThan(("offset",), True),
        StringStartsWith(("topic",), "a"),
        EqualTo(("headers", "partition"), 1),
        LessThan(("timestamp",), NOON),
        GreaterThan(("timestamp",), NOON.replace(tzinfo=None)),
    ],
)
def test_filters_that_are_left_to_spark(other: Filter) -> None:
    assert bounds_of([other]) == Bounds()


def test_times() -> None:
    since_ms = int(NOON.timestamp() * 1000)
    for kind in (GreaterThan, GreaterThanOrEqual, EqualTo):
        assert bounds_of([kind(("timestamp",), NOON)]) == Bounds(since_ms=since_ms)
    first, second, third = (TopicPartition("a", number) for number in range(3))
    found = {first: 40, second: None, third: 5}
    assert since(dict.fromkeys(found, (10, 100)), found) == {first: (40, 100), second: (100, 100), third: (10, 100)}


def test_a_stream_has_no_filters_to_push() -> None:
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "group.id": "g", "pushFilters": "true"}
    with pytest.raises(OptionError, match="pushFilters is for bounded reads"):
        parse_read_options(given, "stream")


def test_what_is_left_out_is_not_read(servers: str) -> None:
    topic = unique("orders")
    create(servers, topic)
    produce(servers, topic, numbers(0, 400))
    options = parse_read_options({"kafka.bootstrap.servers": servers, "subscribe": topic}, "batch")
    reader = FilteringReader(options, ("partition", "offset"))
    filters: list[Filter] = [In(("partition",), (1, 3)), GreaterThanOrEqual(("offset",), 90)]
    assert reader.pushFilters(filters) is filters
    rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    assert sorted((row["partition"], row["offset"]) for row in rows) == [(p, o) for p in (1, 3) for o in range(90, 100)]
    late = FilteringReader(options, ("partition", "offset"))
    late.pushFilters([GreaterThan(("timestamp",), NOON.replace(year=2200))])
    assert [row for part in late.partitions() for batch in late.read(part) for row in batch.to_pylist()] == []


@pytest.fixture
def pushing(spark: Any) -> Iterator[Any]:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield spark
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_spark_pushes_filters_down(pushing: Any, servers: str) -> None:
    topic = unique("orders")
    create(servers, topic)
    produce(servers, topic, numbers(0, 400))
    reader = pushing.read.format("kohort").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    reader = reader.option("pushFilters", "true").option("maxRecordsPerPartition", "10")
    places = "partition IN (1, 3) AND offset >= 90"
    frame = reader.load().where(f"{places} AND timestamp > '2020-01-01 00:00:00'")
    assert (frame.rdd.getNumPartitions(), reader.load().rdd.getNumPartitions()) == (2, 40)
    assert sorted((row.partition, row.offset) for row in frame.collect()) == [
        (p, o) for p in (1, 3) for o in range(90, 100)
    ]
    assert reader.load().where("partition = 2 AND cast(value AS string) = '2'").count() == 1
    assert reader.load().where("timestamp > '2200-01-01 00:00:00'").count() == 0
    assert reader.load().count() == 400
