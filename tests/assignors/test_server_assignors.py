"""The broker's assignors: uniform and range, what holds for any group, and what becomes of a custom one's answer."""

from __future__ import annotations

import pytest

from kohort.assignors import (
    AssignmentError,
    AssignorConfigError,
    GroupSpec,
    MemberSpec,
    ServerRangeAssignor,
    TopicSpec,
    UniformAssignor,
    load_server_assignors,
)
from kohort.assignors.server import checked
from server_groups import Assigned, histories, moved, sizes, topic_id

A, B = topic_id(1), topic_id(2)


def spec(members: dict[str, MemberSpec], alike: bool = True, **partitions: int) -> GroupSpec:
    ids = {"a": A, "b": B}
    return GroupSpec(members, {ids[name]: TopicSpec(name, count) for name, count in partitions.items()}, alike)


def given(**assigned: dict[bytes, set[int]]) -> dict[str, MemberSpec]:
    return {name: MemberSpec({A, B}, partitions) for name, partitions in assigned.items()}


def test_uniform_from_nothing() -> None:
    answer = UniformAssignor().assign(spec(given(m1={}, m2={}, m3={}), a=4, b=3))
    assert answer == {"m1": {A: {0, 1}}, "m2": {A: {2, 3}}, "m3": {B: {0, 1, 2}}}


def test_uniform_balances_first_and_then_keeps() -> None:
    answer = UniformAssignor().assign(spec(given(m1={A: {0, 1, 2}}, m2={A: {3}, B: {0, 1, 2}}, m3={}), a=4, b=3))
    assert sizes(answer) == [3, 2, 2]
    assert answer["m1"] == {A: {0, 1, 2}}
    assert answer["m2"] == {A: {3}, B: {0}}


def test_uniform_gives_the_extra_one_to_those_who_have_it() -> None:
    answer = UniformAssignor().assign(spec(given(m1={A: {0}}, m2={A: {1, 2}}), a=3, b=0))
    assert answer == {"m1": {A: {0}}, "m2": {A: {1, 2}}}


def test_uniform_forgets_what_is_not_read_any_more() -> None:
    members = {"m1": MemberSpec({B}, {A: {0, 1}}), "m2": MemberSpec({B}, {})}
    assert UniformAssignor().assign(spec(members, a=2, b=2)) == {"m1": {B: {0}}, "m2": {B: {1}}}


def test_uniform_with_different_subscriptions() -> None:
    members = {"m1": MemberSpec({A}), "m2": MemberSpec({A, B}), "m3": MemberSpec(set())}
    answer = UniformAssignor().assign(spec(members, False, a=4, b=2))
    assert sizes(answer) == [3, 3, 0]
    assert answer["m2"][B] == {0, 1}


def test_range_goes_by_instance_ids_first() -> None:
    members = {
        "m1": MemberSpec({A, B}),
        "m2": MemberSpec({A, B}, instance_id="z"),
        "m3": MemberSpec({A, B}, instance_id="y"),
    }
    answer = ServerRangeAssignor().assign(spec(members, a=4, b=3))
    assert answer == {"m3": {A: {0, 1}, B: {0}}, "m2": {A: {2}, B: {1}}, "m1": {A: {3}, B: {2}}}


@pytest.mark.parametrize("alike", [True, False])
def test_what_holds_for_every_group(alike: bool) -> None:
    for assignor in (UniformAssignor(), ServerRangeAssignor()):
        for group in histories(assignor, 300, seed=7, alike=alike):
            answer: Assigned = assignor.assign(group)
            owned = [(topic, n) for given in answer.values() for topic, numbers in given.items() for n in numbers]
            read = set().union(*(member.topic_ids for member in group.members.values()))
            assert sorted(owned) == sorted((one, n) for one in read for n in range(group.topics[one].partitions))
            assert all(set(given) <= set(group.members[name].topic_ids) for name, given in answer.items())
            if alike and isinstance(assignor, UniformAssignor):
                assert max(sizes(answer)) - min(sizes(answer)) <= 1
                again = {name: MemberSpec(m.topic_ids, answer[name]) for name, m in group.members.items()}
                assert (
                    moved(GroupSpec(again, group.topics, True), assignor.assign(GroupSpec(again, group.topics, True)))
                    == 0
                )


def test_a_topic_that_is_gone() -> None:
    for alike in (True, False):
        with pytest.raises(AssignmentError, match="does not exist"):
            UniformAssignor().assign(spec(given(m1={}), alike, a=1))


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (None, "must return a mapping"),
        ({"nobody": {}}, "no member of the group"),
        ({"m1": [1]}, "a mapping of topic ids"),
        ({"m1": {b"x": [0]}}, "does not read"),
        ({"m1": {A: [7]}}, "does not have"),
        ({"m1": {A: [-1]}}, "does not have"),
        ({"m1": {A: ["0"]}}, "collection of integers"),
        ({"m1": {A: [0]}, "m2": {A: [0]}}, "a-0 to m1 and to m2"),
    ],
)
def test_nonsense_of_a_custom_assignor_is_named(answer: object, why: str) -> None:
    with pytest.raises(AssignmentError, match=why):
        checked(spec(given(m1={}, m2={}), a=2, b=1), answer, "mine")


def test_a_custom_answer_is_taken_as_it_is() -> None:
    made = checked(spec(given(m1={}, m2={}), a=2, b=1), {"m1": {A: [1, 0], B: []}}, "mine")
    assert made == {"m1": {A: {0, 1}}}


class Mine:
    name = "mine"

    def assign(self, spec: GroupSpec) -> Assigned:
        return {}


class NoName:
    def assign(self, spec: GroupSpec) -> Assigned:
        return {}


def test_assignors_by_name_and_by_path() -> None:
    assert list(load_server_assignors(["range", "uniform"])) == ["range", "uniform"]
    assert list(load_server_assignors(["uniform", f"{__name__}:Mine"])) == ["uniform", "mine"]
    java = "org.apache.kafka.coordinator.group.assignor.RangeAssignor"
    assert list(load_server_assignors([java])) == ["range"]


@pytest.mark.parametrize(
    ("specs", "why"),
    [
        ([], "is empty"),
        (["sticky"], "use uniform, range or"),
        (["uniform", "uniform"], "twice"),
        ([f"{__name__}:NoName"], "needs a `name`"),
        ([f"{__name__}:histories"], "needs a `name`"),
        (["no.such.module:X"], "cannot import"),
    ],
)
def test_what_cannot_be_loaded(specs: list[str], why: str) -> None:
    with pytest.raises(AssignorConfigError, match=why):
        load_server_assignors(specs)
