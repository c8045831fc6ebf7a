"""ConsumerGroupHeartbeat: joining, epochs, hand-over, leaving, static members, timeouts, refusals."""

from __future__ import annotations

import random
from typing import Any

import pytest

from coordinator.modern.groups import GROUP, Members
from kohort.assignors import GroupSpec
from kohort.coordinator import events
from kohort.coordinator.causes import CauseKind
from kohort.coordinator.modern_records import MemberState
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest

E = ErrorCode


def all_of(*counts: int) -> set[int]:
    return set(range(sum(counts)))


def test_the_first_member_gets_everything() -> None:
    members = Members()
    response = members.join("a")
    assert (response.error_code, response.member_id, response.member_epoch) == (E.NONE, "a", 2)
    assert response.heartbeat_interval_ms == 5_000
    assert members.owned["a"] == {"orders": {0, 1, 2, 3}}
    assert members.group.state_name == "Stable"
    kinds = [key[1] for key, _ in members.world.log[0]]
    assert kinds == [5, 3, 7, 6, 8], "in the order of Kafka's"


def test_a_heartbeat_without_news_writes_nothing_and_has_no_assignment() -> None:
    members = Members()
    members.join("a")
    before = len(members.world.log[0])
    for _ in range(2):
        response = members.beat("a")
        assert (response.error_code, response.member_epoch, response.assignment) == (E.NONE, 2, None)
    assert len(members.world.log[0]) == before


def test_a_hand_over_moves_what_must_move_and_nothing_else() -> None:
    """Test848UnreleasedPartitionsWaitForRevocation, Test848PartitionHandoffNoDuplicates."""
    members = Members()
    members.join("a")
    joined = members.join("b")
    assert joined.member_epoch == 3
    assert members.owned["b"] == {}, "nothing is free yet"
    assert members.group.members["b"].current.state is MemberState.UNRELEASED_PARTITIONS
    told = members.beat("a")
    assert (told.member_epoch, members.owned["a"]) == (2, {"orders": {0, 1}}), "it stays in its epoch until it gave up"
    assert members.group.members["a"].current.state is MemberState.UNREVOKED_PARTITIONS
    assert members.beat("b").assignment is None, "still held"
    assert members.describe().members[0].assignment.topic_partitions[0].partitions == [0, 1, 2, 3]
    assert members.beat("a").member_epoch == 2, "it has not said that it gave them up"
    assert members.acknowledge("a").member_epoch == 3
    members.beat("b")
    assert members.owned == {"a": {"orders": {0, 1}}, "b": {"orders": {2, 3}}}
    assert members.group.state_name == "Stable"


def test_waits_for_tells_who_holds_what() -> None:
    members = Members()
    members.join("a")
    members.join("b")
    group = members.group
    topic_id = members.world.topics.topics["orders"][0]
    assert group.waits_for(group.members["b"]) == {topic_id: {2: "a", 3: "a"}}


@pytest.mark.parametrize(
    ("epoch", "owned", "error"),
    [
        (4, None, E.FENCED_MEMBER_EPOCH),
        (3, None, E.NONE),
        (2, None, E.FENCED_MEMBER_EPOCH),
        (2, {"orders": {0}}, E.NONE),
        (2, {"orders": {0, 3}}, E.FENCED_MEMBER_EPOCH),
        (1, {"orders": {0}}, E.FENCED_MEMBER_EPOCH),
    ],
)
def test_which_epochs_a_member_may_come_with(epoch: int, owned: Any, error: ErrorCode) -> None:
    """testConsumerGroupMemberEpochValidation: only the epoch before, and only with what it has."""
    members = Members()
    members.join("a")
    members.join("b")
    members.settle()
    members.group.members["a"].current = members.group.members["a"].current._replace(previous_epoch=2)
    response = members.send("a", member_epoch=epoch, topic_partitions=owned)
    assert response.error_code == error


def test_epoch_0_is_always_a_way_back() -> None:
    members = Members()
    members.join("a")
    members.join("b")
    members.beat("a")  # has to give up two
    assert members.join("a").member_epoch == 3, "it comes with nothing, so it has given up everything"
    assert members.owned["a"] == {"orders": {0, 1}}


def test_leaving_frees_what_the_member_had() -> None:
    members = Members()
    members.join("a")
    members.join("b")
    members.settle()
    response = members.leave("b")
    assert (response.error_code, response.member_id, response.member_epoch) == (E.NONE, "b", -1)
    members.beat("a")
    assert members.owned["a"] == {"orders": {0, 1, 2, 3}}
    assert members.beat("a").member_epoch == 4
    members.leave("a")
    assert members.group.state_name == "Empty"


