"""Members and kohort's coordinator, back to back in virtual time."""

from __future__ import annotations

import random

import pytest

from client.group_stage import GroupStage
from kohort.client.errors import CommitFailedError, FencedInstanceIdError
from kohort.client.member import MemberState
from kohort.client.types import OffsetAndMetadata, TopicPartition
from kohort.protocol.apis import ApiKey

ALL = set(range(6))


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_members_share_the_partitions(strategy: str) -> None:
    group = GroupStage()
    group.join("a", strategy)
    group.settle()
    assert group.owners() == dict.fromkeys(ALL, "a")
    group.join("b", strategy)
    group.pass_time(20_000)
    counts = {name: list(group.owners().values()).count(name) for name in ("a", "b")}
    assert counts == {"a": 3, "b": 3}
    group.join("c", strategy)
    group.pass_time(20_000)
    assert set(group.owners()) == ALL
    assert sorted(list(group.owners().values()).count(name) for name in ("a", "b", "c")) == [2, 2, 2]


def test_eager_members_stop_together_cooperative_ones_keep_what_they_keep() -> None:
    eager, cooperative = GroupStage(), GroupStage()
    first = {}
    for group, strategy in ((eager, "range"), (cooperative, "cooperative-sticky")):
        first[strategy] = group.join("a", strategy)
        group.settle()
        group.join("b", strategy)
        group.pass_time(20_000)
    assert first["range"].log == [
        "assigned [0, 1, 2, 3, 4, 5] in 1",
        "revoke [0, 1, 2, 3, 4, 5]",
        "assigned [0, 1, 2] in 2",
    ]
    gone = first["cooperative-sticky"].log[1]
    assert gone.startswith("revoke") and gone.count(",") == 2, "only what goes to the other member is revoked"


def test_a_clean_leave_hands_over_at_the_next_heartbeat() -> None:
    group = GroupStage()
    a = group.join("a")
    b = group.join("b")
    group.pass_time(10_000)
    b.leave()
    group.pass_time(3_100)
    assert group.owners() == dict.fromkeys(ALL, "a")
    assert a.member.state is MemberState.STABLE


def test_a_crash_is_noticed_after_the_session_timeout() -> None:
    group = GroupStage()
    group.join("a", session_timeout_ms=10_000)
    b = group.join("b", session_timeout_ms=10_000)
    group.pass_time(10_000)
    b.crash()
    group.pass_time(6_000)
    assert len(group.owners()) == 3
    group.pass_time(8_000)
    assert group.owners() == dict.fromkeys(ALL, "a")


def test_a_stalled_application_leaves_and_comes_back() -> None:
    group = GroupStage()
    group.join("a", max_poll_interval_ms=20_000)
    b = group.join("b", max_poll_interval_ms=20_000)
    group.pass_time(10_000)
    b.busy = True
    group.pass_time(30_000)
    assert "over max.poll.interval.ms=20000" in b.member.why_out
    b.reading.clear()
    assert group.owners() == dict.fromkeys(ALL, "a")
    b.do(b.member.commit(1, {TopicPartition("orders", 3): OffsetAndMetadata(1)}, group.now_ms))
    assert isinstance(b.errors[0], CommitFailedError)
    b.busy = False
    group.pass_time(10_000)
    assert b.log[-2].startswith("lose") and b.log[-1].startswith("assigned")
    assert set(group.owners()) == ALL


def test_a_busy_member_holds_up_an_eager_rebalance_no_longer_than_the_rebalance_timeout() -> None:
    group = GroupStage()
    a = group.join("a", max_poll_interval_ms=20_000)
    group.settle()
    a.busy = True
    group.join("b", max_poll_interval_ms=20_000)
    group.pass_time(15_000)
    assert group.members[1].member.state is MemberState.PREPARING_REBALANCE
    group.pass_time(15_000)
    assert group.members[1].reading == {TopicPartition("orders", n) for n in ALL}


def test_static_members_bounce_without_a_rebalance() -> None:
    group = GroupStage()
    a = group.join("a", group_instance_id="i-a")
    b = group.join("b", group_instance_id="i-b")
    group.pass_time(10_000)
    before = a.log.copy()
    b.leave()
    group.pass_time(5_000)
    again = group.join("b2", group_instance_id="i-b")
    group.pass_time(5_000)
    assert a.log == before
    assert again.reading and a.reading
    assert set(group.owners()) == ALL


