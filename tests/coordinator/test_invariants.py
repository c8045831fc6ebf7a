"""Random sequences of requests, time, crashes and failing stores: what must hold after every step, and after replay."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from coordinator.world import World
from kohort.coordinator import records
from kohort.coordinator.classic.states import COMPLETING_REBALANCE, EMPTY, PREPARING_REBALANCE, STABLE
from kohort.coordinator.gathering import GatheredPart
from kohort.protocol import messages
from kohort.protocol.errors import ErrorCode

GROUPS = ["g", "h"]
CLIENTS = [f"c{i}" for i in range(5)]
INSTANCES = [None, None, "i1", "i2"]
SUBSCRIPTION = b"\x00\x00\x00\x00\x00\x01\x00\x06orders\x00\x00\x00\x00"


class Groups(RuleBasedStateMachine):
    """Clients that follow the protocol most of the time and get it wrong the rest of it."""

    @initialize(delay=st.sampled_from([0, 3_000]), size=st.sampled_from([2, 3, 100]))
    def begin(self, delay: int, size: int) -> None:
        self.world = World(
            partitions=2,
            group_initial_rebalance_delay_ms=delay,
            group_max_size=size,
            offsets_retention_minutes=5,
            offsets_retention_check_interval_ms=60_000,
        )
        self.knows: dict[tuple[str, str], tuple[str, int]] = {}  # (client, group) -> member id, generation
        self.waiting: dict[Any, tuple[str, str, int]] = {}  # token -> client, group, when it was sent
        self.generations: dict[str, tuple[Any, int]] = {}  # group id -> the group, its generation
        self.acknowledged: dict[tuple[str, int], int] = {}
        # What was sent since then: an answer that is an error, or is none, does not say that nothing was stored.
        self.possible: dict[tuple[str, int], list[tuple[int, int | None]]] = {}
        self.asked: dict[int, Any] = {}
        self.tokens = 0

    def send(self, client: str, group: str, message: Any, version: int) -> Any:
        self.tokens += 1
        self.asked[self.tokens] = message
        response = self.world.send(message, version, self.tokens, client)
        if response is None:
            self.waiting[self.tokens] = (client, group, self.world.now_ms)
        else:
            self.learn(client, group, self.tokens, response)
        return response

    def learn(self, client: str, group: str, token: int, response: Any) -> None:
        asked = self.asked.pop(token)
        if isinstance(response, messages.JoinGroupResponse):
            if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self.knows[client, group] = (response.member_id, -1)
            elif response.error_code == ErrorCode.NONE:
                self.knows[client, group] = (response.member_id, response.generation_id)
        elif isinstance(response, messages.OffsetCommitResponse):
            if response.topics[0].partitions[0].error_code == ErrorCode.NONE:
                committed = asked.topics[0].partitions[0]
                where = group, committed.partition_index
                self.acknowledged[where] = committed.committed_offset
                self.possible[where] = [sent for sent in self.possible.get(where, ()) if sent[0] > token]
        elif isinstance(response, messages.DeleteGroupsResponse) and response.results[0].error_code == ErrorCode.NONE:
            self.acknowledged = {where: offset for where, offset in self.acknowledged.items() if where[0] != group}

    @rule(
        client=st.sampled_from(CLIENTS),
        group=st.sampled_from(GROUPS),
        version=st.sampled_from([0, 3, 5, 9]),
        forget=st.booleans(),
        instance=st.sampled_from(INSTANCES),
        protocols=st.sampled_from([["range"], ["range", "rr"], ["rr"], ["rr", "range"]]),
        metadata=st.sampled_from([SUBSCRIPTION, SUBSCRIPTION, b"junk"]),
    )
    def join(
        self,
        client: str,
        group: str,
        version: int,
        forget: bool,
        instance: str | None,
        protocols: list[str],
        metadata: bytes,
    ) -> None:
        make = messages.JoinGroupRequest.JoinGroupRequestProtocol
        message = messages.JoinGroupRequest(
            group_id=group,
            member_id="" if forget else self.knows.get((client, group), ("", 0))[0],
            group_instance_id=instance if version >= 5 else None,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=20_000,
            protocol_type="consumer",
            protocols=[make(name=name, metadata=metadata) for name in protocols],
        )
        self.send(client, group, message, version)

    @rule(client=st.sampled_from(CLIENTS), group=st.sampled_from(GROUPS), off=st.sampled_from([0, 0, 0, 1, -1]))
    def sync(self, client: str, group: str, off: int) -> None:
        member_id, generation = self.knows.get((client, group), ("", -1))
        make = messages.SyncGroupRequest.SyncGroupRequestAssignment
        assignments = [make(member_id=m, assignment=c.encode()) for (c, g), (m, _) in self.knows.items() if g == group]
        message = messages.SyncGroupRequest(
            group_id=group, generation_id=generation + off, member_id=member_id, assignments=assignments
        )
        self.send(client, group, message, 3)

    @rule(client=st.sampled_from(CLIENTS), group=st.sampled_from(GROUPS), off=st.sampled_from([0, 0, 0, 1]))
    def heartbeat(self, client: str, group: str, off: int) -> None:
        member_id, generation = self.knows.get((client, group), ("", -1))
        message = messages.HeartbeatRequest(group_id=group, generation_id=generation + off, member_id=member_id)
        answer = self.send(client, group, message, 4)
        assert answer is not None or self.world.holding  # a refusal may rest on what is not stored yet

    @rule(client=st.sampled_from(CLIENTS), group=st.sampled_from(GROUPS), instance=st.sampled_from(INSTANCES))
    def leave(self, client: str, group: str, instance: str | None) -> None:
        make = messages.LeaveGroupRequest.MemberIdentity
        member_id = self.knows.get((client, group), ("", -1))[0] if instance is None else ""
        message = messages.LeaveGroupRequest(
            group_id=group, members=[make(member_id=member_id, group_instance_id=instance)]
        )
        self.send(client, group, message, 5)

    @rule(
        client=st.sampled_from([*CLIENTS, "simple"]),
        group=st.sampled_from(GROUPS),
        partition=st.integers(0, 4),
        offset=st.integers(0, 1_000),
    )
    def commit(self, client: str, group: str, partition: int, offset: int) -> None:
        member_id, generation = self.knows.get((client, group), ("", -1))
        request = messages.OffsetCommitRequest
        made = request.OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
        message = request(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            topics=[request.OffsetCommitRequestTopic(name="orders", partitions=[made])],
        )
        self.possible.setdefault((group, partition), []).append((self.tokens + 1, offset))
        self.send(client, group, message, 9)

    @rule(group=st.sampled_from(GROUPS))
    def delete_group(self, group: str) -> None:
        for partition in range(5):
            self.possible.setdefault((group, partition), []).append((self.tokens + 1, None))
        self.send("admin", group, messages.DeleteGroupsRequest(groups_names=[group]), 2)

    @rule(milliseconds=st.sampled_from([0, 1, 3_000, 9_000, 20_000, 301_000]))
    def time_passes(self, milliseconds: int) -> None:
        before = self.world.now_ms
        self.world.advance(milliseconds)
        if self.world.now_ms - before >= 300_000:
            self.acknowledged.clear()  # the retention is over for whatever nobody subscribes to
        self.collect()

    @rule()
    def the_coordinator_crashes(self) -> None:
        self.world.restart()
        self.waiting.clear()
        self.generations.clear()

    @rule(error=st.sampled_from([ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NONE, ErrorCode.NONE]))
    def the_store_fails_or_heals(self, error: ErrorCode) -> None:
        self.world.store_error = error

    @rule()
    def the_store_is_slow(self) -> None:
        self.world.holding = True

    @rule()
    def the_store_catches_up(self) -> None:
        self.world.store_held()
        self.collect()

    def collect(self) -> None:
        for token in [token for token in self.waiting if token in self.world.replies]:
            client, group, _ = self.waiting.pop(token)
            self.learn(client, group, token, self.world.replies[token])

    # ---- what must hold

    @invariant()
    def groups_are_consistent(self) -> None:
        if not hasattr(self, "world"):
            return
        self.collect()
        for group in self.world.coordinator.groups.values():
            members = group.members
            assert group.leader_id is None or group.leader_id in members
            assert set(group.static_members.values()) <= set(members)
            assert group.awaiting_join == sum(m.parked_join is not None for m in members.values())
            assert not set(group.pending_members) & set(members)
            assert (group.state is EMPTY) <= (not members)
            assert (group.state in (STABLE, COMPLETING_REBALANCE)) <= bool(members)
            if group.state is not EMPTY and members:
                size = len(members)
                assert any(count == size for count in group.protocol_votes.values())
            if group.state is STABLE:
                assert group.stored is not None and group.stored.generation <= group.generation
            assert all(m.parked_sync is None for m in members.values()) or group.state is COMPLETING_REBALANCE

    @invariant()
    def a_generation_never_goes_back(self) -> None:
        """Unless the group was removed and is another one of the same name now, or was read again from the log."""
        if not hasattr(self, "world"):
            return
        now = {}
        for group_id, group in self.world.coordinator.groups.items():
            shard = self.world.coordinator.runtime.shards[self.world.coordinator.partition_for(group_id)]
            before, least, incarnation = self.generations.get(group_id, (group, 0, shard.incarnation))
            assert before is not group or group.generation >= least
            if before is not group and incarnation == shard.incarnation:
                decided = [decision.records for write in shard.in_flight for decision in write.decisions]
                gone = (records.group_key(group_id), None)
                assert any(gone in log for log in [*decided, *self.world.log.values()])
            now[group_id] = (group, group.generation, shard.incarnation)
        self.generations = now

    @invariant()
    def nobody_is_forgotten(self) -> None:
        """Who waits for an answer is parked in its group, and nobody waits longer than a new member may."""
        if not hasattr(self, "world"):
            return
        parked = {
            request.call
            for group in self.world.coordinator.groups.values()
            for m in group.members.values()
            for request in (m.parked_join, m.parked_sync)
            if request is not None
        }
        held = [
            write
            for write in self.world.held
            if write.incarnation == write.shard.incarnation  # who waited for the others was told that they failed
        ]
        being_stored = {request.call for write in held for request, _ in write.answers}
        being_stored |= {
            then.gathering._request.call for write in held for then in write.thens if isinstance(then, GatheredPart)
        }
        assert parked | being_stored == set(self.waiting)
        late = [token for token, (_, _, since) in self.waiting.items() if self.world.now_ms - since > 301_000]
        assert self.world.holding or not late

    @invariant()
    def a_rebalance_is_always_under_a_clock(self) -> None:
        if not hasattr(self, "world"):
            return
        for group in self.world.coordinator.groups.values():
            if group.state is PREPARING_REBALANCE:
                assert group.join_timer.at_ms is not None
                assert group.join_timer.at_ms - self.world.now_ms <= 20_000
            if group.state is COMPLETING_REBALANCE and group.pending_syncs:
                assert group.sync_timer.at_ms is not None

    @invariant()
    def the_log_tells_the_hard_state(self) -> None:
        if not hasattr(self, "world"):
            return
        """With what was decided and is on its way there."""
        if self.world.coordinator.effects.loads:
            return
        live = self.world.coordinator.groups
        rebuilt = rebuild(self.world)
        for group_id, group in live.items():
            other = rebuilt.get(group_id)
            assert (other.stored if other else None) == group.stored
            assert (other.offsets if other else {}) == group.offsets
        assert set(rebuilt) <= set(live)

    @invariant()
    def what_was_acknowledged_is_there(self) -> None:
        if not hasattr(self, "world"):
            return
        stored = rebuild(self.world, decided=False)
        for (group_id, partition), offset in self.acknowledged.items():
            offsets = stored[group_id].offsets.get("orders", {}) if group_id in stored else {}
            found = offsets[partition].committed_offset if partition in offsets else None
            assert found == offset or found in [sent for _, sent in self.possible[group_id, partition]]


def rebuild(world: World, *, decided: bool = True) -> dict[str, Any]:
    """The groups as the log tells them, or as it will when all that has been decided is stored."""
    other = World(partitions=2, load=False, group_max_size=world.config.group_max_size)
    other.log = {partition: list(log) for partition, log in world.log.items()}
    for write in world.held if decided else []:
        for decision in write.decisions:
            if decision.changes:
                other.log[write.shard.partition] += decision.records
    other.now_ms = world.now_ms
    other.load()
    return other.coordinator.groups


def test_a_group_may_end_and_begin_again_in_one_step() -> None:
    """Once found by chance: its end waits to be stored, and so does a commit for the same name that came after it."""
    state = Groups()
    state.begin(delay=0, size=2)
    state.commit("c1", "g", 1, 7)
    state.the_store_is_slow()
    state.delete_group("g")
    state.commit("c1", "g", 0, 3)
    state.a_generation_never_goes_back()
    state.the_log_tells_the_hard_state()
    state.the_store_catches_up()
    state.the_log_tells_the_hard_state()
    assert state.acknowledged == {("g", 0): 3}
    state.what_was_acknowledged_is_there()


TestGroups = Groups.TestCase
TestGroups.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_loading_slice_by_slice_is_loading_at_once() -> None:
    world = World()
    changes = [
        records.OffsetCommit(f"g{i % 7}", "orders", i % 4, records.OffsetAndMetadata(i, -1, "", i, -1, b"\x01" * 16))
        for i in range(100)
    ]
    world.log[0] = [records.encode(change) for change in changes] + [(records.offset_key("g0", "orders", 0), None)]
    world.restart()
    at_once = {group_id: group.offsets for group_id, group in world.coordinator.groups.items()}
    world.restart(load=False)
    coordinator = world.coordinator
    (shard,) = world.lead()
    world.read(shard)
    steps = 1
    while not shard.state.settle(limit=5):
        steps += 1
    world.loaded(shard)
    assert steps > 3
    assert {group_id: group.offsets for group_id, group in coordinator.groups.items()} == at_once
