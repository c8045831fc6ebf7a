"""What the answer to a JoinGroup says of the protocol and the members, by version."""

from typing import Any

import pytest

from coordinator.world import World
from kohort.protocol import messages
from kohort.protocol.errors import ErrorCode


def join(name: str, member_id: str = "") -> Any:
    request = messages.JoinGroupRequest
    return request(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=30_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[request.JoinGroupRequestProtocol(name="range", metadata=name.encode())],
    )


def joined(world: World, version: int, *names: str) -> list[Any]:
    """The members that these names end up as, all of one generation."""
    for name in names:
        answer = world.send(join(name), version, name)
        if answer is not None and answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            world.send(join(name, answer.member_id), version, name)
    world.advance(0)
    return [world.replies[name] for name in names]


@pytest.mark.parametrize("version", range(10))
def test_a_refusal_names_no_protocol_which_is_an_empty_name_before_v7(version: int) -> None:
    answer = World().send(join("a", member_id="stranger"), version)
    assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert answer.protocol_name == (None if version >= 7 else "")
    assert (answer.generation_id, answer.leader, answer.member_id, answer.members) == (-1, "", "stranger", [])


@pytest.mark.parametrize("version", range(10))
def test_the_leader_alone_is_told_the_members_with_their_metadata(version: int) -> None:
    leader, follower = joined(World(group_initial_rebalance_delay_ms=0), version, "a", "b")
    assert (leader.protocol_type, leader.protocol_name, leader.generation_id) == ("consumer", "range", 1)
    assert leader.leader == leader.member_id == follower.leader
    assert [(m.member_id, m.metadata) for m in leader.members] == [(leader.member_id, b"a"), (follower.member_id, b"b")]
    assert follower.members == []


def test_a_member_id_is_the_client_id_and_a_suffix_of_its_own() -> None:
    world = World(group_initial_rebalance_delay_ms=0)
    ids = [world.send(join("a"), 9, client_id="billing").member_id for _ in range(2)]
    assert all(one.startswith("billing-") for one in ids)
    assert len(set(ids)) == 2
