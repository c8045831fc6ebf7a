"""What a member's requests carry, when they are sent and how often: against a scripted coordinator."""

from __future__ import annotations

import re

import pytest

from client.scripted import Stage, subscription_of, tps
from kohort.assignors import Subscription
from kohort.client.effects import Assign, AutoCommit, Fail, Revoke, WatchTopics
from kohort.client.member import MemberState
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import FindCoordinatorResponse, JoinGroupResponse


def kinds(stage: Stage) -> list[str]:
    return [type(send.request).__name__.removesuffix("Request") for send in stage.sent]


# -- finding the coordinator -----------------------------------------------------------------------------------------


def test_the_lookup_names_the_group_as_a_group() -> None:
    stage = Stage()
    stage.subscribe("orders")
    request = stage.request("FindCoordinator")
    assert (request.key_type, request.coordinator_keys) == (0, ["g"])


def test_one_lookup_is_under_way_at_a_time() -> None:
    stage = Stage()
    stage.subscribe("orders")
    for fetch_id in range(1, 4):
        stage.pass_time(1_000)
        stage.poll()
        stage.do(stage.member.fetch_offsets(fetch_id, tps("orders-0"), stage.now_ms))
    assert kinds(stage) == ["FindCoordinator"]


def test_nothing_is_looked_up_while_the_coordinator_is_known() -> None:
    stage = Stage("cooperative-sticky")
    stage.stable(0)
    stage.pass_time(3_000)
    stage.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    stage.joined(2, leader="other")
    stage.synced(orders=[0])
    stage.act(Assign)
    stage.pass_time(3_000)
    stage.heartbeat()
    stage.quiet()


def test_a_refused_lookup_is_raised_once_and_repeated_when_the_application_polls_again() -> None:
    stage = Stage()
    stage.subscribe("orders")
    refused = FindCoordinatorResponse.Coordinator(key="g", error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    stage.answer(FindCoordinatorResponse(coordinators=[refused]))
    stage.pass_time(60_000, polling=False)
    stage.quiet()
    assert [failed.error.code for failed in stage.of(Fail)] == [ErrorCode.GROUP_AUTHORIZATION_FAILED]
    stage.poll()
    stage.coordinator_found()
    stage.request("JoinGroup")
    assert not stage.of(Fail)


# -- JoinGroup, SyncGroup, Heartbeat ---------------------------------------------------------------------------------


def test_what_a_join_carries() -> None:
    stage = Stage("roundrobin,range", session_timeout_ms=20_000, max_poll_interval_ms=90_000, group_instance_id="i1")
    stage.subscribe("orders")
    stage.coordinator_found()
    request = stage.request("JoinGroup")
    assert (request.group_id, request.member_id, request.group_instance_id) == ("g", "", "i1")
    assert (request.session_timeout_ms, request.rebalance_timeout_ms) == (20_000, 90_000)
    assert request.protocol_type == "consumer"
    assert [protocol.name for protocol in request.protocols] == ["roundrobin", "range"], "in the order of preference"
    assert [list(subscription_of(request, n).topics) for n in (0, 1)] == [["orders"], ["orders"]]
    assert request.reason == "first join"


@pytest.mark.parametrize("leader", ["m1", "other"])
def test_what_a_sync_carries(leader: str) -> None:
    stage = Stage(group_instance_id="i1")
    stage.subscribe("orders")
    stage.coordinator_found()
    stage.joined(7, leader=leader, m2=Subscription(["orders"]))
    request = stage.request("SyncGroup")
    assert (request.group_id, request.generation_id) == ("g", 7)
    assert (request.member_id, request.group_instance_id) == ("m1", "i1")
    assert (request.protocol_type, request.protocol_name) == ("consumer", "range")
    assert [one.member_id for one in request.assignments] == (["m1", "m2"] if leader == "m1" else [])


def test_heartbeats_begin_with_the_answer_to_the_join_and_carry_its_generation() -> None:
    stage = Stage(group_instance_id="i1")
    stage.subscribe("orders")
    stage.coordinator_found()
    stage.pass_time(10_000)
    assert kinds(stage) == ["JoinGroup"], "none while the join is parked"
    stage.joined(7, leader="other")
    assert stage.member.state is MemberState.COMPLETING_REBALANCE
    stage.pass_time(2_999)
    assert kinds(stage) == ["SyncGroup"]
    stage.pass_time(1)
    assert kinds(stage) == ["SyncGroup", "Heartbeat"]
    request = stage.sent[1].request
    assert (request.group_id, request.generation_id) == ("g", 7)
    assert (request.member_id, request.group_instance_id) == ("m1", "i1")


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_whatever_goes_wrong_in_a_sync_the_member_joins_again(code: ErrorCode) -> None:
    stage = Stage()
    stage.subscribe("orders")
    stage.coordinator_found()
    stage.joined(leader="other")
    stage.sync_error(code)
    raised = [failed.error.code for failed in stage.of(Fail)]
    assert raised == ([] if code.retriable else [code])
    while not stage.sent:
        stage.pass_time(100)
    if code is ErrorCode.COORDINATOR_NOT_AVAILABLE:
        stage.coordinator_found()
    stage.request("JoinGroup")


# -- once a rebalance ------------------------------------------------------------------------------------------------


def test_a_rebalance_is_prepared_once_however_often_its_join_is_repeated() -> None:
    stage = Stage("range", enable_auto_commit=True)
    stage.stable(0)
    stage.pass_time(3_000)
    stage.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    stage.auto_commit(orders_0=10)
    stage.committed()
    stage.act(Revoke)
    for code in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID):
        stage.join_error(code)
        stage.pass_time(200)
        assert stage.member.pending is None
        assert kinds(stage) == ["JoinGroup"]
    stage.joined(2, leader="other")
    stage.sync_error(ErrorCode.REBALANCE_IN_PROGRESS)
    assert stage.member.pending is None
    stage.request("JoinGroup")


