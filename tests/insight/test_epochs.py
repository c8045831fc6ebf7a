"""KIP-848 groups in words: epochs from events and from records, who waits for whom, an assignor that fails."""

import json

import pytest

from coordinator.modern.groups import Members
from coordinator.modern.test_heartbeat import Fails
from kohort.coordinator.causes import CauseKind, Who
from kohort.history import stories
from kohort.history.kinds import modern_row
from kohort.insight.diagnosis import PROBLEM, Present, diagnose
from kohort.insight.group_past import GroupPast
from kohort.insight.lanes import Lanes
from kohort.insight.modern_past import ModernPast
from kohort.insight.rebalances import Source, from_events
from kohort.insight.telling import tell
from kohort.insight.waiting import Holding, WaitReason, told, waits
from kohort.protocol.uuids import to_base64


def handed_over():
    """`a` has everything, `b` comes, `a` gives up, `b` gets it, `b` leaves."""
    members = Members()
    members.world.topics.topics["orders"] = (members.world.topics.topics["orders"][0], 2)
    members.join("a")
    members.world.advance(1_000)
    members.join("b")
    members.world.advance(2_000)
    members.beat("a")
    return members


def finished():
    members = handed_over()
    members.world.advance(2_000)
    members.acknowledge("a")
    members.world.advance(1_000)
    members.settle()
    members.world.advance(1_000)
    members.leave("b")
    members.settle("a")
    return members


def holdings(members):
    group = members.group
    names = {members.world.topics.topics["orders"][0]: "orders"}

    def flat(partitions):
        return frozenset((names[topic_id], number) for topic_id in partitions for number in partitions[topic_id])

    return [
        Holding(
            Who(name, None, name),
            member.current.member_epoch,
            flat(member.current.assigned) | flat(member.current.pending),
            flat(group.target.get(name, {})),
        )
        for name, member in group.members.items()
    ]


def test_epochs_are_rebalances_with_their_causes():
    history = from_events(finished().world.events)
    assert [[t.kind for t in one.triggers] for one in history.rebalances] == [
        [CauseKind.JOINED],
        [CauseKind.JOINED],
        [CauseKind.LEFT],
    ]
    first, second, third = history.rebalances
    assert [one.generation for one in history.rebalances] == sorted({one.generation for one in history.rebalances})
    assert all(one.is_modern and not one.open for one in history.rebalances)
    assert (first.members, second.members, third.members) == (1, 2, 1)
    assert second.standstill_ms == 5_000 and second.last_back == Who("b", None, "b", "/127.0.0.1")
    said = tell(second, 0)
    assert f"That led to epoch {second.generation} with 2 members; the hand-over took 5 s; b" in said


def test_an_open_epoch_names_who_is_not_there():
    members = handed_over()
    (_, second) = from_events(members.world.events).rebalances
    assert second.open and {who.member_id for who in second.waiting_for} == {"a", "b"}
    assert f"The move to epoch {second.generation} is still under way" in tell(second, 10_000)


def test_who_waits_for_whom():
    members = handed_over()
    group = members.group
    (wait,) = waits(holdings(members))
    assert (wait.waiter.member_id, wait.holder.member_id, wait.reason) == ("b", "a", WaitReason.NOT_REVOKED)
    topic_id = members.world.topics.topics["orders"][0]
    assert group.waits_for(group.members["b"]) == {topic_id: {wait.partition[1]: "a"}}
    (sentence,) = told([wait])
    assert sentence == f"b waits for orders-{wait.partition[1]}; a has not said yet that it gave it up"
    members.acknowledge("a")
    (wait,) = waits(holdings(members))
    assert (wait.holder, wait.reason) == (None, WaitReason.NOT_TOLD)
    members.acknowledge("b")
    assert waits(holdings(members)) == []


def test_reasons_to_wait():
    a, b = Who("a"), Who("b")
    t0, t1 = ("t", 0), ("t", 1)

    def reasons(*members):
        return [one.reason for one in waits(members)]

    away = Holding(a, -2, frozenset({t0}), frozenset())
    assert reasons(away, Holding(b, 3, frozenset(), frozenset({t0}))) == [WaitReason.LEFT_FOR_A_WHILE]
    assert reasons(Holding(b, 3, frozenset({t1}), frozenset({t0}))) == [WaitReason.OWN_REVOCATION]
    both = waits([Holding(a, 1, frozenset({t0, t1}), frozenset()), Holding(b, 2, frozenset(), frozenset({t0, t1}))])
    assert told(both) == ["b waits for t-0 and 1 more partition; a has not said yet that it gave it up"]


