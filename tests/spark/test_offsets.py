"""Offsets in checkpoints, limits shared among partitions, ranges split into tasks."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.client.types import TopicPartition
from kohort.spark.offsets import Piece, StreamOffset, gather, plan_tasks, share, split

A, B, C = (TopicPartition("t", number) for number in (0, 2, 10))
counts = st.dictionaries(st.sampled_from([A, B, C]), st.integers(0, 1000), min_size=1)
spans = st.dictionaries(
    st.sampled_from([A, B, C]), st.tuples(st.integers(0, 500), st.integers(0, 500)).map(lambda s: (s[0], s[0] + s[1]))
)


def test_a_checkpoint_is_the_same_text_whatever_the_order() -> None:
    one = StreamOffset("q", {C: (1, 2), A: (3, 4)}).to_json()
    other = StreamOffset("q", {A: (3, 4), C: (1, 2)}).to_json()
    assert json.dumps(one) == json.dumps(other) == '{"query": "q", "offsets": {"t": {"0": [3, 4], "10": [1, 2]}}}'
    assert StreamOffset.from_json(json.loads(json.dumps(one))) == StreamOffset("q", {A: (3, 4), C: (1, 2)})


@pytest.mark.parametrize("foreign", [{}, {"t": {"0": 1}}, {"query": "q", "offsets": {"t": {"0": 1}}}])
def test_a_checkpoint_of_another_source_is_refused(foreign: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="new checkpointLocation"):
        StreamOffset.from_json(foreign)


@given(counts, st.integers(1, 2000))
def test_a_limit_is_used_up_and_never_passed(available: dict[TopicPartition, int], limit: int) -> None:
    shares = share(available, limit)
    assert all(0 <= shares[tp] <= available[tp] for tp in available)
    assert sum(shares.values()) == min(limit, sum(available.values()))


@given(counts, st.integers(3, 2000))
def test_nobody_starves_where_there_is_enough_for_all(available: dict[TopicPartition, int], limit: int) -> None:
    shares = share(available, limit)
    assert all(shares[tp] > 0 for tp, count in available.items() if count)


@given(spans, st.none() | st.integers(1, 40), st.none() | st.integers(1, 300))
def test_tasks_cover_every_range_exactly(
    ranges: dict[TopicPartition, tuple[int, int]], least: int | None, most: int | None
) -> None:
    pieces = split(ranges, least, most)
    for tp, (first, stop) in ranges.items():
        mine = [piece for piece in pieces if (piece.topic, piece.partition) == tp]
        covered = [offset for piece in mine for offset in range(piece.first, piece.stop)]
        assert covered == list(range(first, stop))
        assert all(piece.stop > piece.first for piece in mine)
        assert most is None or all(piece.stop - piece.first <= most for piece in mine)
    total = sum(stop - first for first, stop in ranges.values())
    assert least is None or len(pieces) >= min(least, total)


def test_large_ranges_are_split_and_small_ones_are_not() -> None:
    pieces = split({A: (0, 90), B: (0, 10)}, min_partitions=10)
    assert len([piece for piece in pieces if piece.partition == 0]) == 9
    assert [piece for piece in pieces if piece.partition == 2] == [Piece("t", 2, 0, 10)]


@given(spans, st.none() | st.integers(1, 40), st.integers(1, 600))
def test_small_pieces_share_a_task_up_to_a_limit(
    ranges: dict[TopicPartition, tuple[int, int]], least: int | None, enough: int
) -> None:
    pieces = split(ranges, least)
    tasks = gather(pieces, least, enough)
    assert [piece for task in tasks for piece in task] == pieces
    assert all(len(task) == 1 or sum(piece.stop - piece.first for piece in task) <= enough for task in tasks)
    assert least is None or len(tasks) >= min(least, len(pieces))


def test_many_partitions_with_little_to_read_need_few_tasks() -> None:
    many = {TopicPartition("t", number): (0, 500) for number in range(64)}
    assert len(plan_tasks(many)) == 1
    assert len(plan_tasks(many, min_partitions=64)) == 64
    assert len(plan_tasks({tp: (0, 100_000) for tp in many})) == 64
    assert all(sum(p.stop - p.first for p in task) <= 1000 for task in plan_tasks(many, max_records=1000))
