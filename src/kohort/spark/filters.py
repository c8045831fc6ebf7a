"""What a query's filters say about where to read: partitions, offsets, a first time. Pure, and never too little.

Spark evaluates every filter again on what was read, so that only what cannot be left out has to be read.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from kohort.client.types import TopicPartition
from kohort.spark.offsets import Ranges

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True, slots=True)
class Bounds:
    """All that filters leave to be read. None: everything."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    least_partition: int | None = None
    partitions_end: int | None = None
    first_offset: int | None = None
    stop_offset: int | None = None
    since_ms: int | None = None
    """Of a record's timestamp. There is no end: records behind the first that is too new may be older."""

    def covers(self, tp: TopicPartition) -> bool:
        return (
            (self.topics is None or tp.topic in self.topics)
            and (self.partitions is None or tp.partition in self.partitions)
            and (self.least_partition is None or tp.partition >= self.least_partition)
            and (self.partitions_end is None or tp.partition < self.partitions_end)
        )

    def clip(self, ranges: Ranges) -> Ranges:
        return {tp: self._clip(*span) for tp, span in ranges.items() if self.covers(tp)}

    def _clip(self, first: int, stop: int) -> tuple[int, int]:
        if self.stop_offset is not None:
            stop = max(min(stop, self.stop_offset), first)
        if self.first_offset is not None:
            first = min(max(first, self.first_offset), stop)
        return first, stop


def bounds_of(filters: Iterable[Filter]) -> Bounds:
    """The filters all hold; those that say nothing about places are left to Spark."""
    bounds = Bounds()
    for one in filters:
        column = getattr(one, "attribute", ())
        if column == ("topic",):
            bounds = _of_topics(bounds, one)
        elif column == ("partition",):
            bounds = _of_partitions(bounds, one)
        elif column == ("offset",):
            bounds = _of_offsets(bounds, one)
        elif column == ("timestamp",):
            bounds = _of_times(bounds, one)
    return bounds


def _of_topics(bounds: Bounds, one: Filter) -> Bounds:
    values = _values(one, str)
    if values is None:
        return bounds
    return replace(bounds, topics=frozenset(values) if bounds.topics is None else bounds.topics & frozenset(values))


def _of_partitions(bounds: Bounds, one: Filter) -> Bounds:
    values = _values(one, int)
    if values is not None:
        wanted = frozenset(values)
        return replace(bounds, partitions=wanted if bounds.partitions is None else bounds.partitions & wanted)
    least, end = _span(one)
    return replace(
        bounds,
        least_partition=_later(bounds.least_partition, least),
        partitions_end=_sooner(bounds.partitions_end, end),
    )


def _of_offsets(bounds: Bounds, one: Filter) -> Bounds:
    values = _values(one, int)
    first, stop = (min(values), max(values) + 1) if values else _span(one)
    return replace(
        bounds, first_offset=_later(bounds.first_offset, first), stop_offset=_sooner(bounds.stop_offset, stop)
    )


def _of_times(bounds: Bounds, one: Filter) -> Bounds:
    """A time without a zone is left to Spark, which knows the session's."""
    if not isinstance(one, EqualTo | GreaterThan | GreaterThanOrEqual):
        return bounds
    at = one.value
    if not isinstance(at, datetime.datetime) or at.tzinfo is None:
        return bounds
    return replace(bounds, since_ms=_later(bounds.since_ms, (at - _EPOCH) // datetime.timedelta(milliseconds=1)))


def _values(one: Filter, kind: type) -> list[Any] | None:
    """What the column may be, one by one; None where the filter says it otherwise."""
    if isinstance(one, EqualTo) and _is(one.value, kind):
        return [one.value]
    if isinstance(one, In) and all(value is None or _is(value, kind) for value in one.value):
        return [value for value in one.value if value is not None]
    return None


def _span(one: Filter) -> tuple[int | None, int | None]:
    if not isinstance(one, GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual) or not _is(one.value, int):
        return None, None
    number: int = one.value
    if isinstance(one, GreaterThan | GreaterThanOrEqual):
        return number + isinstance(one, GreaterThan), None
    return None, number + isinstance(one, LessThanOrEqual)


def _is(value: object, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _later(one: int | None, other: int | None) -> int | None:
    return max((number for number in (one, other) if number is not None), default=None)


def _sooner(one: int | None, other: int | None) -> int | None:
    return min((number for number in (one, other) if number is not None), default=None)


def since(ranges: Ranges, found: Mapping[TopicPartition, int | None]) -> Ranges:
    """Without what lies before the first record that is new enough; nothing of a partition that has none."""
    clipped: Ranges = {}
    for tp, (first, stop) in ranges.items():
        begin = found.get(tp, first)
        clipped[tp] = (stop, stop) if begin is None else (min(max(first, begin), stop), stop)
    return clipped
