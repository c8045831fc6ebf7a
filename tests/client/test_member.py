"""A member against a scripted coordinator: each test is a trace of requests, answers, time and actions."""

from __future__ import annotations

import re
from typing import Any

import pytest

from client.scripted import Stage, subscription_of, tp, tps
from kohort.assignors import Assignment, Subscription, decode_assignment, encode_assignment
from kohort.client.effects import (
    Assign,
    AutoCommit,
    CommitDone,
    Destination,
    DropCoordinator,
    Fail,
    Left,
    Lose,
    Revoke,
    UseCoordinator,
    WatchTopics,
)
from kohort.client.errors import CommitFailedError, FencedInstanceIdError, RebalanceInProgressError
from kohort.client.member import STEPS, TRANSITIONS, IllegalTransition, MemberState, Step
from kohort.client.types import OffsetAndMetadata
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages import (
    DescribeGroupsResponse,
    FindCoordinatorResponse,
    JoinGroupResponse,
    SyncGroupResponse,
)

# -- joining ---------------------------------------------------------------------------------------------------------


def test_first_join_as_leader() -> None:
    stage = Stage()
    stage.subscribe("orders")
    assert stage.sent[0].to is Destination.LEAST_LOADED
    assert stage.request("FindCoordinator").coordinator_keys == ["g"]
    stage.coordinator_found()
    assert stage.of(UseCoordinator) == [UseCoordinator(1, "broker", 9092)]
    assert stage.member.state is MemberState.PREPARING_REBALANCE

    stage.join_error(ErrorCode.MEMBER_ID_REQUIRED, member_id="m1")
    request = stage.request("JoinGroup")
    assert request.member_id == "m1"
    assert request.reason == "need to re-join with the given member-id: m1"
    assert stage.sent[0].timeout_ms == stage.member.config.max_poll_interval_ms + 5_000

    stage.joined(m2=Subscription(["orders"]))
    assert stage.member.state is MemberState.COMPLETING_REBALANCE
    assert stage.member.is_leader
    assignments = {a.member_id: decode_assignment(a.assignment) for a in stage.request("SyncGroup").assignments}
    assert {m: dict(a.partitions) for m, a in assignments.items()} == {
        "m1": {"orders": (0, 1)},
        "m2": {"orders": (2, 3)},
    }

    stage.synced(orders=[0, 1])
    assert stage.member.state is MemberState.STABLE
    assert stage.act(Assign) == Assign(tps("orders-0", "orders-1"), tps("orders-0", "orders-1"), 1)
    assert stage.member.step is Step.IDLE
    stage.quiet()


def test_follower_syncs_with_nothing_to_say() -> None:
    stage = Stage()
    stage.subscribe("orders")
    stage.coordinator_found()
    stage.joined(leader="other")
    assert stage.request("SyncGroup").assignments == []
    stage.synced(orders=[3])
    assert stage.act(Assign).partitions == tps("orders-3")
    assert not stage.member.is_leader


def test_nothing_is_joined_before_the_first_poll() -> None:
    stage = Stage()
    stage.do(stage.member.subscribe(["orders"], stage.now_ms))
    stage.quiet()
    stage.poll()
    stage.request("FindCoordinator")


def test_leader_asks_for_metadata_of_topics_that_others_subscribed_to() -> None:
    stage = Stage(topics={"orders": 2, "refunds": 2})
    stage.subscribe("orders")
    stage.metadata(covers=["orders"])
    stage.coordinator_found()
    stage.of(WatchTopics)
    stage.joined(m2=Subscription(["refunds"]))
    assert stage.of(WatchTopics) == [WatchTopics(frozenset({"orders", "refunds"}))]
    assignments = {a.member_id: decode_assignment(a.assignment) for a in stage.request("SyncGroup").assignments}
    assert dict(assignments["m2"].partitions) == {"refunds": (0, 1)}