def test_the_lead_ends_with_its_generation() -> None:
    stage = Stage("range", topics={"orders": 2, "refunds": 2})
    stage.subscribe("orders")
    stage.coordinator_found()
    stage.joined(m2=Subscription(["refunds"]))
    stage.synced(orders=[0, 1])
    stage.act(Assign)
    assert stage.of(WatchTopics)[-1] == WatchTopics(frozenset({"orders", "refunds"}))
    stage.pass_time(3_000)
    stage.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    stage.act(Revoke)
    assert not stage.member.is_leader
    assert stage.of(WatchTopics) == [WatchTopics(frozenset({"orders"}))]


def test_a_pattern_takes_a_topic_that_only_the_leader_has_seen() -> None:
    stage = Stage("cooperative-sticky", topics={"orders.eu": 1})
    stage.do(stage.member.subscribe_pattern(re.compile(r"orders\..*").fullmatch, stage.now_ms))
    stage.poll()
    stage.coordinator_found()
    stage.joined(leader="other")
    stage.synced(**{"orders.eu": [0], "orders.us": [0]})
    assert stage.act(Assign).partitions == tps("orders.eu-0", "orders.us-0")
    stage.quiet()
    stage.topics["orders.us"] = 1
    stage.metadata()
    stage.quiet()
    assert stage.member.topics == {"orders.eu", "orders.us"}


def test_taking_over_an_assignment_starts_the_automatic_commits_anew() -> None:
    stage = Stage("cooperative-sticky", enable_auto_commit=True, heartbeat_interval_ms=4_000)
    stage.stable(0)
    stage.pass_time(4_000)
    stage.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    stage.auto_commit(orders_0=10)
    stage.committed()
    stage.pass_time(3_000)
    stage.joined(2, leader="other")
    stage.synced(orders=[0])
    stage.act(Assign)
    stage.pass_time(4_000)
    stage.heartbeat()
    stage.pass_time(999)
    assert stage.member.pending is None
    stage.pass_time(1)
    assert isinstance(stage.member.pending, AutoCommit)


def test_the_answer_to_a_join_that_was_given_up_is_void() -> None:
    stage = Stage()
    stage.subscribe("orders")
    stage.coordinator_found()
    given_up = stage.sent.pop()
    stage.do(stage.member.coordinator_disconnected("gone", stage.now_ms))
    stage.pass_time(200)
    stage.coordinator_found()
    late = JoinGroupResponse(
        generation_id=9, protocol_type="consumer", protocol_name="range", leader="other", member_id="old"
    )
    stage.do(stage.member.received(given_up.token, late, stage.now_ms))
    assert kinds(stage) == ["JoinGroup"], "the later join is the one that counts"
    stage.joined(10, leader="other")
    assert stage.request("SyncGroup").generation_id == 10


def test_the_answer_to_a_join_is_void_when_the_member_has_left_meanwhile() -> None:
    stage = Stage()
    stage.subscribe("orders")
    stage.coordinator_found()
    parked = stage.sent.pop()
    stage.do(stage.member.leave("closing", stage.now_ms))
    late = JoinGroupResponse(
        generation_id=9, protocol_type="consumer", protocol_name="range", leader="other", member_id="old"
    )
    stage.do(stage.member.received(parked.token, late, stage.now_ms))
    assert stage.member.state is MemberState.UNJOINED
    assert "SyncGroup" not in kinds(stage)