def test_a_session_that_ends() -> None:
    members = Members()
    members.join("a")
    members.join("b")
    members.settle()
    members.world.advance(44_000)
    members.beat("a")
    members.world.advance(1_000)
    assert list(members.group.members) == ["a"]
    evicted = [event for event in members.world.events if isinstance(event, events.MemberEvicted)]
    assert [(e.member_id, e.cause.kind) for e in evicted if e.cause] == [("b", CauseKind.TIMED_OUT)]
    assert members.send("b", member_epoch=3).error_code == E.UNKNOWN_MEMBER_ID


def test_partitions_that_are_not_given_up_in_time() -> None:
    """testRebalanceTimeoutExpiration"""
    members = Members()
    members.join("a", rebalance_timeout_ms=10_000)
    members.join("b")
    members.beat("a")
    for _ in range(10):
        members.world.advance(999)
        members.beat("a")
    members.world.advance(10)
    assert list(members.group.members) == ["b"]
    members.beat("b")
    assert members.owned["b"] == {"orders": {0, 1, 2, 3}}
    causes = [
        event.cause.kind for event in members.world.events if isinstance(event, events.MemberEvicted) and event.cause
    ]
    assert causes == [CauseKind.DID_NOT_REVOKE]


def test_the_next_target_waits_for_its_interval() -> None:
    """testConsumerGroupAssignmentInterval"""
    members = Members(consumer_assignment_interval_ms=1_000)
    members.join("a")
    assert members.join("b").member_epoch == 2, "the target of epoch 2, in which it has nothing"
    assert members.group.state_name == "Assigning"
    members.world.advance(999)
    assert members.beat("a").member_epoch == 2
    members.world.advance(1)
    members.beat("b")
    assert members.group.state_name == "Reconciling"
    assert members.settle() == {"a": {"orders": {0, 1}}, "b": {"orders": {2, 3}}}


def test_a_target_of_the_future_keeps_nobody_waiting() -> None:
    """Made by a coordinator whose clock is ahead."""
    members = Members(consumer_assignment_interval_ms=1_000)
    members.join("a")
    members.world.now_ms -= 3_600_000
    members.world.restart()
    members.join("b")
    assert members.settle() == {"a": {"orders": {0, 1}}, "b": {"orders": {2, 3}}}


# ---- static members


def test_a_static_member_comes_back_to_what_it_had() -> None:
    """testStaticMemberGetsBackAssignmentUponRejoin"""
    members = Members()
    members.join("a")
    members.join("s", instance_id="i")
    members.settle()
    epoch = members.group.epoch
    assert members.leave("s", -2, instance_id="i").member_epoch == -2
    members.world.advance(10_000)
    members.beat("a")
    back = members.join("s2", instance_id="i")
    assert (back.error_code, back.member_epoch) == (E.NONE, epoch)
    assert members.owned["s2"] == {"orders": {2, 3}}
    assert "s" not in members.group.members


def test_a_static_member_that_does_not_come_back() -> None:
    members = Members()
    members.join("s", instance_id="i")
    members.leave("s", -2, instance_id="i")
    members.world.advance(45_000)
    assert not members.group.members


def test_instance_ids_that_are_taken() -> None:
    """testShouldThrownUnreleasedInstanceId..., TestStaticMember848FencedInstanceID"""
    members = Members()
    members.join("s", instance_id="i")
    assert members.join("other", instance_id="i").error_code == E.UNRELEASED_INSTANCE_ID
    members.leave("s", -2, instance_id="i")
    members.join("other", instance_id="i")
    assert members.send("s", member_epoch=2, instance_id="i").error_code == E.FENCED_INSTANCE_ID
    assert members.leave("s", -1, instance_id="i").error_code == E.FENCED_INSTANCE_ID
    assert members.send("s", member_epoch=2, instance_id="j").error_code == E.UNKNOWN_MEMBER_ID


# ---- topics


def test_a_topic_that_grows_reaches_the_group() -> None:
    members = Members()
    members.join("a")
    members.world.topics.add("orders", 6)
    members.world.coordinator.topics_changed("orders")
    assert members.beat("a").member_epoch == 3
    assert members.owned["a"] == {"orders": {0, 1, 2, 3, 4, 5}}


