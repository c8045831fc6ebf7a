"""Groups that move between the protocols: who may, parked requests, classic members in a KIP-848 group, and back."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.modern.groups import GROUP, Members
from kohort.assignors import Assignment, Subscription, decode_assignment, encode_assignment, encode_subscription
from kohort.coordinator import events
from kohort.coordinator.classic.group import ClassicGroup
from kohort.coordinator.context import MigrationPolicy
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)

E = ErrorCode


class Mixed(Members):
    """Members of both protocols."""

    def __init__(self, **config: Any) -> None:
        super().__init__(group_initial_rebalance_delay_ms=0, **config)
        self.generations: dict[str, int] = {}

    @property
    def classic(self) -> ClassicGroup:
        group = self.world.coordinator.group(GROUP)
        assert isinstance(group, ClassicGroup)
        return group

    def old_join(
        self, member_id: str, owned: Any = None, protocol_type: str = "consumer", version: int = 9, **fields: Any
    ) -> Any:
        """None: it waits for the others."""
        said = Subscription(["orders"], owned_partitions={"orders": sorted(owned)} if owned else {})
        metadata = fields.pop("metadata", encode_subscription(said))
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=metadata)
        message = JoinGroupRequest(
            group_id=GROUP,
            member_id=member_id,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=30_000,
            protocol_type=protocol_type,
            protocols=[protocol],
            **fields,
        )
        response = self.world.send(message, version, token=f"join-{member_id}", client_id="old")
        if response is not None and not response.error_code:
            self.generations[response.member_id] = response.generation_id
        return response

    def old_sync(self, member_id: str, given: dict[str, set[int]] | None = None) -> Any:
        make = SyncGroupRequest.SyncGroupRequestAssignment
        rows = [
            make(member_id=name, assignment=encode_assignment(Assignment({"orders": sorted(numbers)})))
            for name, numbers in (given or {}).items()
        ]
        message = SyncGroupRequest(
            group_id=GROUP,
            member_id=member_id,
            generation_id=self.generations[member_id],
            protocol_type="consumer",
            protocol_name="range",
            assignments=rows,
        )
        response = self.world.send(message, 5, token=f"sync-{member_id}", client_id="old")
        if response is not None and not response.error_code:
            partitions = decode_assignment(response.assignment).partitions
            self.owned[member_id] = {topic: set(numbers) for topic, numbers in partitions.items()}
        return response

    def old_beat(self, member_id: str) -> ErrorCode:
        message = HeartbeatRequest(group_id=GROUP, member_id=member_id, generation_id=self.generations[member_id])
        return ErrorCode(self.world.send(message, 4, client_id="old").error_code)

    def old_leave(self, member_id: str) -> ErrorCode:
        identity = LeaveGroupRequest.MemberIdentity(member_id=member_id)
        response = self.world.send(LeaveGroupRequest(group_id=GROUP, members=[identity]), 5, client_id="old")
        return ErrorCode(response.members[0].error_code)

    def old_member(self) -> str:
        """A stable classic group of one, which has everything."""
        member_id: str = self.old_join("").member_id
        self.old_join(member_id)
        self.world.advance(0)
        self.generations[member_id] = self.world.replies[f"join-{member_id}"].generation_id
        self.old_sync(member_id, {member_id: {0, 1, 2, 3}})
        return member_id

    def settle_all(self, old: str, new: str) -> None:
        for _ in range(3):
            self.rejoin(old)
            self.settle(new)
        assert self.group.state_name == "Stable"

    def rejoin(self, member_id: str) -> None:
        self.old_join(member_id, self.owned.get(member_id, {}).get("orders"))
        assert not self.old_sync(member_id).error_code


def test_the_first_heartbeat_converts_a_classic_group() -> None:
    group = Mixed()
    old = group.old_member()
    generation = group.classic.generation
    joined = group.join("new")
    assert (joined.error_code, joined.member_epoch) == (E.NONE, generation + 1)
    assert group.group.members[old].is_classic
    assert group.owned["new"] == {}, "the classic member has everything still"
    assert group.describe().members[0].member_type == 0
    converted = [event for event in group.world.events if isinstance(event, events.GroupConverted)]
    assert [(event.from_type, event.to_type, event.members) for event in converted] == [("classic", "consumer", 1)]
    group.world.restart()
    assert set(group.group.members) == {old, "new"}


def test_a_classic_member_hands_over_to_a_new_one() -> None:
    group = Mixed()
    old = group.old_member()
    group.join("new")
    assert group.old_beat(old) == E.REBALANCE_IN_PROGRESS
    group.rejoin(old)
    assert group.owned[old] == {"orders": {0, 1}}, "an eager sync: what it is to give up is not in it"
    assert group.old_beat(old) == E.REBALANCE_IN_PROGRESS, "it has to say that it gave them up"
    group.rejoin(old)
    assert group.old_beat(old) == E.NONE
    group.beat("new")
    assert group.owned["new"] == {"orders": {2, 3}}
    assert group.group.state_name == "Stable"


def test_what_a_cooperative_member_has_yet_to_give_up_is_nobody_elses() -> None:
    """Converted between its SyncGroup, which has less than it had, and its rejoining."""
    group = Mixed()
    old = group.old_member()
    group.old_join(old, owned={0, 1, 2, 3})
    assert not group.old_sync(old, {old: {0, 1}}).error_code
    group.join("new")
    assert group.owned["new"] == {}
    group.world.restart()
    group.beat("new")
    assert group.owned["new"] == {}, "after a restart too"
    assert group.old_beat(old) == E.REBALANCE_IN_PROGRESS
    group.rejoin(old)
    group.beat("new")
    assert group.owned["new"] == {"orders": {2, 3}} and group.owned[old] == {"orders": {0, 1}}


def test_a_generation_that_left_something_out_is_followed_by_an_epoch() -> None:
    """Also where the member that converts the group is a static one that comes back, for which nothing changes."""
    group = Mixed()
    group.old_join("", group_instance_id="one")
    group.world.advance(0)
    old = group.world.replies["join-"].member_id
    group.generations[old] = group.world.replies["join-"].generation_id
    group.old_sync(old, {old: {0, 1, 2, 3}})
    group.old_join(old, owned={0, 1, 2, 3}, group_instance_id="one")
    assert not group.old_sync(old, {old: {0, 1}}).error_code
    group.join("new", instance_id="one")
    group.beat("new")
    assert group.owned["new"] == {"orders": {0, 1, 2, 3}}


def test_a_classic_member_joins_a_group_of_the_consumer_protocol() -> None:
    group = Mixed()
    group.join("new")
    asked = group.old_join("")
    assert asked.error_code == E.MEMBER_ID_REQUIRED
    old = asked.member_id
    group.rejoin(old)
    assert group.owned[old] == {}
    group.beat("new")
    group.acknowledge("new")
    assert group.old_beat(old) == E.REBALANCE_IN_PROGRESS, "what it waits for is free"
    group.rejoin(old)
    assert group.owned[old] == {"orders": {2, 3}}
    assert group.old_beat(old) == E.NONE
    assert group.commit(old, group.generations[old], partition=2) == E.NONE
    assert group.commit(old, 99) == E.ILLEGAL_GENERATION


def test_the_last_new_member_leaves_and_the_group_is_classic_again() -> None:
    """testLastConsumerProtocolMemberLeavingConsumerGroup"""
    group = Mixed()
    old = group.old_member()
    group.join("new")
    group.commit("new", group.epochs["new"])
    group.leave("new")
    classic = group.classic
    assert (classic.state.value, list(classic.members)) == ("PreparingRebalance", [old])
    assert classic.offsets["orders"][0].committed_offset == 5, "the commits stay"
    group.world.restart()
    assert group.classic.state.value == "Stable"
    group.generations[old] = group.classic.generation
    assert group.old_beat(old) == E.NONE
    latest = {key: value for key, value in group.world.log[0] if key[1] in (3, 4, 5, 6, 7, 8)}
    assert not any(latest.values())


def test_a_session_that_ends_can_be_the_way_back() -> None:
    group = Mixed()
    old = group.old_member()
    group.join("new")
    group.rejoin(old)
    for _ in range(9):
        group.world.advance(5_000)
        group.rejoin(old)
    assert isinstance(group.world.coordinator.group(GROUP), ClassicGroup)


def test_the_last_consumer_that_comes_back_as_a_classic_member_leads_the_group() -> None:
    """Nothing is dealt anew, and somebody looks after the group's topics."""
    group = Mixed()
    old = group.old_member()
    group.join("new", instance_id="i")
    group.settle_all(old, "new")
    back = group.old_join("", group_instance_id="i")
    assert (back.error_code, back.leader, back.skip_assignment) == (E.NONE, back.member_id, True)
    assert {row.member_id for row in back.members} == {old, back.member_id}
    assert (group.classic.state.value, group.classic.leader_id) == ("Stable", back.member_id)
    assert group.old_beat(old) == E.NONE, "nobody has to rejoin"
    had = group.owned["new"]
    assert not group.old_sync(back.member_id).error_code
    assert group.owned[back.member_id] == had
    group.world.restart()
    assert group.classic.leader_id == back.member_id