def returned_leader(partitions: int = 4) -> Stage:
    """A static leader that came back to a stable group and was told to keep the assignment (KIP-814)."""
    stage = Stage(topics={"orders": partitions}, group_instance_id="i1")
    stage.subscribe("orders")
    stage.coordinator_found()
    request = stage.request("JoinGroup")
    assert request.group_instance_id == "i1"
    stage.answer(
        JoinGroupResponse(
            generation_id=7,
            protocol_type="consumer",
            protocol_name="range",
            leader="m1",
            member_id="m1",
            skip_assignment=True,
            members=[JoinGroupResponse.JoinGroupResponseMember(member_id="m1", metadata=request.protocols[0].metadata)],
        )
    )
    assert stage.request("SyncGroup").assignments == []
    stage.synced(orders=[0, 1])
    stage.act(Assign)
    return stage


def who_has_what(
    state: str = "Stable", error: ErrorCode = ErrorCode.NONE, **given: list[int]
) -> DescribeGroupsResponse:
    make = DescribeGroupsResponse.DescribedGroupMember
    members = [
        make(member_id=name, member_assignment=encode_assignment(Assignment({"orders": numbers})))
        for name, numbers in given.items()
    ]
    row = DescribeGroupsResponse.DescribedGroup(error_code=error, group_id="g", group_state=state, members=members)
    return DescribeGroupsResponse(groups=[row])


def test_static_leader_that_returns_skips_the_assignment_and_looks_at_it() -> None:
    stage = returned_leader()
    assert stage.request("DescribeGroups").groups == ["g"]
    stage.answer(who_has_what(m1=[0, 1], m2=[2, 3]))
    stage.quiet()
    stage.pass_time(3_000)
    stage.request("Heartbeat")
    stage.heartbeat()
    stage.quiet()


def test_static_leader_that_returns_rejoins_where_partitions_were_added_meanwhile() -> None:
    stage = returned_leader(partitions=6)
    stage.answer(who_has_what(m1=[0, 1], m2=[2, 3]))
    stage.poll()
    stage.act(Revoke)
    request = stage.request("JoinGroup")
    assert (request.member_id, request.reason) == (
        "m1",
        "assigned to nobody while the leader was away: orders-4, orders-5",
    )


def test_static_leader_that_returns_asks_until_it_is_told() -> None:
    stage = returned_leader(partitions=6)
    stage.answer(who_has_what(error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    stage.quiet()
    stage.pass_time(3_000)
    stage.heartbeat()
    assert stage.request("DescribeGroups")
    stage.no_answer()
    stage.pass_time(1_000)
    stage.coordinator_found()
    stage.pass_time(1)
    stage.heartbeat()
    stage.answer(who_has_what(m1=[0, 1], m2=[2, 3]))
    stage.poll()
    stage.act(Revoke)
    stage.request("JoinGroup")


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (who_has_what("PreparingRebalance"), False),
        (who_has_what("Dead", ErrorCode.GROUP_ID_NOT_FOUND), False),
        (who_has_what(error=ErrorCode.GROUP_AUTHORIZATION_FAILED), True),
        (
            DescribeGroupsResponse(
                groups=[
                    DescribeGroupsResponse.DescribedGroup(
                        group_state="Stable",
                        members=[DescribeGroupsResponse.DescribedGroupMember(member_assignment=b"?")],
                    )
                ]
            ),
            True,
        ),
    ],
)
def test_static_leader_that_returns_says_where_it_cannot_see_the_assignment(answer: Any, told: bool) -> None:
    stage = returned_leader(partitions=6)
    stage.answer(answer)
    stage.quiet()
    assert any("cannot see" in line for _, line in stage.member.story) is told
    stage.pass_time(3_000)
    stage.heartbeat()
    stage.quiet()


@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION]
)
def test_these_errors_of_sync_are_retried_at_once(code: ErrorCode) -> None:
    stage = Stage()
    stage.subscribe("orders")
    stage.coordinator_found()
    stage.joined(leader="other")
    stage.sync_error(code)
    request = stage.request("JoinGroup")
    assert code.name in request.reason
    assert request.member_id == ("" if code is ErrorCode.UNKNOWN_MEMBER_ID else "m1")


