"""One's own assignor, and expressions, are computed elsewhere: the group goes on, and late answers change nothing."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.modern.groups import Members
from kohort.assignors import GroupSpec, UniformAssignor
from kohort.coordinator import events
from kohort.coordinator.modern.heartbeat import SOON_MS
from kohort.protocol.errors import ErrorCode as E

OWN = "own"


class Own:
    """Deals as `uniform` does, and spoils what it was given."""

    name = OWN

    def assign(self, spec: GroupSpec) -> Any:
        made = {member: dict(given) for member, given in UniformAssignor().assign(spec).items()}
        for member in spec.members.values():
            member.assigned.clear()  # type: ignore[attr-defined]
        spec.members.clear()  # type: ignore[attr-defined]
        return made


class Broken(Own):
    def assign(self, spec: GroupSpec) -> Any:
        raise ValueError("no")


@pytest.fixture
def members() -> Members:
    made = Members()
    made.world.config.assignors = {**made.world.config.assignors, OWN: Own()}
    made.world.works_later = True
    return made


def failures(members: Members) -> list[str]:
    return [e.cause.said for e in members.world.events if isinstance(e, events.TargetFailed) and e.cause is not None]


def test_members_come_soon_again_for_what_is_being_made(members: Members) -> None:
    answer = members.join("a", server_assignor=OWN)
    assert answer.heartbeat_interval_ms == SOON_MS and answer.assignment.topic_partitions == []
    assert answer.member_epoch == members.group.assignment_epoch == members.group.epoch - 1 > 0
    assert members.group.state_name == "Assigning"
    assert members.beat("a").heartbeat_interval_ms == SOON_MS and len(members.world.work) == 1
    members.world.do_work()
    answer = members.acknowledge("a")
    assert members.owned["a"] == {"orders": {0, 1, 2, 3}} and answer.heartbeat_interval_ms == 5_000
    assert members.beat("a").heartbeat_interval_ms == 5_000


def test_nothing_that_it_does_to_its_arguments_reaches_the_group(members: Members) -> None:
    members.world.works_later = False
    members.join("a", server_assignor=OWN)
    members.acknowledge("a")
    members.join("b", server_assignor=OWN)
    assert {name: len(numbers["orders"]) for name, numbers in members.settle().items()} == {"a": 2, "b": 2}


def test_what_was_made_for_an_older_epoch_is_dropped_and_asked_for_anew(members: Members) -> None:
    members.join("a", server_assignor=OWN)
    members.join("b", server_assignor=OWN)
    assert len(members.world.work) == 1, "one at a time"
    epoch = members.group.assignment_epoch
    members.world.do_work()
    assert members.group.assignment_epoch == epoch and len(members.world.work) == 1
    members.world.do_work()
    assert members.group.assignment_epoch == members.group.epoch
    assert {name: len(numbers["orders"]) for name, numbers in members.settle().items()} == {"a": 2, "b": 2}


def test_a_static_member_that_is_replaced_meanwhile_is_assigned_under_its_new_id(members: Members) -> None:
    members.join("a", server_assignor=OWN, instance_id="i")
    members.leave("a", epoch=-2, instance_id="i")
    members.join("b", server_assignor=OWN, instance_id="i")  # no new epoch
    members.world.do_work()
    members.world.do_work()
    assert members.settle("b") == {"b": {"orders": {0, 1, 2, 3}}}
    assert set(members.group.target) == {"b"}


def test_one_that_is_too_slow_is_given_up_and_told(members: Members) -> None:
    members.join("u")
    members.join("a", server_assignor=OWN)
    members.join("b", server_assignor=OWN)
    epoch = members.group.assignment_epoch
    members.world.advance(members.world.config.assignor_timeout_ms)
    assert failures(members) == ["own: no answer within 10000 ms"]
    late = members.world.work
    assert members.beat("a").heartbeat_interval_ms == 5_000 and members.world.work == late, "it may be at work still"
    members.world.do_work()
    assert members.group.assignment_epoch == epoch, "nobody waits for it any more"
    members.world.advance(members.world.config.assignor_timeout_ms)
    members.beat("a")
    members.world.do_work()
    assert members.group.assignment_epoch == members.group.epoch


def test_one_that_fails_is_asked_again_after_a_pause(members: Members) -> None:
    members.world.config.assignors = {**members.world.config.assignors, OWN: Broken()}
    members.world.works_later = False
    members.join("a", server_assignor=OWN)
    members.beat("a")
    assert failures(members) == ["own: ValueError: no"]
    members.world.config.assignors = {**members.world.config.assignors, OWN: Own()}
    members.world.advance(1_000)
    members.beat("a")
    assert members.settle() == {"a": {"orders": {0, 1, 2, 3}}}


def test_what_comes_after_the_group_is_gone_changes_nothing(members: Members) -> None:
    members.join("a", server_assignor=OWN)
    members.leave("a")
    members.world.do_work()
    assert members.group.target == {} and failures(members) == []


def test_what_comes_after_a_restart_changes_nothing(members: Members) -> None:
    members.join("a", server_assignor=OWN)
    late = list(members.world.work)
    members.world.work.clear()
    members.world.restart()
    members.world.coordinator.computed(late[0], late[0].compute(), None, members.world.now_ms)
    assert members.group.assignment_epoch < members.group.epoch and members.group.target == {}
    members.beat("a")
    members.world.do_work()
    assert members.settle() == {"a": {"orders": {0, 1, 2, 3}}}


def test_a_failed_append_of_what_it_made_is_no_target(members: Members) -> None:
    members.join("a", server_assignor=OWN)
    members.world.store_error = E.NOT_ENOUGH_REPLICAS
    members.world.do_work()
    members.world.store_error = E.NONE
    assert members.group.assignment_epoch < members.group.epoch and members.group.target == {}
    members.beat("a")
    members.world.do_work()
    assert members.settle() == {"a": {"orders": {0, 1, 2, 3}}}


def test_expressions_are_resolved_elsewhere_and_see_who_is_there_then() -> None:
    pytest.importorskip("re2")
    members = Members()
    members.world.works_later = True
    members.join("a", subscribed_topic_names=None, subscribed_topic_regex="or.*")
    members.world.advance(1)
    members.join("b", subscribed_topic_names=None, subscribed_topic_regex="p.*")
    members.world.advance(1)
    assert len(members.world.work) == 1, "one at a time"
    members.leave("a")
    epoch = members.group.epoch
    members.world.do_work()
    assert members.group.resolved == {} and members.group.epoch == epoch, "nobody subscribes by it any more"
    members.beat("b")
    members.world.advance(1)
    members.world.do_work()
    assert set(members.group.resolved) == {"p.*"}


def test_a_topic_that_comes_while_expressions_are_resolved_is_not_forgotten() -> None:
    pytest.importorskip("re2")
    members = Members()
    members.world.works_later = True
    members.join("a", subscribed_topic_names=None, subscribed_topic_regex="or.*")
    members.world.advance(1)
    members.world.topics.add("orchids", 1)
    members.world.coordinator.topics_changed("orchids")
    members.world.do_work()
    members.world.advance(10_001)
    members.beat("a")
    members.world.advance(1)
    members.world.do_work()
    assert members.settle()["a"] == {"orders": {0, 1, 2, 3}, "orchids": {0}}
