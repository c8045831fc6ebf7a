"""The tables: legal moves and no other, and the answer for every pair of state and request."""

import itertools
from typing import Any

import pytest

from coordinator.world import World
from kohort.coordinator.classic import states
from kohort.coordinator.classic.group import ClassicGroup
from kohort.coordinator.classic.states import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    TRANSITIONS,
    GroupState,
    IllegalTransition,
)
from kohort.protocol import messages
from kohort.protocol.errors import ErrorCode as E

# Kafka's own wording: the valid previous states of each state.
PREVIOUS = {
    EMPTY: {PREPARING_REBALANCE},
    PREPARING_REBALANCE: {STABLE, COMPLETING_REBALANCE, EMPTY},
    COMPLETING_REBALANCE: {PREPARING_REBALANCE},
    STABLE: {COMPLETING_REBALANCE},
    DEAD: {STABLE, PREPARING_REBALANCE, COMPLETING_REBALANCE, EMPTY, DEAD},
}


@pytest.mark.parametrize(("start", "end"), list(itertools.product(GroupState, GroupState)))
def test_a_transition_is_legal_or_raises(start: GroupState, end: GroupState) -> None:
    group = ClassicGroup("g", 0)
    group.state = start
    if start in PREVIOUS[end]:
        group.transition_to(end, 5)
        assert (group.state, group.previous_state, group.state_timestamp_ms) == (end, start, 5)
    else:
        with pytest.raises(IllegalTransition):
            group.transition_to(end, 5)
        assert group.state is start


def test_every_table_answers_in_every_state() -> None:
    tables = [states.JOIN, states.JOIN_NEW, states.SYNC, states.HEARTBEAT, states.LEAVE]
    tables += [states.COMMIT, states.COMMIT_SIMPLE, states.OFFSET_DELETE, states.DELETE_GROUP, TRANSITIONS]
    assert all(set(table) == set(GroupState) for table in tables)


# ---- every request in every state, through the whole coordinator


def join(member_id: str = "", topics: bytes = b"") -> Any:
    protocol = messages.JoinGroupRequest.JoinGroupRequestProtocol(
        name="range", metadata=b"\x00\x00\x00\x00\x00\x01\x00\x06orders\x00\x00\x00\x00" + topics
    )
    return messages.JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=30_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[protocol],
    )


def sync(member_id: str, generation: int) -> Any:
    return messages.SyncGroupRequest(group_id="g", generation_id=generation, member_id=member_id)


def commit(member_id: str, generation: int) -> Any:
    request = messages.OffsetCommitRequest
    partition = request.OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    return request(
        group_id="g",
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[request.OffsetCommitRequestTopic(name="orders", partitions=[partition])],
    )


def in_state(state: GroupState) -> tuple[World, str, int]:
    """A world whose group `g` is in `state`, the member to speak for, and its generation."""
    world = World(group_initial_rebalance_delay_ms=0)
    world.send(join(), 3, "join")
    world.advance(0)
    member_id = world.replies["join"].member_id
    if state is COMPLETING_REBALANCE:
        return world, member_id, 1
    world.send(sync(member_id, 1), 3)
    if state is PREPARING_REBALANCE:
        world.send(join(), 3, "other")
    elif state is not STABLE:
        world.send(messages.LeaveGroupRequest(group_id="g", member_id=member_id), 2)
    if state is DEAD:
        world.send(messages.DeleteGroupsRequest(groups_names=["g"]), 2)
    return world, member_id, 1


def error_of(response: Any) -> E:
    if response is None:
        return None  # parked
    if isinstance(response, messages.OffsetCommitResponse):
        return E(response.topics[0].partitions[0].error_code)
    if isinstance(response, messages.DeleteGroupsResponse):
        return E(response.results[0].error_code)
    return E(response.error_code)