def test_other_retriable_errors_wait_for_the_backoff() -> None:
    stage = Stage()
    stage.subscribe("orders")
    stage.coordinator_found()
    stage.join_error(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    stage.quiet()
    stage.pass_time(99)
    stage.quiet()
    stage.pass_time(1)
    assert stage.request("JoinGroup").reason == "rebalance failed due to COORDINATOR_LOAD_IN_PROGRESS"


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_a_coordinator_that_moved_is_looked_for(code: ErrorCode) -> None:
    stage = Stage()
    stage.subscribe("orders")
    stage.coordinator_found()
    stage.join_error(code)
    assert stage.of(DropCoordinator)
    stage.pass_time(200)
    stage.coordinator_found()
    stage.request("JoinGroup")


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.INVALID_SESSION_TIMEOUT,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_GROUP_ID,
    ],
)
def test_the_rest_is_raised_and_tried_again_at_the_next_poll(code: ErrorCode) -> None:
    stage = Stage()
    stage.subscribe("orders")
    stage.coordinator_found()
    stage.join_error(code)
    (failed,) = stage.of(Fail)
    assert failed.error.code is code
    stage.pass_time(10_000, polling=False)
    stage.quiet()
    stage.poll()
    stage.request("JoinGroup")


def test_fatal_error_of_find_coordinator() -> None:
    stage = Stage()
    stage.subscribe("orders")
    stage.request("FindCoordinator")
    refused = FindCoordinatorResponse.Coordinator(key="g", error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    stage.answer(FindCoordinatorResponse(coordinators=[refused]))
    assert stage.of(Fail)[0].error.code is ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_find_coordinator_is_repeated_with_growing_waits() -> None:
    stage = Stage()
    stage.subscribe("orders")
    waits = []
    for _ in range(6):
        began = stage.now_ms
        stage.no_answer()
        while not stage.sent:
            stage.pass_time(10)
        waits.append(stage.now_ms - began)
    assert waits == [100, 200, 400, 800, 1000, 1000]


def test_a_join_without_an_answer_is_repeated_after_finding_the_coordinator() -> None:
    stage = Stage()
    stage.subscribe("orders")
    stage.coordinator_found()
    stage.request("JoinGroup")
    stage.no_answer()
    stage.pass_time(200)
    stage.coordinator_found()
    assert stage.request("JoinGroup").reason == "rebalance failed: the coordinator was lost"


def test_an_answer_that_comes_too_late_is_ignored() -> None:
    stage = Stage()
    stage.subscribe("orders")
    stage.coordinator_found()
    parked = stage.sent.pop()
    stage.do(stage.member.coordinator_disconnected("gone", stage.now_ms))
    stage.do(stage.member.received(parked.token, JoinGroupResponse(generation_id=9, member_id="old"), stage.now_ms))
    assert stage.member.state is MemberState.PREPARING_REBALANCE
    assert stage.member.member_id == ""


# -- eager and cooperative -------------------------------------------------------------------------------------------


def test_eager_revokes_everything_before_it_joins_again() -> None:
    stage = Stage("range")
    stage.stable(0, 1)
    stage.pass_time(3_000)
    stage.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    revoke = stage.take(Revoke)
    assert revoke.partitions == tps("orders-0", "orders-1")
    assert revoke.deadline_ms == stage.now_ms + stage.member.config.rebalance_timeout_ms
    stage.quiet()
    stage.do(stage.member.revoked(stage.now_ms))
    request = stage.request("JoinGroup")
    assert request.reason == "group is already rebalancing"
    assert subscription_of(request).owned_partitions == {}
    stage.joined(2, leader="other")
    stage.synced(orders=[1])
    assert stage.act(Assign).added == tps("orders-1")


def test_heartbeats_go_on_while_the_application_takes_its_time_to_revoke() -> None:
    stage = Stage("range")
    stage.stable(0, 1)
    stage.pass_time(3_000)
    stage.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    stage.take(Revoke)
    for _ in range(5):
        stage.pass_time(3_000)
        assert stage.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS).generation_id == 1
    stage.do(stage.member.revoked(stage.now_ms))
    stage.request("JoinGroup")


def test_cooperative_keeps_what_it_owns_and_tells_the_leader() -> None:
    stage = Stage("cooperative-sticky")
    stage.stable(0, 1)
    stage.pass_time(3_000)
    stage.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    request = stage.request("JoinGroup")
    subscription = subscription_of(request)
    assert dict(subscription.owned_partitions) == {"orders": (0, 1)}
    assert subscription.generation_id == 1
    assert stage.member.pending is None