def test_a_topic_that_is_deleted_and_made_again() -> None:
    members = Members()
    members.join("a", "orders", "bills")
    assert members.owned["a"] == {"orders": {0, 1, 2, 3}}
    members.world.topics.add("bills", 2)
    members.world.coordinator.topics_changed("bills")
    members.settle()
    assert members.owned["a"] == {"orders": {0, 1, 2, 3}, "bills": {0, 1}}
    old_id = members.world.topics.topics.pop("bills")[0]
    members.world.coordinator.topics_deleted({"bills": old_id}, members.world.now_ms)
    members.beat("a")
    assert members.owned["a"] == {"orders": {0, 1, 2, 3}}
    members.acknowledge("a")
    members.world.topics.topics["bills"] = (b"n" * 16, 1)
    members.world.coordinator.topics_changed("bills")
    assert members.settle() == {"a": {"orders": {0, 1, 2, 3}, "bills": {0}}}


def test_a_new_subscription_is_a_new_epoch() -> None:
    members = Members()
    members.world.topics.add("bills", 2)
    members.join("a")
    members.beat("a", subscribed_topic_names=["bills"])
    assert members.owned["a"] == {}, "what it had it gives up first"
    assert members.settle() == {"a": {"bills": {0, 1}}}


# ---- bad input


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"member_epoch": 0, "subscribed_topic_names": ["orders"], "topic_partitions": []}, E.INVALID_REQUEST),
        ({"member_epoch": 0, "rebalance_timeout_ms": 1, "subscribed_topic_names": ["orders"]}, E.INVALID_REQUEST),
        ({"member_epoch": 0, "rebalance_timeout_ms": 1, "topic_partitions": []}, E.INVALID_REQUEST),
        ({"member_epoch": -3}, E.INVALID_REQUEST),
        ({"member_epoch": -2}, E.INVALID_REQUEST),
        ({"member_epoch": 1, "instance_id": ""}, E.INVALID_REQUEST),
        ({"member_epoch": 1, "rack_id": " "}, E.INVALID_REQUEST),
        ({"member_epoch": 1, "server_assignor": "mine"}, E.UNSUPPORTED_ASSIGNOR),
        ({"member_epoch": 1}, E.GROUP_ID_NOT_FOUND),
        ({"member_epoch": -1}, E.GROUP_ID_NOT_FOUND),
    ],
)
def test_requests_that_make_no_sense(fields: dict[str, Any], error: ErrorCode) -> None:
    members = Members()
    response = members.send("a", **fields)
    assert response.error_code == error
    assert response.error_message
    assert not members.world.log[0]


def test_strangers() -> None:
    members = Members(consumer_max_size=1)
    members.join("a")
    assert members.send("b", member_epoch=2).error_code == E.GROUP_MAX_SIZE_REACHED
    assert members.leave("b").error_code == E.UNKNOWN_MEMBER_ID
    assert members.join("b").error_code == E.GROUP_MAX_SIZE_REACHED
    assert members.send("", member_epoch=2).error_code == E.INVALID_REQUEST
    refused = [event.error for event in members.world.events if isinstance(event, events.HeartbeatRefused)]
    assert refused == ["GROUP_MAX_SIZE_REACHED", "UNKNOWN_MEMBER_ID", "GROUP_MAX_SIZE_REACHED"]


def test_version_0_gets_its_id_from_the_broker() -> None:
    members = Members()
    response = members.join("", version=0)
    assert response.member_id == "0001"


class Twice:
    name = "twice"

    def assign(self, spec: GroupSpec) -> Any:
        return {member: {topic: [0] for topic in spec.topics} for member in spec.members}


class Fails:
    name = "fails"

    def assign(self, spec: GroupSpec) -> Any:
        raise KeyError("x")


@pytest.mark.parametrize("assignor", [Twice(), Fails()])
def test_an_assignor_that_fails_is_contained(assignor: Any) -> None:
    members = Members()
    members.world.config.assignors = {**members.world.config.assignors, assignor.name: assignor}
    members.join("a")
    members.join("b", server_assignor=assignor.name)
    assert members.group.assignment_epoch == 2, "the last target stands"
    assert members.beat("a").error_code == E.NONE
    failed = [event.cause for event in members.world.events if isinstance(event, events.TargetFailed)]
    assert failed[0] is not None and failed[0].kind is CauseKind.ASSIGNOR_FAILED
    members.leave("b")
    assert members.settle() == {"a": {"orders": {0, 1, 2, 3}}}


# ---- the log