PARKED = None
ANSWERS = {
    "join of a member": {EMPTY: E.UNKNOWN_MEMBER_ID, COMPLETING_REBALANCE: E.NONE, DEAD: E.UNKNOWN_MEMBER_ID},
    "join of a changed member": {EMPTY: E.UNKNOWN_MEMBER_ID, DEAD: E.UNKNOWN_MEMBER_ID},
    "join of a new member": {},
    "join for a member id": dict.fromkeys(GroupState, E.MEMBER_ID_REQUIRED),
    "sync": {
        EMPTY: E.UNKNOWN_MEMBER_ID,
        PREPARING_REBALANCE: E.REBALANCE_IN_PROGRESS,
        COMPLETING_REBALANCE: E.NONE,
        STABLE: E.NONE,
        DEAD: E.UNKNOWN_MEMBER_ID,
    },
    "heartbeat": {
        EMPTY: E.UNKNOWN_MEMBER_ID,
        PREPARING_REBALANCE: E.REBALANCE_IN_PROGRESS,
        COMPLETING_REBALANCE: E.NONE,
        STABLE: E.NONE,
        DEAD: E.UNKNOWN_MEMBER_ID,
    },
    "leave": dict.fromkeys(GroupState, E.NONE) | {EMPTY: E.UNKNOWN_MEMBER_ID, DEAD: E.UNKNOWN_MEMBER_ID},
    "commit": {
        EMPTY: E.UNKNOWN_MEMBER_ID,
        PREPARING_REBALANCE: E.NONE,
        COMPLETING_REBALANCE: E.REBALANCE_IN_PROGRESS,
        STABLE: E.NONE,
        DEAD: E.GROUP_ID_NOT_FOUND,
    },
    "simple commit": dict.fromkeys(GroupState, E.UNKNOWN_MEMBER_ID) | {EMPTY: E.NONE, DEAD: E.NONE},
    "delete offsets": dict.fromkeys(GroupState, E.NONE) | {DEAD: E.GROUP_ID_NOT_FOUND},
    "delete group": dict.fromkeys(GroupState, E.NON_EMPTY_GROUP) | {EMPTY: E.NONE, DEAD: E.GROUP_ID_NOT_FOUND},
}


def requests(member_id: str, generation: int) -> dict[str, tuple[Any, int]]:
    return {
        "join of a member": (join(member_id), 3),
        "join of a changed member": (join(member_id, b"changed"), 3),
        "join of a new member": (join(), 3),
        "join for a member id": (join(), 9),
        "sync": (sync(member_id, generation), 3),
        "heartbeat": (messages.HeartbeatRequest(group_id="g", generation_id=generation, member_id=member_id), 4),
        "leave": (messages.LeaveGroupRequest(group_id="g", member_id=member_id), 2),
        "commit": (commit(member_id, generation), 9),
        "simple commit": (commit("", -1), 9),
        "delete offsets": (messages.OffsetDeleteRequest(group_id="g"), 0),
        "delete group": (messages.DeleteGroupsRequest(groups_names=["g"]), 2),
    }


@pytest.mark.parametrize(("state", "request_name"), list(itertools.product(GroupState, ANSWERS)))
def test_the_answer_per_state_and_request(state: GroupState, request_name: str) -> None:
    world, member_id, generation = in_state(state)
    group = world.coordinator.group("g")
    assert (group.state if group is not None else DEAD) is state
    message, version = requests(member_id, generation)[request_name]
    expected = ANSWERS[request_name].get(state, PARKED)
    response = world.send(message, version)
    if expected is PARKED and state in (PREPARING_REBALANCE, STABLE, COMPLETING_REBALANCE) and response is not None:
        expected = E.NONE  # the join was the last one that the phase waited for
    assert error_of(response) == expected


@pytest.mark.parametrize("state", [PREPARING_REBALANCE, COMPLETING_REBALANCE, STABLE])
@pytest.mark.parametrize("request_name", ["sync", "heartbeat", "commit"])
def test_the_wrong_generation_and_member_are_told_so_in_every_state(state: GroupState, request_name: str) -> None:
    world, member_id, generation = in_state(state)
    message, version = requests(member_id, generation + 1)[request_name]
    assert error_of(world.send(message, version)) == E.ILLEGAL_GENERATION
    message, version = requests("stranger", generation)[request_name]
    assert error_of(world.send(message, version)) == E.UNKNOWN_MEMBER_ID
