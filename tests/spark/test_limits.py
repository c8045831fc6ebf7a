"""Limits of micro-batches: offsets, bytes, and how long a small one is held back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.client.types import TopicPartition
from kohort.spark.limits import Holdback, parse_duration_ms, take
from kohort.spark.options import OptionError, parse_read_options
from spark.query import Query, create, numbers, produce, stopping, unique, until

A, B, C = (TopicPartition("t", number) for number in range(3))
counts = st.dictionaries(st.sampled_from([A, B, C]), st.integers(0, 1000), min_size=1)
sizes = st.fixed_dictionaries({tp: st.floats(1, 2000) for tp in (A, B, C)})


@given(counts, st.integers(1, 100_000), sizes)
def test_a_byte_limit_is_kept_and_progress_is_made(
    available: dict[TopicPartition, int], limit: int, each: dict[TopicPartition, float]
) -> None:
    taken = take(available, None, limit, each)
    assert all(0 <= taken[tp] <= available[tp] for tp in available)
    assert sum(int(count * each[tp]) for tp, count in taken.items()) <= limit or sum(taken.values()) == 1
    assert sum(taken.values()) > 0 or not sum(available.values())


def test_both_limits_hold_and_what_is_not_known_is_not_limited() -> None:
    assert take({A: 100, B: 100}, 50, 10_000, {A: 10.0, B: 10.0}) == {A: 25, B: 25}
    assert take({A: 100, B: 100}, 50, 100, {A: 10.0, B: 10.0}) == {A: 5, B: 5}
    assert take({A: 100}, None, 100, {}) == {A: 100}
    assert take({A: 100, B: 0}, None, 5, {A: 10.0}) == {A: 1, B: 0}


def test_a_small_batch_is_held_back_for_a_while() -> None:
    holdback = Holdback(100, 60_000)
    assert not holdback.holds(1, 0), "the first does not wait"
    holdback.planned(0)
    assert holdback.holds(99, 59_999)
    assert not holdback.holds(100, 1) and not holdback.holds(1, 60_000)
    assert not Holdback(None, 60_000).holds(0, 0)


@pytest.mark.parametrize(("text", "ms"), [("15m", 900_000), ("30s", 30_000), ("5 min", 300_000), ("1h", 3_600_000)])
def test_durations(text: str, ms: int) -> None:
    assert parse_duration_ms(text) == ms


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"minOffsetsPerTrigger": "5", "maxTriggerDelay": "soon"}, "is not a duration such as"),
        ({"maxTriggerDelay": "5m"}, "needs minOffsetsPerTrigger"),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "is more than maxOffsetsPerTrigger"),
    ],
)
def test_limits_that_make_no_sense(options: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        parse_read_options({"kafka.bootstrap.servers": "h:1", "subscribe": "t", "group.id": "g", **options}, "stream")


def test_a_stream_with_a_limit_in_bytes(servers: str) -> None:
    topic = unique("large")
    create(servers, topic, 2)
    produce(servers, topic, ["x" * 1000] * 100, partition=0)
    produce(servers, topic, ["x" * 1000] * 100, partition=1)
    query = Query(servers, unique(), subscribe=topic, maxBytesPerTrigger="20000")
    with stopping(query):
        until(query.plan)
        first = query.run()
        assert 10 <= first <= 20, "records of some 1,000 bytes each, so some 20,000 bytes"
        query.step_until(200)


def test_a_stream_that_waits_for_enough(servers: str) -> None:
    topic = unique("orders")
    create(servers, topic, 1)
    produce(servers, topic, numbers(0, 5), partition=0)
    query = Query(servers, unique(), subscribe=topic, minOffsetsPerTrigger="10", maxTriggerDelay="1h")
    with stopping(query):
        query.step_until(5)
        produce(servers, topic, numbers(5, 9), partition=0)
        assert not query.plan()
        produce(servers, topic, numbers(9, 20), partition=0)
        query.step_until(20)
        assert query.values() == numbers(0, 20)