def test_cooperative_revokes_after_the_sync_and_joins_again() -> None:
    stage = Stage("cooperative-sticky")
    stage.stable(0, 1)
    stage.pass_time(3_000)
    stage.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    stage.joined(2, leader="other")
    stage.synced(orders=[0])
    assert stage.act(Revoke).partitions == tps("orders-1")
    assert stage.act(Assign) == Assign(tps("orders-0"), frozenset(), 2)
    request = stage.request("JoinGroup")
    assert request.reason == "need to revoke partitions and re-join"
    assert dict(subscription_of(request).owned_partitions) == {"orders": (0,)}
    stage.joined(3, leader="other")
    stage.synced(orders=[0, 3])
    assert stage.act(Assign).added == tps("orders-3")
    stage.quiet()


def test_cooperative_revokes_what_is_no_longer_subscribed_before_it_joins() -> None:
    stage = Stage("cooperative-sticky", topics={"orders": 2, "refunds": 1})
    stage.subscribe("orders", "refunds")
    stage.coordinator_found()
    stage.joined(leader="other")
    stage.synced(orders=[0], refunds=[0])
    stage.act(Assign)
    stage.do(stage.member.subscribe(["orders"], stage.now_ms))
    assert stage.act(Revoke).partitions == tps("refunds-0")
    assert stage.request("JoinGroup").reason == "subscription has changed: -refunds"


def test_an_assignment_that_does_not_fit_the_subscription_is_refused() -> None:
    stage = Stage()
    stage.subscribe("orders")
    stage.coordinator_found()
    stage.joined(leader="other")
    stage.synced(refunds=[0])
    assert stage.member.owned == frozenset()
    assert stage.request("JoinGroup").reason == "received assignment does not match the current subscription"


def test_partitions_that_grow_make_the_leader_join_again() -> None:
    stage = Stage("range")
    stage.subscribe("orders")
    stage.coordinator_found()
    stage.joined()
    stage.synced(orders=[0, 1, 2, 3])
    stage.act(Assign)
    stage.metadata()
    stage.quiet()
    stage.topics["orders"] = 6
    stage.metadata()
    stage.act(Revoke)
    assert stage.request("JoinGroup").reason == "cached metadata has changed: orders went from 4 to 6 partitions"


def test_a_follower_leaves_metadata_to_the_leader() -> None:
    stage = Stage("range")
    stage.stable(0)
    stage.topics["orders"] = 6
    stage.metadata()
    assert stage.member.pending is None
    stage.quiet()


def test_pattern_subscription_follows_topics_as_they_appear() -> None:
    stage = Stage("cooperative-sticky", topics={"orders.eu": 1, "other": 1})
    stage.do(stage.member.subscribe_pattern(re.compile(r"orders\..*").fullmatch, stage.now_ms))
    assert stage.of(WatchTopics) == [WatchTopics(None)]
    stage.poll()
    stage.coordinator_found()
    assert list(subscription_of(stage.request("JoinGroup")).topics) == ["orders.eu"]
    stage.joined(leader="other")
    stage.synced(**{"orders.eu": [0]})
    stage.act(Assign)
    stage.topics["orders.us"] = 1
    stage.metadata()
    request = stage.request("JoinGroup")
    assert request.reason == "subscription has changed: +orders.us"
    assert list(subscription_of(request).topics) == ["orders.eu", "orders.us"]


def test_no_common_rebalance_protocol_is_an_error() -> None:
    assert Stage("range,cooperative-sticky").member.protocol.name == "EAGER"
    assert Stage("cooperative-sticky").member.protocol.name == "COOPERATIVE"


# -- dropping out ----------------------------------------------------------------------------------------------------


def test_eviction_loses_partitions_and_joins_as_a_stranger() -> None:
    stage = Stage("cooperative-sticky")
    stage.stable(0, 1)
    stage.pass_time(3_000)
    stage.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    assert stage.member.state is MemberState.UNJOINED
    assert stage.act(Lose).partitions == tps("orders-0", "orders-1")
    request = stage.request("JoinGroup")
    assert request.member_id == ""
    assert request.reason == "encountered UNKNOWN_MEMBER_ID from Heartbeat response"
    assert subscription_of(request).generation_id == -1