def test_what_is_wrong_is_said():
    members = handed_over()
    present = Present("Reconciling", waits=waits(holdings(members)))
    history = from_events(members.world.events)
    (finding,) = diagnose(history, present, members.world.now_ms + 20_000)
    assert (finding.kind, finding.severity) == ("handing over", PROBLEM)
    assert "b waits for orders-" in finding.text and "a has not said yet that it gave it up" in finding.text


def test_an_assignor_that_fails_is_a_finding_until_it_does_not():
    members = Members()
    members.world.config.assignors = {**members.world.config.assignors, "fails": Fails()}
    members.join("a")
    members.join("b", server_assignor="fails")
    members.join("c", server_assignor="fails")
    history = from_events(members.world.events)
    assert history.target_failure is not None and history.target_failure.kind is CauseKind.ASSIGNOR_FAILED
    found = {f.kind: f for f in diagnose(history, Present("Assigning"), members.world.now_ms)}
    assert "fails: KeyError" in found["no target"].text
    members.leave("b")
    members.leave("c")
    members.beat("a")
    assert from_events(members.world.events).target_failure is None


def records(members):
    """What its log has, as the history reads it."""
    for number, (key, value) in enumerate(members.world.log[0]):
        yield 1_000 * number, modern_row(key, value)


def test_the_same_from_records_alone():
    members = finished()
    names = {to_base64(members.world.topics.topics["orders"][0]): "orders"}
    past = ModernPast(Lanes(), Lanes())
    for at_ms, row in records(members):
        data = None if row.get("data") is None else json.loads(row["data"])
        past.read(at_ms, row["kind"], row.get("member_id"), data, names)
    history = past.history
    assert history.source is Source.EPOCHS
    assert [[t.kind for t in one.triggers] for one in history.rebalances] == [
        [CauseKind.JOINED],
        [CauseKind.JOINED],
        [CauseKind.GONE],
    ]
    assert not any(one.open for one in history.rebalances)
    (only,) = past.holdings()
    assert only.who.member_id == "a" and only.held == only.target == {("orders", 0), ("orders", 1)}


def test_the_console_tells_each_epoch_once():
    """Events and records of one group: the events are exact, the records say who held what."""
    members = finished()
    past = GroupPast("g")
    for at_ms, row in records(members):
        data = None if row.get("data") is None else json.loads(row["data"])
        past.modern(at_ms + members.world.now_ms, row["kind"], row.get("member_id"), data, {})
    for event in members.world.events:
        past.event(event)
    assert past.type == "consumer"
    assert [one.triggers[0].kind for one in past.history().rebalances] == [
        CauseKind.JOINED,
        CauseKind.JOINED,
        CauseKind.LEFT,
    ]


def rows(members):
    """As the history's table of records has them."""
    return [
        {"at_ms": at_ms, "record_offset": at_ms, "data": None, "member_id": None} | row
        for at_ms, row in records(members)
    ]


def test_history_tells_epochs_lives_and_hand_overs_from_records():
    told = rows(finished())
    epochs = stories.rebalances_of_records(told)
    assert [(one["causes"][0]["kind"], one["members"], one["source"]) for one in epochs] == [
        ("joined", 1, "epochs"),
        ("joined", 2, "epochs"),
        ("gone", 1, "epochs"),
    ]
    lives = {life["member_id"]: life for life in stories.lives_of_records(told)}
    assert (lives["a"]["ended"], lives["b"]["ended"]) == (None, "gone") and lives["b"]["client_id"] == "b"
    assert lives["a"]["first_generation"] < lives["b"]["first_generation"] <= lives["b"]["last_generation"]
    moves = [one for one in stories.handovers_of_records(told) if one["to_member"] == "b"]
    (move,) = moves
    assert move["from_member"] == "a" and move["targeted_ms"] < move["released_ms"] <= move["assigned_ms"]
    assert move["waited_ms"] == move["assigned_ms"] - move["targeted_ms"]


def test_what_is_waited_for_still_is_a_hand_over_without_an_end():
    (move,) = [one for one in stories.handovers_of_records(rows(handed_over())) if one["assigned_ms"] is None]
    assert (move["from_member"], move["to_member"], move["released_ms"]) == ("a", "b", None)


def test_resolved_expressions_are_told():
    pytest.importorskip("re2")
    members = Members()
    members.join("a", subscribed_topic_names=None, subscribed_topic_regex="or.*")
    members.world.advance(1)
    (told,) = stories.expressions_of_records(rows(members))
    assert (told["regex"], told["topics"]) == ("or.*", ["orders"])
