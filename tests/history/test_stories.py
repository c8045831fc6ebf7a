"""One group's records become rows of rebalances and of members: of a coordinator's own events, of generations."""

from __future__ import annotations

from typing import Any

from kohort.coordinator.causes import Cause, CauseKind
from kohort.coordinator.events import (
    GenerationStarted,
    GroupEvent,
    MemberEvicted,
    MemberIdAssigned,
    MemberJoined,
    MemberLeft,
    MemberRejoined,
    MemberReplaced,
    RebalanceCompleted,
    RebalanceStarted,
)
from kohort.history import stories
from kohort.history.decoding import EVENT_FIELDS


def rows(*happened: GroupEvent) -> list[dict[str, Any]]:
    """As Spark hands them over: every column, in no order."""
    nothing = dict.fromkeys(EVENT_FIELDS)
    made = [nothing | event.to_dict() | {"record_offset": number} for number, event in enumerate(happened)]
    return made[::-1]


def at(at_ms: int, member: str = "", generation: int = 1) -> dict[str, Any]:
    common = {"at_ms": at_ms, "group_id": "g", "generation": generation}
    return common | ({"member_id": f"{member}-1", "client_id": member} if member else {})


def started(at_ms: int) -> RebalanceStarted:
    return RebalanceStarted(**at(at_ms), members=1, rebalance_timeout_ms=60_000)


def completed(at_ms: int, generation: int, members: int, took_ms: int) -> RebalanceCompleted:
    made = {"protocol": "range", "leader_id": "one-1", "members": members, "duration_ms": took_ms}
    return RebalanceCompleted(**at(at_ms, generation=generation), **made)


STORY = rows(
    MemberIdAssigned(**at(990, "one", 0)),
    MemberJoined(**at(1_000, "one", 0)),
    started(1_000),
    completed(1_200, 1, 1, 200),
    MemberJoined(**at(5_000, "two")),
    started(5_000),
    MemberRejoined(**at(5_800, "one")),
    GenerationStarted(**at(5_850, generation=2), protocol="range", leader_id="one-1", members=2, duration_ms=850),
    completed(5_900, 2, 2, 900),
    MemberEvicted(**at(20_000, "two", 2), cause=Cause(CauseKind.TIMED_OUT, timeout_ms=6_000)),
    started(20_000),
    MemberRejoined(**at(20_300, "one", 2)),
    completed(20_400, 3, 1, 400),
    MemberEvicted(**at(21_000, "ghost", 3), cause=Cause(CauseKind.NEVER_CAME_BACK)),
)


def test_rebalances_of_events_have_causes_and_durations():
    first, second, third = stories.rebalances_of_events(STORY)
    assert (first["generation"], first["members"], first["duration_ms"]) == (1, 1, 200)
    assert (second["started_ms"], second["completed_ms"], second["last_back"]) == (5_000, 5_900, "one")
    assert [(cause["kind"], cause["client_id"]) for cause in second["causes"]] == [("joined", "two")]
    (cause,) = third["causes"]
    assert (cause["kind"], cause["client_id"], cause["after_ms"]) == ("timed_out", "two", 6_000)
    assert {rebalance["source"] for rebalance in (first, second, third)} == {"events"}


def test_lives_end_as_the_coordinator_saw_it():
    left = MemberLeft(**at(30_000, "one", 3), cause=Cause(CauseKind.LEFT, said="the consumer is being closed"))
    newer = {**at(31_000, "static", 3), "instance_id": "s"}
    replaced = MemberReplaced(**{**newer, "member_id": "static-2"}, replaced_member_id="static-1")
    later = [row | {"record_offset": 100 + row["record_offset"]} for row in rows(left, replaced)]
    lives = {life["member_id"]: life for life in stories.lives_of_events(STORY + later)}
    assert set(lives) == {"one-1", "two-1", "static-1", "static-2"}, "who never came back with its id was no member"
    one, two = lives["one-1"], lives["two-1"]
    assert (one["joined_ms"], one["ended_ms"], one["ended"], one["rejoins"]) == (1_000, 30_000, "left", 2)
    assert (two["joined_ms"], two["ended_ms"], two["ended"]) == (5_000, 20_000, "timed_out")
    assert two["reason"] == "timed out: no heartbeat for 6 s"
    assert (lives["static-1"]["joined_ms"], lives["static-1"]["ended"]) == (None, "replaced")
    assert (lives["static-2"]["joined_ms"], lives["static-2"]["ended"]) == (31_000, None)


def generation(at_ms: int, number: int, *members: str) -> dict[str, Any]:
    def member(name: str) -> dict[str, Any]:
        who = {"member_id": f"{name}-1", "instance_id": None, "client_id": name, "client_host": "/h"}
        times = {"session_timeout_ms": 6_000, "rebalance_timeout_ms": 60_000}
        return who | times | {"topics": ["t"], "assignment": [{"topic": "t", "partitions": [0]}]}

    made = {"at_ms": at_ms, "generation": number, "protocol": "range", "leader_id": "one-1", "record_offset": at_ms}
    return made | {"members": [member(name) for name in members]}


def test_of_generations_what_can_be_known():
    told = [generation(3_000, 3, "one"), generation(1_000, 1, "one"), generation(2_000, 2, "one", "two")]
    rebalances = stories.rebalances_of_generations(told)
    kinds = [[(cause["kind"], cause["client_id"]) for cause in one["causes"]] for one in rebalances]
    assert kinds == [[("began", None)], [("joined", "two")], [("gone", "two")]]
    assert [one["duration_ms"] for one in rebalances] == [None] * 3
    one, two = stories.lives_of_generations(told)
    assert (one["joined_ms"], one["ended"], one["rejoins"], one["last_generation"]) == (1_000, None, 2, 3)
    assert (two["joined_ms"], two["ended_ms"], two["ended"]) == (2_000, 3_000, "gone")
