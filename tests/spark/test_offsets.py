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


def size(task: tuple[Piece, ...]) -> int:
    return sum(piece.stop - piece.first for piece in task)


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


@given(spans, st.none() | st.integers(1, 40), st.none() | st.integers(1, 300), st.none() | st.integers(1, 8))
def test_pieces_share_tasks_and_none_is_left_out(
    ranges: dict[TopicPartition, tuple[int, int]], least: int | None, most: int | None, cores: int | None
) -> None:
    pieces = split(ranges, least, most)
    tasks = plan_tasks(ranges, min_partitions=least, max_records=most, cores=cores)
    assert sorted(piece for task in tasks for piece in task) == sorted(pieces)
    assert all(task and list(task) == sorted(task) for task in tasks)
    assert most is None or all(size(task) <= most for task in tasks)
    assert least is None or len(tasks) >= min(least, len(pieces))


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=30), st.integers(1, 10))
def test_tasks_are_of_about_the_same_size(sizes: list[int], count: int) -> None:
    tasks = gather([Piece("t", number, 0, stop) for number, stop in enumerate(sizes)], count)
    assert len(tasks) == min(count, len(sizes))
    assert max(map(size, tasks)) - min(map(size, tasks)) <= max(sizes)


def test_as_many_tasks_as_cores_where_their_number_is_known() -> None:
    batch = {TopicPartition("t", number): (0, 125_000) for number in range(4)}
    assert [size(task) for task in plan_tasks(batch, cores=2)] == [250_000, 250_000]
    assert len(plan_tasks(batch)) == 4
    assert [size(task) for task in plan_tasks(batch, max_partitions=1)] == [500_000]
    large = {tp: (0, 2_000_000) for tp in batch}
    assert len(plan_tasks(large, cores=2)) == 4, "long tasks are not made longer"
    assert len(plan_tasks(large, max_partitions=2)) == 2, "unless the user says so"
    skewed = {**{tp: (0, 10) for tp in batch}, A: (0, 400_000)}
    assert [len(task) for task in plan_tasks(skewed, cores=4)] == [1, 3]


def test_many_partitions_with_little_to_read_need_few_tasks() -> None:
    many = {TopicPartition("t", number): (0, 500) for number in range(64)}
    assert len(plan_tasks(many)) == 1
    assert len(plan_tasks(many, cores=2)) == 2, "an idle core takes half of it"
    assert len(plan_tasks({tp: (0, 100) for tp in many}, cores=2)) == 1, "but not for as little as this"
    assert len(plan_tasks(many, min_partitions=64)) == 64
    assert len(plan_tasks({tp: (0, 100_000) for tp in many})) == 64
    assert all(sum(p.stop - p.first for p in task) <= 1000 for task in plan_tasks(many, max_records=1000))