def test_eviction_after_an_outage_is_not_blamed_on_the_application() -> None:
    stage = Stage("cooperative-sticky")
    stage.stable(0, 1)
    stage.pass_time(3_000)
    stage.request("Heartbeat")
    stage.no_answer()
    stage.pass_time(20_000)
    stage.coordinator_found()
    stage.pass_time(1)
    stage.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    lost = stage.act(Lose)
    assert "it was without a coordinator for 23 s at most, within session.timeout.ms=" in lost.reason
    assert "the one found since has lost the group" in lost.reason  # the session cannot have ended in that time
    assert "max.poll.interval.ms" not in lost.reason


def test_an_illegal_generation_keeps_the_member_id() -> None:
    stage = Stage()
    stage.stable(0)
    stage.pass_time(3_000)
    stage.heartbeat(ErrorCode.ILLEGAL_GENERATION)
    stage.act(Lose)
    assert stage.request("JoinGroup").member_id == "m1"


def test_eviction_while_the_application_revokes_lets_it_finish_first() -> None:
    stage = Stage("range")
    stage.stable(0, 1)
    stage.pass_time(3_000)
    stage.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    stage.take(Revoke)
    stage.pass_time(3_000)
    stage.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    stage.quiet()
    stage.do(stage.member.revoked(stage.now_ms))
    assert stage.request("JoinGroup").member_id == ""
    assert stage.member.owned == frozenset()


def test_eviction_before_an_assignment_was_taken_cancels_it() -> None:
    stage = Stage("cooperative-sticky")
    stage.subscribe("orders")
    stage.coordinator_found()
    stage.joined(leader="other")
    stage.synced(orders=[0])
    stage.pass_time(3_000)
    stage.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    assert stage.member.take(stage.now_ms) is None
    stage.request("JoinGroup")


def test_eviction_while_an_assignment_is_taken_over_loses_it_afterwards() -> None:
    stage = Stage("cooperative-sticky")
    stage.subscribe("orders")
    stage.coordinator_found()
    stage.joined(leader="other")
    stage.synced(orders=[0])
    stage.take(Assign)
    stage.pass_time(3_000)
    stage.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    stage.do(stage.member.assigned(stage.now_ms))
    assert stage.act(Lose).partitions == tps("orders-0")
    stage.request("JoinGroup")


def test_polling_too_late_leaves_the_group_and_says_why() -> None:
    stage = Stage(max_poll_interval_ms=10_000)
    stage.stable(0)
    for _ in range(3):
        stage.pass_time(3_000, polling=False)
        stage.heartbeat()
    stage.pass_time(1_100, polling=False)
    request = stage.left()
    assert request.members[0].reason == "consumer poll timeout has expired."
    assert stage.member.state is MemberState.UNJOINED
    stage.pass_time(60_000, polling=False)
    stage.quiet()

    stage.do(stage.member.commit(1, {tp("orders-0"): OffsetAndMetadata(5)}, stage.now_ms))
    (done,) = stage.of(CommitDone)
    assert isinstance(done.error, CommitFailedError)
    assert "poll() was last called 10 s ago, over max.poll.interval.ms=10000" in str(done.error)
    assert "max.poll.records" in str(done.error)

    stage.poll()
    assert stage.act(Lose).partitions == tps("orders-0")
    assert stage.request("JoinGroup").reason == "consumer poll timeout has expired"


def test_static_member_that_polls_too_late_keeps_its_place() -> None:
    stage = Stage(max_poll_interval_ms=5_000, group_instance_id="i1")
    stage.stable(0)
    stage.pass_time(3_000, polling=False)
    stage.heartbeat()
    stage.pass_time(2_100, polling=False)
    stage.quiet()
    assert stage.member.state is MemberState.UNJOINED


