"""Answers of a coordinator that contradict what was asked: errors that say so, and nothing taken over."""

from __future__ import annotations

from typing import Any

import pytest

from client.scripted import Stage, tps
from kohort.assignors import Assignment, RangeAssignor, encode_assignment
from kohort.client.effects import Assign, Fail, RefreshMetadata, UseCoordinator
from kohort.client.member import Member, MemberConfig, MemberState
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import FindCoordinatorResponse, JoinGroupResponse, SyncGroupResponse

COORDINATOR = FindCoordinatorResponse.Coordinator


def subscribed() -> Stage:
    stage = Stage()
    stage.subscribe("orders")
    return stage


def joining() -> Stage:
    stage = subscribed()
    stage.coordinator_found()
    stage.request("JoinGroup")
    return stage


def refused(stage: Stage) -> ErrorCode:
    (fail,) = stage.of(Fail)
    return fail.error.code


def join_answer(protocol_type: str = "consumer", protocol_name: str = "range", **fields: Any) -> JoinGroupResponse:
    return JoinGroupResponse(
        generation_id=1, protocol_type=protocol_type, protocol_name=protocol_name, member_id="m1", **fields
    )


def test_a_join_answer_of_another_protocol_type() -> None:
    stage = joining()
    stage.answer(join_answer(protocol_type="connect", leader="x"))
    assert refused(stage) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    stage.quiet()
    assert stage.member.state is MemberState.PREPARING_REBALANCE and not stage.member.generation.valid


@pytest.mark.parametrize(("protocol_type", "protocol_name"), [("connect", "range"), ("consumer", "sticky")])
def test_a_sync_answer_of_another_protocol(protocol_type: str, protocol_name: str) -> None:
    stage = joining()
    stage.joined(leader="other")
    assignment = encode_assignment(Assignment({"orders": [0]}))
    stage.answer(SyncGroupResponse(protocol_type=protocol_type, protocol_name=protocol_name, assignment=assignment))
    assert refused(stage) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert stage.member.pending is None and stage.member.owned == frozenset()
    assert stage.member.state is not MemberState.STABLE


def test_a_sync_answer_of_an_old_version_names_no_protocol() -> None:
    stage = joining()
    stage.joined(leader="other")
    assignment = encode_assignment(Assignment({"orders": [0]}))
    stage.answer(SyncGroupResponse(protocol_type=None, protocol_name=None, assignment=assignment))
    assert stage.act(Assign).partitions == tps("orders-0")


@pytest.mark.parametrize("count", [0, 2])
def test_other_than_one_coordinator_in_an_answer(count: int) -> None:
    stage = subscribed()
    found = [COORDINATOR(key="g", node_id=n, host="b", port=1) for n in range(count)]
    stage.answer(FindCoordinatorResponse(coordinators=found))
    (fail,) = stage.of(Fail)
    assert f"{count} coordinators" in str(fail.error) and "group g" in str(fail.error)
    assert stage.of(UseCoordinator) == []
    stage.quiet()
    stage.now_ms += 2_000
    stage.poll()
    stage.request("FindCoordinator")


@pytest.mark.parametrize("leader", ["m1", "other"])
def test_an_assignor_that_this_member_does_not_have(leader: str) -> None:
    stage = joining()
    member = JoinGroupResponse.JoinGroupResponseMember
    metadata = stage.sent[0].request.protocols[0].metadata
    members = [member(member_id="m1", metadata=metadata)] if leader == "m1" else []
    stage.answer(join_answer(protocol_name="sticky", leader=leader, members=members))
    (fail,) = stage.of(Fail)
    assert fail.error.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert "'sticky'" in str(fail.error) and "range" in str(fail.error)
    stage.quiet()
    assert stage.member.pending is None and stage.member.owned == frozenset()


class Failing(RangeAssignor):
    def on_assignment(self, assignment: Any, metadata: Any) -> None:
        raise RuntimeError("no room for my cache")


def test_what_on_assignment_raises_is_raised() -> None:
    stage = Stage()
    stage.member = Member(MemberConfig("g", enable_auto_commit=False), [Failing()], lambda: 0.5)
    stage.subscribe("orders")
    stage.coordinator_found()
    stage.joined(leader="other")
    stage.synced(orders=[0])
    (fail,) = stage.of(Fail)
    assert repr(fail.error) == "RuntimeError('no room for my cache')"
    assert stage.act(Assign).partitions == tps("orders-0"), "the partitions are taken over nevertheless"


@pytest.mark.parametrize("how", ["an error that passes", "no answer"])
def test_metadata_is_refreshed_where_the_coordinator_is_not_found(how: str) -> None:
    stage = subscribed()
    stage.of(RefreshMetadata)
    if how == "no answer":
        stage.no_answer()
    else:
        missing = COORDINATOR(key="g", error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, node_id=-1, host="", port=-1)
        stage.answer(FindCoordinatorResponse(coordinators=[missing]))
    assert len(stage.of(RefreshMetadata)) == 1
    stage.quiet()
    stage.pass_time(2_000)
    stage.request("FindCoordinator")