@pytest.mark.parametrize("version", [8, 9])
def test_a_group_that_is_on_its_way_rebalances_when_its_last_consumer_comes_back_as_a_classic_member(
    version: int,
) -> None:
    """And where the member's JoinGroup cannot say that a leader keeps the assignment."""
    group = Mixed()
    old = group.old_member()
    group.join("new", instance_id="i")
    if version == 8:
        group.settle_all(old, "new")
    back = group.old_join("", group_instance_id="i", version=version)
    assert (back.error_code, back.leader) == (E.NONE, "")
    assert group.classic.state.value == "PreparingRebalance"
    assert group.old_sync(back.member_id).error_code == E.REBALANCE_IN_PROGRESS


def test_without_a_policy_for_it_the_group_stays() -> None:
    group = Mixed(consumer_migration_policy=MigrationPolicy.UPGRADE)
    old = group.old_member()
    group.join("new")
    group.leave("new")
    assert list(group.group.members) == [old]
    assert group.group.state_name == "Assigning"


@pytest.mark.parametrize("policy", [MigrationPolicy.DISABLED, MigrationPolicy.DOWNGRADE])
def test_policies_that_keep_a_classic_group(policy: MigrationPolicy) -> None:
    group = Mixed(consumer_migration_policy=policy)
    group.old_member()
    refused = group.join("new")
    assert (refused.error_code, "migration.policy" in refused.error_message) == (E.GROUP_ID_NOT_FOUND, True)
    assert group.classic.state.value == "Stable"