@pytest.mark.parametrize(("version", "broker_looks"), [(8, True), (9, True), (9, False)])
def test_what_is_added_while_a_static_leader_is_away_is_read_when_it_returns(
    version: int, broker_looks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KIP-814 lets it keep the assignment. Kafka's broker leaves it at that; a member that is told so looks itself."""
    if not broker_looks:
        monkeypatch.setattr("kohort.coordinator.classic.join._leaves_out", lambda context, group, returned_id: False)
    group = GroupStage()
    group.versions[ApiKey.JOIN_GROUP] = version
    leader = group.join("a", group_instance_id="i-a")
    group.join("b", group_instance_id="i-b")
    group.pass_time(10_000)
    assert leader.member.is_leader
    leader.crash()
    group.world.topics.add("orders", 8)
    again = group.join("a2", group_instance_id="i-a")
    group.pass_time(10_000)
    assert again.member.is_leader
    assert set(group.owners()) == set(range(8))


def test_a_static_follower_that_returns_with_another_topic_reads_it() -> None:
    """No leader would know of it: Kafka's broker leaves it unread until the next rebalance."""
    group = GroupStage()
    group.world.topics.add("bills", 2)
    group.join("a", group_instance_id="i-a")
    follower = group.join("b", group_instance_id="i-b")
    group.pass_time(10_000)
    assert not follower.member.is_leader
    follower.crash()
    again = group.join("b2", topics=("orders", "bills"), group_instance_id="i-b")
    group.pass_time(10_000)
    assert {tp.partition for tp in again.reading if tp.topic == "bills"} == {0, 1}


def test_of_two_with_one_instance_id_the_later_stays() -> None:
    group = GroupStage()
    first = group.join("first", group_instance_id="i")
    group.pass_time(4_000)
    second = group.join("second", group_instance_id="i")
    group.pass_time(10_000)
    assert isinstance(first.member.fatal, FencedInstanceIdError)
    assert first.reading == set()
    assert second.reading == {TopicPartition("orders", n) for n in ALL}


def test_commits_survive_and_the_successor_starts_there() -> None:
    group = GroupStage()
    a = group.join("a", enable_auto_commit=True)
    group.settle()
    a.positions = {TopicPartition("orders", n): 100 + n for n in ALL}
    a.leave()
    b = group.join("b")
    group.settle()
    found = []

    def collect(effects: list[object]) -> None:
        found.extend(e for e in effects if type(e).__name__ == "OffsetsFetched")
        type(b).do(b, effects)  # type: ignore[arg-type]

    b.do = collect  # type: ignore[method-assign]
    b.do(b.member.fetch_offsets(1, sorted(b.reading), group.now_ms))
    group.settle()
    assert {tp.partition: o.offset for tp, o in found[0].offsets.items()} == {n: 100 + n for n in ALL}


def test_topic_grows() -> None:
    group = GroupStage(partitions=2)
    a = group.join("a", "cooperative-sticky")
    group.join("b", "cooperative-sticky")
    group.pass_time(10_000)
    group.world.topics.add("orders", 6)
    for application in group.members:
        group.metadata(application)
    group.pass_time(10_000)
    assert set(group.owners()) == ALL
    assert a.member.state is MemberState.STABLE


def test_a_coordinator_that_restarts_keeps_its_members() -> None:
    group = GroupStage()
    a = group.join("a")
    group.join("b")
    group.pass_time(10_000)
    before, log = group.owners(), a.log.copy()
    group.restart()
    group.pass_time(10_000)
    assert group.owners() == before
    assert a.log == log


@pytest.mark.parametrize("seed", range(25))
def test_whatever_happens_the_group_ends_whole(seed: int) -> None:
    chance = random.Random(seed)
    strategy = chance.choice(["range", "sticky", "cooperative-sticky"])
    group = GroupStage()
    group.chance, group.loss = chance, chance.choice([0.0, 0.02, 0.2])
    config = {"session_timeout_ms": 10_000, "max_poll_interval_ms": 15_000, "enable_auto_commit": chance.random() < 0.5}
    for step in range(40):
        alive = [a for a in group.members if not a.dead and not a.left]
        roll = chance.random()
        if len(alive) < 2 or (roll < 0.25 and len(alive) < 6):
            group.join(f"m{step}", strategy, **config)
        elif roll < 0.35:
            chance.choice(alive).crash()
        elif roll < 0.45:
            busy = chance.choice(alive)
            if not busy.busy:
                busy.leave()
        elif roll < 0.6:
            one = chance.choice(alive)
            one.busy = not one.busy
        elif roll < 0.65:
            group.restart()
        group.pass_time(chance.choice([1, 50, 500, 3_000, 8_000]))
        group.check()
    group.loss = 0.0
    for application in group.members:
        application.busy = False
    group.pass_time(60_000)
    alive = [a for a in group.members if not a.dead and not a.left]
    assert {a.member.state for a in alive} == {MemberState.STABLE}
    assert len({a.member.generation.generation_id for a in alive}) == 1
    assert set(group.owners()) == ALL
    assert sum(len(a.reading) for a in alive) == len(ALL)
    assert not group.parked
