"""A cause has one kind, and log lines, metrics, `explain` and the history all name that one.

What the coordinator tells in all scenarios, and in some more that lead to kinds which those leave out, goes to each.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from coordinator import scenarios
from coordinator.modern.groups import Members
from coordinator.modern.test_heartbeat import Fails
from coordinator.modern.test_migration import Mixed
from coordinator.world import World
from kohort.assignors import Subscription, encode_subscription
from kohort.broker import event_log
from kohort.broker.meter import GroupCounters
from kohort.coordinator import events
from kohort.coordinator.causes import CauseKind
from kohort.coordinator.event_json import from_json
from kohort.coordinator.events import GroupEvent
from kohort.history import stories
from kohort.insight.rebalances import from_events
from kohort.insight.sentences import told, why, why_of_event
from kohort.protocol.messages import JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest

FILES = sorted((Path(__file__).parent.parent / "scenarios").glob("*.txt"))
FROM_OUTSIDE = {
    CauseKind.GONE,
    CauseKind.BEGAN,
    CauseKind.FIRST_KNOWN,
    CauseKind.PARTITIONS_CAME,
    CauseKind.PARTITIONS_MOVED,
    CauseKind.MEMBERS_REJOINED,
    CauseKind.UNKNOWN,
}


def played(path: Path) -> list[GroupEvent]:
    player = scenarios.Player()
    for _, command, _ in scenarios.blocks(path.read_text()):
        if command is not None:
            player.play(command)
    assert player.world is not None
    return player.world.events


# -- a cooperative group ----------------------------------------------------------------------------------------------


def join(world: World, member_id: str, owned: list[int], client_id: str = "c", said: str = "", **fields: Any) -> Any:
    metadata = encode_subscription(Subscription(["orders"], owned_partitions={"orders": owned} if owned else {}))
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="cooperative-sticky", metadata=metadata)
    request = JoinGroupRequest(
        group_id="g", member_id=member_id, session_timeout_ms=10_000, rebalance_timeout_ms=60_000,
        protocol_type="consumer", protocols=[protocol], reason=said, **fields,
    )  # fmt: skip
    return world.send(request, 8, client_id=client_id)


def sync(world: World, member_id: str, generation: int) -> None:
    request = SyncGroupRequest(
        group_id="g", member_id=member_id, generation_id=generation, protocol_type="consumer",
        protocol_name="cooperative-sticky",
    )  # fmt: skip
    world.send(request, 5)


def one_member(client_id: str = "c") -> tuple[World, str]:
    """A stable group of one that owns four partitions."""
    world = World()
    member_id = join(world, "", [], client_id).member_id
    join(world, member_id, [0, 1, 2, 3], client_id)
    world.advance(3_000)
    sync(world, member_id, 1)
    return world, member_id


def started(world: World) -> CauseKind:
    found = [event for event in world.events if isinstance(event, events.RebalanceStarted)][-1]
    assert found.cause is not None
    return found.cause.kind


def handed_over() -> list[GroupEvent]:
    world, member_id = one_member()
    join(world, member_id, [0, 1], said="whatever")
    return world.events


def removed() -> list[GroupEvent]:
    world, member_id = one_member()
    leave(world, member_id, "admin", "goodbye")
    return world.events


def leave(world: World, member_id: str, client_id: str, said: str) -> None:
    identity = LeaveGroupRequest.MemberIdentity(member_id=member_id, reason=said)
    world.send(LeaveGroupRequest(group_id="g", members=[identity]), 5, client_id=client_id)


def moved() -> list[GroupEvent]:
    return steps("a join v=3", "unload")


def steps(*commands: str) -> list[GroupEvent]:
    player = scenarios.Player()
    for command in commands:
        player.play(command)
    assert player.world is not None
    return player.world.events


def leader_late() -> list[GroupEvent]:
    """A static leader that does not come back in time keeps its place, and another leads."""
    begin = ("a join instance=i1 v=5 session=100000", "b join v=3 session=100000", "advance 6000", "a sync", "b sync")
    return steps(*begin, "b join v=3 session=100000 protocols=range:orders,rr:orders", "advance 30000")


def consumer_protocol() -> list[GroupEvent]:
    """A KIP-848 group: everything that is not told of classic ones."""
    members = Members()
    members.world.config.assignors = {**members.world.config.assignors, "fails": Fails()}
    members.join("a", rebalance_timeout_ms=1_000)
    members.join("s", instance_id="i")
    members.send("a", member_epoch=7)
    members.beat("a")
    members.world.advance(1_000)
    members.join("b")
    members.leave("s", -2, instance_id="i")
    members.world.topics.add("orders", 6)
    members.world.coordinator.topics_changed("orders")
    members.beat("b")
    members.beat("b", server_assignor="fails", subscribed_topic_names=["orders", "bills"])
    return members.world.events


def there_and_back() -> list[GroupEvent]:
    """A classic group that becomes one of the consumer protocol, and a classic one again."""
    group = Mixed()
    group.old_member()
    group.join("new")
    group.leave("new")
    return group.world.events


def by_expression() -> list[GroupEvent]:
    members = Members()
    members.join("a", subscribed_topic_names=None, subscribed_topic_regex="ord.*")
    members.world.advance(0)
    return members.world.events


WRITTEN = (handed_over, removed, moved, leader_late, consumer_protocol, there_and_back, by_expression)


@cache
def stories_told() -> dict[str, list[GroupEvent]]:
    made = {made.__name__: made() for made in WRITTEN}
    return made | {path.stem: played(path) for path in FILES}


NAMES = [*(made.__name__ for made in WRITTEN), *(path.stem for path in FILES)]


# -- one kind ---------------------------------------------------------------------------------------------------------


def test_the_stories_lead_to_every_kind() -> None:
    kinds = {event.cause.kind for told in stories_told().values() for event in told if event.cause is not None}
    assert set(CauseKind) - FROM_OUTSIDE == kinds


def counted(event: GroupEvent) -> GroupCounters:
    counters = GroupCounters()
    counters.observe(event)
    return counters


@pytest.mark.parametrize("name", NAMES)
def test_logs_and_metrics_name_the_kind_of_the_event(name: str) -> None:
    for event in stories_told()[name]:
        kind = None if event.cause is None else event.cause.kind
        line = event_log.line(event)
        assert event_log.printable(why_of_event(event)) in line
        group = counted(event).by_group.get(event.group_id)
        if isinstance(event, events.RebalanceStarted):
            assert kind is not None and group is not None and group.rebalances == {kind.value: 1}
        elif isinstance(event, events.MemberEvicted):
            assert kind is not None and group is not None and group.evictions == {kind.value: 1}
        elif isinstance(event, events.JoinRefused | events.SyncRefused | events.CommitRefused | events.MemberFenced):
            error = getattr(event, "error", "FENCED_INSTANCE_ID")
            assert kind is not None and group is not None and group.refusals == {(error, kind.value): 1}
        elif isinstance(event, events.OffsetsRemoved):
            counters = counted(event)
            expired = event.partitions if kind is CauseKind.RETENTION_OVER else 0
            assert (counters.offsets_expired, counters.offsets_deleted) == (expired, event.partitions - expired)


def began_with(told: list[GroupEvent]) -> list[CauseKind]:
    """The kinds of those starts of a rebalance that come while none is under way."""
    kinds, under_way, modern = [], False, False
    for event in told:
        if isinstance(event, events.RebalanceStarted | events.EpochStarted):
            if not under_way and event.cause is not None:
                kinds.append(event.cause.kind)
            under_way, modern = True, isinstance(event, events.EpochStarted)
        elif (
            isinstance(event, events.RebalanceCompleted | events.GroupLoaded)
            or (
                isinstance(event, events.StateChanged)
                and event.to_state in (("Empty", "Dead", "Stable") if modern else ("Empty", "Dead"))
            )
            or (isinstance(event, events.GroupConverted) and event.to_type == "classic")
        ):
            under_way = False
    return kinds


@pytest.mark.parametrize("name", NAMES)
def test_explain_and_history_name_the_kind_of_the_event(name: str) -> None:
    for group_id in {event.group_id for event in stories_told()[name]}:
        mine = [event for event in stories_told()[name] if event.group_id == group_id]
        read_back = [from_json(json.dumps(event.to_dict())) for event in mine]
        assert read_back == mine
        explained = from_events(mine)
        assert [rebalance.triggers[0].kind for rebalance in explained.rebalances] == began_with(mine)
        rows = [event.to_dict() | {"record_offset": number} for number, event in enumerate(mine)]
        kept = stories.rebalances_of_events(rows)
        assert [[c["kind"] for c in row["causes"]] for row in kept] == [
            [trigger.kind.value for trigger in rebalance.triggers] for rebalance in explained.rebalances
        ]
        went = {e.member_id: e for e in mine if isinstance(e, events.MemberLeft | events.MemberEvicted)}
        for life in stories.lives_of_events(rows):
            if life["ended"] is not None and (event := went.get(life["member_id"])) is not None:
                assert event.cause is not None and life["ended"] == event.cause.kind.value
        refused = [e.cause for e in mine if isinstance(e, _REFUSALS)]
        assert [refusal.cause for refusal in explained.refusals] == refused


_REFUSALS = (
    events.JoinRefused | events.SyncRefused | events.CommitRefused | events.HeartbeatRefused | events.MemberFenced
)


@pytest.mark.parametrize("kind", CauseKind, ids=lambda kind: kind.value)
def test_every_kind_has_words(kind: CauseKind) -> None:
    from kohort.coordinator.causes import Cause, Who

    for cause in (Cause(kind), Cause(kind, (Who("m-1"),), said="a", timeout_ms=5_000, size=2, error="E", raw="{}")):
        assert isinstance(why(cause), str) and isinstance(told(cause), str)
    assert why(cause) and told(cause)


# -- what clients write changes no kind -------------------------------------------------------------------------------

HOSTILE = [
    "no heartbeat for 5 ms",
    "did not sync before the rebalance timeout",
    "need to revoke partitions and re-join",
    "member m changed its metadata in Stable; client reason: need to revoke partitions",
    "removed by an administrator",
    "consumer poll timeout has expired.",
    "the group is over group.max.size",
    '{"kind": "timed_out"}',
    "\n\x1b[31m" + "x" * 1_000,
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_no_text_of_a_client_changes_a_kind(text: str) -> None:
    world, member_id = one_member(client_id=text)
    assert started(world) is CauseKind.JOINED
    join(world, member_id, [0, 1, 2, 3], client_id=text, said=text)
    assert started(world) is CauseKind.LEADER_REJOINED
    assert max(len(event.cause.said) for event in world.events if event.cause is not None) <= 255
    world, member_id = one_member(client_id=text)
    leave(world, member_id, text, text)
    assert started(world) is CauseKind.LEFT
    assert all("\n" not in event_log.line(event) and "\x1b" not in event_log.line(event) for event in world.events)
    world, _ = one_member(client_id=text)
    world.advance(11_000)
    assert started(world) is CauseKind.TIMED_OUT