def test_a_restart_changes_nothing() -> None:
    members = Members()
    members.join("a")
    members.join("s", instance_id="i")
    members.beat("a")
    before = {name: (member.metadata, member.current) for name, member in members.group.members.items()}
    members.world.restart()
    group = members.group
    assert {name: (member.metadata, member.current) for name, member in group.members.items()} == before
    assert (group.epoch, group.assignment_epoch, group.state_name) == (3, 3, "Reconciling")
    assert members.settle() == {"a": {"orders": {0, 1}}, "s": {"orders": {2, 3}}}


@pytest.mark.parametrize("seed", range(5))
def test_a_compacted_log_tells_the_same_whatever_came_first(seed: int) -> None:
    """testReplayConsumerGroupCurrentMemberAssignmentWithCompaction: of a key that was written, removed and written
    again only the last record is left, and records of other keys that were written before it may come later."""
    members = Members()
    members.join("a")
    members.join("b", instance_id="i")
    members.settle()
    members.leave("a")
    members.leave("b", epoch=-2, instance_id="i")
    members.join("b2", instance_id="i")
    members.join("a")
    members.settle("b2")
    members.commit("a", members.epochs["a"])

    def told() -> Any:
        group = members.describe()
        group.members.sort(key=lambda row: row.member_id)
        return group, members.fetch(None, -1)

    before = told()
    latest = dict(members.world.log[0])
    records = [(key, value) for key, value in latest.items() if value is not None]
    random.Random(seed).shuffle(records)
    members.world.log[0] = records
    members.world.restart()
    assert told() == before
    assert members.settle("a", "b2")["a"]["orders"]


def test_what_cannot_be_stored_did_not_happen() -> None:
    members = Members()
    members.join("a")
    members.world.store_error = E.NOT_ENOUGH_REPLICAS
    assert members.join("b").error_code == E.COORDINATOR_NOT_AVAILABLE
    members.world.store_error = E.NONE
    assert list(members.group.members) == ["a"]
    assert members.beat("a").error_code == E.NONE


def test_a_group_that_is_deleted_leaves_nothing_in_the_log() -> None:
    members = Members()
    members.join("a")
    members.commit("a", 2)
    request = DeleteGroupsRequest(groups_names=[GROUP])
    assert members.world.send(request, 2).results[0].error_code == E.NON_EMPTY_GROUP
    members.leave("a")
    assert members.world.send(request, 2).results[0].error_code == E.NONE
    latest = dict(members.world.log[0])
    assert not any(latest.values())
    members.world.restart()
    assert members.world.coordinator.groups == {}


# ---- offsets and tools


def test_commits_and_fetches_are_checked() -> None:
    members = Members()
    members.join("a")
    members.join("b")
    assert members.commit("a", 2) == E.NONE
    assert members.commit("a", 3) == E.STALE_MEMBER_EPOCH
    assert members.commit("x", 2) == E.UNKNOWN_MEMBER_ID
    assert members.commit("", -1) == E.UNKNOWN_MEMBER_ID
    assert members.commit("a", 2, version=8) == E.UNSUPPORTED_VERSION
    members.settle()
    assert members.commit("a", 2, partition=0) == E.NONE, "it had it then, and has it still"
    assert members.commit("a", 2, partition=3) == E.STALE_MEMBER_EPOCH
    assert members.fetch("a", 3).error_code == E.NONE
    assert members.fetch("a", 2).error_code == E.STALE_MEMBER_EPOCH
    assert members.fetch("x", 2).error_code == E.UNKNOWN_MEMBER_ID
    assert members.fetch(None, -1).topics[0].partitions[0].committed_offset == 5


def test_what_tools_see() -> None:
    members = Members()
    members.join("a", rack_id="r")
    row = members.world.send(ListGroupsRequest(), 5).groups[0]
    assert (row.group_id, row.group_type, row.group_state, row.protocol_type) == (
        GROUP,
        "consumer",
        "Stable",
        "consumer",
    )
    old = members.world.send(DescribeGroupsRequest(groups=[GROUP]), 6).groups[0]
    assert (old.group_state, old.error_code) == ("Dead", E.GROUP_ID_NOT_FOUND)
    described = members.describe()
    assert (described.group_state, described.group_epoch, described.assignment_epoch) == ("Stable", 2, 2)
    assert described.assignor_name == "uniform"
    member = described.members[0]
    assert (member.member_id, member.member_epoch, member.member_type, member.rack_id) == ("a", 2, 1, "r")
    assert member.assignment == member.target_assignment
    assert member.assignment.topic_partitions[0].topic_name == "orders"
    assert members.describe("other").error_code == E.GROUP_ID_NOT_FOUND
    assert members.describe("").error_code == E.INVALID_GROUP_ID
