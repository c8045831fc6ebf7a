"""What a query holds: positions move only with durable batches, revoked partitions are never planned."""

from __future__ import annotations

from kohort.client.types import TopicPartition
from kohort.spark.holdings import Holdings

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def held() -> Holdings:
    holdings = Holdings()
    holdings.assign([A, B])
    holdings.resolve({A: 10, B: 20}, {A: 10, B: None})
    return holdings


def test_an_assignment_is_unresolved_until_its_position_is_known() -> None:
    holdings = Holdings()
    holdings.assign([A])
    assert holdings.unresolved() == {A} and holdings.positions() == {}
    holdings.resolve({A: 3, B: 4}, {})
    assert holdings.unresolved() == frozenset() and holdings.positions() == {A: 3}


def test_a_position_moves_when_its_batch_is_durable() -> None:
    holdings = held()
    assert holdings.plan({A: (10, 15), B: (20, 20)}) == {A: (10, 15), B: (20, 20)}
    assert holdings.busy([A, B]) == {A}
    assert holdings.uncommitted() == {B: 20}, "the batch in flight is not committed"
    holdings.finish({A: (10, 15), B: (20, 20)})
    assert holdings.positions() == {A: 15, B: 20} and holdings.busy([A, B]) == frozenset()
    assert holdings.uncommitted() == {A: 15, B: 20}
    holdings.commit_done({A: 15, B: 20})
    assert holdings.uncommitted() == {}


def test_a_partition_being_revoked_is_not_planned_but_still_committed() -> None:
    holdings = held()
    holdings.plan({A: (10, 15)})
    holdings.begin_revoke([A])
    assert holdings.busy([A]) == {A}
    holdings.finish({A: (10, 15)})
    assert holdings.plan({A: (15, 18), B: (20, 21)}) == {B: (20, 21)}
    assert holdings.uncommitted([A]) == {A: 15}
    holdings.drop([A])
    assert holdings.owned() == {B} and holdings.uncommitted([A]) == {}


def test_a_partition_that_was_lost_and_came_back_within_a_batch_has_no_position() -> None:
    holdings = held()
    holdings.plan({A: (10, 15)})
    holdings.drop([A])
    holdings.assign([A, B])
    holdings.finish({A: (10, 15)})
    assert holdings.unresolved() == {A} and holdings.uncommitted([A]) == {}


def test_a_plan_made_from_an_old_position_is_dropped() -> None:
    holdings = held()
    holdings.move(A, 12)
    assert holdings.plan({A: (10, 15), B: (20, 22)}) == {B: (20, 22)}


def test_every_step_that_frees_something_is_told() -> None:
    told: list[str] = []
    holdings = Holdings()
    holdings.on_change(lambda: told.append("changed"))
    holdings.assign([A])
    holdings.finish({})
    holdings.drop([A])
    assert len(told) == 3