def test_a_session_without_an_answer_makes_it_look_for_the_coordinator() -> None:
    stage = Stage(session_timeout_ms=10_000)
    stage.stable(0)
    stage.pass_time(9_900)
    stage.request("Heartbeat")
    assert not stage.of(DropCoordinator)
    stage.pass_time(200)
    assert "session timed out" in stage.of(DropCoordinator)[0].reason
    stage.sent.pop(0)
    stage.pass_time(200)
    stage.coordinator_found()
    stage.pass_time(1)
    assert stage.heartbeat().generation_id == 1
    assert stage.member.state is MemberState.STABLE
    assert stage.member.owned == tps("orders-0")


def test_a_heartbeat_that_fails_is_repeated_after_a_backoff() -> None:
    stage = Stage()
    stage.stable(0)
    stage.pass_time(3_000)
    stage.heartbeat(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    stage.pass_time(99)
    stage.quiet()
    stage.pass_time(1)
    stage.heartbeat()


def test_a_fenced_instance_is_out_for_good() -> None:
    stage = Stage(group_instance_id="i1")
    stage.stable(0)
    stage.pass_time(3_000)
    stage.heartbeat(ErrorCode.FENCED_INSTANCE_ID)
    (failed,) = stage.of(Fail)
    assert failed.fatal and isinstance(failed.error, FencedInstanceIdError)
    stage.act(Lose)
    assert stage.of(Left)
    stage.pass_time(60_000)
    stage.quiet()


def test_a_late_heartbeat_error_of_an_old_generation_is_ignored() -> None:
    stage = Stage("cooperative-sticky")
    stage.stable(0)
    stage.pass_time(3_000)
    late = stage.sent.pop()
    stage.do(stage.member.request_rejoin("enforced", stage.now_ms))
    stage.joined(2, leader="other")
    stage.synced(orders=[0])
    from kohort.protocol.messages import HeartbeatResponse

    response = HeartbeatResponse(error_code=ErrorCode.ILLEGAL_GENERATION)
    stage.do(stage.member.received(late.token, response, stage.now_ms))
    assert stage.member.state is MemberState.STABLE


# -- commits ---------------------------------------------------------------------------------------------------------


def test_a_commit_carries_the_generation() -> None:
    stage = Stage(group_instance_id="i1")
    stage.stable(0)
    stage.do(stage.member.commit(7, {tp("orders-0"): OffsetAndMetadata(5, "note", 3)}, stage.now_ms))
    request = stage.committed()
    assert (request.generation_id_or_member_epoch, request.member_id, request.group_instance_id) == (1, "m1", "i1")
    partition = request.topics[0].partitions[0]
    assert (partition.committed_offset, partition.committed_metadata, partition.committed_leader_epoch) == (
        5,
        "note",
        3,
    )
    assert stage.of(CommitDone)[0].error is None


def test_a_commit_waits_for_the_coordinator() -> None:
    stage = Stage()
    stage.do(stage.member.assign_manually(stage.now_ms))
    stage.do(stage.member.commit(1, {tp("orders-0"): OffsetAndMetadata(5)}, stage.now_ms))
    stage.coordinator_found()
    request = stage.committed()
    assert (request.generation_id_or_member_epoch, request.member_id) == (-1, "")


def test_a_commit_during_a_rebalance_says_poll() -> None:
    stage = Stage("cooperative-sticky")
    stage.stable(0)
    stage.do(stage.member.request_rejoin("enforced", stage.now_ms))
    stage.do(stage.member.commit(1, {tp("orders-0"): OffsetAndMetadata(5)}, stage.now_ms))
    (done,) = stage.of(CommitDone)
    assert isinstance(done.error, RebalanceInProgressError)
    assert "poll()" in str(done.error)


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
def test_a_commit_of_a_past_generation_fails_and_loses_the_partitions(code: ErrorCode) -> None:
    stage = Stage()
    stage.stable(0)
    stage.do(stage.member.commit(1, {tp("orders-0"): OffsetAndMetadata(5)}, stage.now_ms))
    stage.committed(code)
    (done,) = stage.of(CommitDone)
    assert isinstance(done.error, CommitFailedError)
    assert "generation 1 of group g" in str(done.error)
    stage.act(Lose)
    stage.request("JoinGroup")


def test_a_commit_refused_for_a_rebalance_joins_again() -> None:
    stage = Stage("cooperative-sticky")
    stage.stable(0)
    stage.do(stage.member.commit(1, {tp("orders-0"): OffsetAndMetadata(5)}, stage.now_ms))
    stage.committed(ErrorCode.REBALANCE_IN_PROGRESS)
    assert isinstance(stage.of(CommitDone)[0].error, RebalanceInProgressError)
    assert stage.request("JoinGroup").reason == "offset commit failed since group is already rebalancing"


def test_a_commit_answered_by_another_broker_can_be_repeated() -> None:
    stage = Stage()
    stage.stable(0)
    stage.do(stage.member.commit(1, {tp("orders-0"): OffsetAndMetadata(5)}, stage.now_ms))
    stage.committed(ErrorCode.NOT_COORDINATOR)
    (done,) = stage.of(CommitDone)
    assert isinstance(done.error, KafkaError) and done.error.code.retriable
    assert stage.of(DropCoordinator)


def test_auto_commit_on_its_interval() -> None:
    stage = Stage("range", enable_auto_commit=True)
    stage.stable(0)
    stage.pass_time(4_999)
    stage.heartbeat()
    assert stage.member.pending is None
    stage.pass_time(1)
    stage.auto_commit(orders_0=10)
    assert stage.committed().topics[0].partitions[0].committed_offset == 10
    stage.pass_time(4_999)
    assert stage.member.pending is None


def test_auto_commit_comes_before_the_revocation() -> None:
    stage = Stage("range", enable_auto_commit=True)
    stage.stable(0)
    stage.pass_time(3_000)
    stage.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    stage.auto_commit(orders_0=10)
    assert stage.member.held_back == tps("orders-0")
    assert stage.member.pending is None
    stage.committed()
    stage.act(Revoke)
    stage.request("JoinGroup")


def test_auto_commit_before_the_revocation_is_retried_but_not_for_ever() -> None:
    stage = Stage("range", enable_auto_commit=True, max_poll_interval_ms=5_000, session_timeout_ms=60_000)
    stage.stable(0)
    stage.pass_time(3_000)
    stage.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    stage.auto_commit(orders_0=10)
    tries = 0
    while stage.member.pending is None:
        stage.poll()
        while stage.sent:
            if type(stage.sent[0].request).__name__ == "HeartbeatRequest":
                stage.heartbeat()
            else:
                stage.committed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
                tries += 1
        if stage.member.pending is None:
            stage.pass_time(100)
    assert 45 <= tries <= 51
    stage.act(Revoke)
    assert [type(send.request).__name__ for send in stage.sent][-1] == "JoinGroupRequest"


def test_cooperative_commits_again_right_before_it_hands_over() -> None:
    stage = Stage("cooperative-sticky", enable_auto_commit=True)
    stage.stable(0, 1)
    stage.pass_time(3_000)
    stage.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    stage.auto_commit(orders_0=10, orders_1=10)
    stage.committed()
    stage.joined(2, leader="other")
    stage.synced(orders=[0])
    stage.auto_commit(orders_0=12, orders_1=15)
    assert stage.member.held_back == tps("orders-1"), "what stays is read on"
    assert stage.committed().generation_id_or_member_epoch == 2
    assert stage.act(Revoke).partitions == tps("orders-1")
    stage.act(Assign)
    stage.auto_commit(orders_0=13)


# -- leaving ---------------------------------------------------------------------------------------------------------


def test_leaving_commits_revokes_and_says_goodbye() -> None:
    stage = Stage("range", enable_auto_commit=True)
    stage.stable(0)
    stage.do(stage.member.leave("the consumer is being closed", stage.now_ms))
    stage.auto_commit(orders_0=10)
    stage.committed()
    assert stage.act(Revoke).reason == "the consumer is being closed"
    assert stage.left().members[0].reason == "the consumer is being closed"
    assert stage.of(Left)
    assert stage.member.state is MemberState.UNJOINED
    stage.pass_time(60_000)
    stage.quiet()


def test_static_members_do_not_say_goodbye_unless_told_to() -> None:
    stage = Stage(group_instance_id="i1")
    stage.stable(0)
    stage.do(stage.member.leave("closing", stage.now_ms))
    stage.act(Revoke)
    assert stage.of(Left)
    stage.quiet()

    stage = Stage(group_instance_id="i1")
    stage.stable(0)
    stage.do(stage.member.leave("closing", stage.now_ms, send=True))
    stage.act(Revoke)
    assert stage.left().members[0].group_instance_id == "i1"


def test_leaving_while_a_join_is_parked_goes_on_another_connection() -> None:
    stage = Stage("cooperative-sticky")
    stage.stable(0)
    stage.do(stage.member.request_rejoin("enforced", stage.now_ms))
    stage.sent.pop()
    stage.do(stage.member.leave("closing", stage.now_ms))
    stage.act(Lose)
    assert stage.sent[0].to is Destination.COORDINATOR_ASIDE
    stage.left()
    assert stage.of(Left)


def test_leaving_without_a_coordinator_ends_at_once() -> None:
    stage = Stage()
    stage.subscribe("orders")
    stage.do(stage.member.leave("closing", stage.now_ms))
    assert stage.of(Left)


def test_leaving_while_the_application_is_busy_waits_for_it() -> None:
    stage = Stage("range")
    stage.stable(0)
    stage.pass_time(3_000)
    stage.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    stage.take(Revoke)
    stage.do(stage.member.leave("closing", stage.now_ms))
    assert not stage.of(Left)
    stage.do(stage.member.revoked(stage.now_ms))
    stage.left()
    assert stage.of(Left)


def test_a_goodbye_without_an_answer_does_not_hold_up_the_end() -> None:
    stage = Stage()
    stage.stable(0)
    stage.do(stage.member.leave("closing", stage.now_ms))
    stage.act(Revoke)
    stage.request("LeaveGroup")
    stage.pass_time(stage.member.config.request_timeout_ms)
    assert stage.of(Left)


def test_a_member_that_left_can_subscribe_again() -> None:
    stage = Stage()
    stage.stable(0)
    stage.do(stage.member.leave("unsubscribed", stage.now_ms))
    stage.act(Revoke)
    stage.left()
    stage.subscribe("orders")
    assert stage.request("JoinGroup").member_id == ""


# -- the table -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("old", MemberState)
@pytest.mark.parametrize("new", MemberState)
def test_only_moves_of_the_table_are_possible(old: MemberState, new: MemberState) -> None:
    stage = Stage()
    stage.member.state = old
    if new is old or new in TRANSITIONS[old]:
        stage.member._transition_to(new)
        assert stage.member.state is new
    else:
        with pytest.raises(IllegalTransition):
            stage.member._transition_to(new)


def test_a_wrong_protocol_name_in_sync_is_raised() -> None:
    stage = Stage()
    stage.subscribe("orders")
    stage.coordinator_found()
    stage.joined(leader="other")
    stage.answer(SyncGroupResponse(protocol_type="consumer", protocol_name="other"))
    assert stage.of(Fail)[0].error.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_an_assignor_that_fails_is_raised_to_the_application() -> None:
    class Broken:
        name, version, supported_protocols = "broken", 0, (0,)

        def subscription_user_data(self, topics: object) -> None:
            return None

        def assign(self, metadata: object, subscriptions: object) -> dict[str, object]:
            raise RuntimeError("no idea")

        def on_assignment(self, assignment: object, metadata: object) -> None: ...

    from kohort.client.member import Member

    stage = Stage()
    stage.member = Member(stage.member.config, [Broken()], lambda: 0.5)  # type: ignore[list-item]
    stage.subscribe("orders")
    stage.coordinator_found()
    stage.joined()
    assert str(stage.of(Fail)[0].error) == "no idea"


def test_auto_commit_offers_wait_for_the_shell() -> None:
    stage = Stage("range", enable_auto_commit=True)
    stage.stable(0)
    stage.pass_time(5_000)
    assert isinstance(stage.member.pending, AutoCommit)


def test_steps_move_as_their_table_says() -> None:
    assert set(STEPS) == set(Step)
    stage = Stage()
    with pytest.raises(IllegalTransition, match="IDLE -> SYNCING"):
        stage.member._go(Step.SYNCING)
    reached = {Step.IDLE}
    while more := {to for step in reached for to in STEPS[step]} - reached:
        reached |= more
    assert reached == set(Step)