def test_a_classic_member_is_refused_where_nothing_moves() -> None:
    group = Mixed(consumer_migration_policy=MigrationPolicy.DISABLED)
    group.join("new")
    assert group.old_join("").error_code == E.INCONSISTENT_GROUP_PROTOCOL
    group.leave("new")
    assert group.old_join("").error_code == E.MEMBER_ID_REQUIRED, "an empty group is anybody's"


def test_groups_that_cannot_be_converted() -> None:
    connect = Mixed()
    connect.old_join(connect.old_join("", protocol_type="connect").member_id, protocol_type="connect")
    assert connect.join("new").error_code == E.GROUP_ID_NOT_FOUND
    malformed = Mixed()
    malformed.old_join(malformed.old_join("", metadata=b"\x00").member_id, metadata=b"\x00")
    assert "cannot be read" in malformed.join("new").error_message
    full = Mixed(consumer_max_size=1)
    full.old_member()
    assert full.join("new").error_code == E.GROUP_MAX_SIZE_REACHED
    assert full.classic.state.value == "Stable", "and nothing has happened to it"


def test_requests_that_wait_in_the_classic_group_are_answered() -> None:
    """testConsumerGroupHeartbeatWithPreparingRebalanceClassicGroup"""
    group = Mixed()
    old = group.old_member()
    other = group.old_join("").member_id
    assert group.old_join(other) is None, "it waits for the first"
    group.join("new")
    assert group.world.replies[f"join-{other}"].error_code == E.REBALANCE_IN_PROGRESS
    assert set(group.group.members) == {old, other, "new"}


def test_a_member_that_does_not_join_or_sync_in_time_is_out() -> None:
    group = Mixed()
    old = group.old_member()
    group.join("new")
    group.old_beat(old)
    for _ in range(6):
        group.world.advance(5_000)
        group.beat("new")
        if old in group.group.members:
            group.old_beat(old)
    assert list(group.group.members) == ["new"]


def test_strangers_and_old_generations() -> None:
    group = Mixed()
    old = group.old_member()
    group.join("new")
    group.generations |= {"new": group.epochs["new"], "x": 1}
    assert group.old_beat("new") == E.UNKNOWN_MEMBER_ID, "it does not speak the classic protocol"
    assert group.old_beat("x") == E.UNKNOWN_MEMBER_ID
    assert group.old_leave("x") == E.UNKNOWN_MEMBER_ID
    group.generations[old] = 77
    assert group.old_beat(old) == E.ILLEGAL_GENERATION
    assert group.old_sync(old).error_code == E.ILLEGAL_GENERATION
    assert group.old_join("y", metadata=b"\x00").error_code == E.UNKNOWN_SERVER_ERROR
    assert group.old_join("y", protocol_type="connect").error_code == E.INCONSISTENT_GROUP_PROTOCOL
    assert group.old_leave(old) == E.NONE
    assert list(group.group.members) == ["new"]
