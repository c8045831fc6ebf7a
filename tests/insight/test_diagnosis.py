"""Made-up pasts and presents of a group, and what is said to be wrong with it."""

import pytest

from kohort.coordinator.causes import Cause, CauseKind, Who
from kohort.insight.diagnosis import NOTE, PROBLEM, WARNING, Present, diagnose
from kohort.insight.rebalances import NOBODY_TOLD, History, Rebalance, Refusal, Source, Trigger

NOW = 10_000_000
QUIET = Present("Stable", "range")


def who(name):
    return Who(f"{name}-id", None, name, "/10.0.0.1")


def rebalance(ago_s, *causes, took_s=1.0, members=2, **fields):
    at_ms = NOW - int(ago_s * 1000)
    made = [Trigger(at_ms, cause) for cause in causes]
    took_ms = int(took_s * 1000)
    return Rebalance(at_ms, made, at_ms + took_ms, 1, members, "range", took_ms, 60_000, **fields)


def joined(name):
    return Cause(CauseKind.JOINED, (who(name),))


def left(name):
    return Cause(CauseKind.LEFT, (who(name),))


def late(kind, said=""):
    return Cause(kind, (who("slow"),), timeout_ms=60_000 if kind is CauseKind.DID_NOT_REJOIN else None, said=said)


def silent(name):
    return Cause(CauseKind.TIMED_OUT, (who(name),), timeout_ms=45_000)


def findings(rebalances=(), refusals=(), present=QUIET):
    return diagnose(History(Source.EVENTS, list(rebalances), list(refusals)), present, NOW)


def only(found):
    (finding,) = found
    return finding


def test_an_ordinary_life_is_not_complained_about():
    assert findings() == []
    assert findings([rebalance(900, joined("a")), rebalance(600, joined("b")), rebalance(30, left("b"))]) == []


def test_storm():
    causes = [joined("a"), left("b"), joined("c"), left("d"), joined("e"), left("f")]
    found = only(findings([rebalance(300 - 10 * i, cause) for i, cause in enumerate(causes)]))
    assert (found.kind, found.severity) == ("storm", PROBLEM)
    assert "6 rebalances within 50 s" in found.text and "cooperative-sticky" in found.advice
    calm = [rebalance(3000 - 400 * i, cause) for i, cause in enumerate(causes)]
    assert findings(calm) == []


def test_a_storm_of_newcomers_only_is_a_start():
    found = only(findings([rebalance(100 - i, joined(f"m{i}")) for i in range(6)]))
    assert (found.kind, found.severity) == ("storm", NOTE)
    assert "group.initial.rebalance.delay.ms" in found.advice


def test_hand_overs_and_empty_groups_are_no_storm():
    handed = [rebalance(100 - i, Cause(CauseKind.HANDED_OVER, (who("a"),))) for i in range(6)]
    emptied = [rebalance(100 - i, left("a" + str(i)), members=0) for i in range(6)]
    assert findings(handed) == [] and findings(emptied) == []


def test_flapping_member():
    steps = [joined("x"), left("x"), joined("x"), left("x"), joined("x"), left("x")]
    found = findings([rebalance(590 - 100 * i, cause) for i, cause in enumerate(steps)])
    flapping = next(f for f in found if f.kind == "flapping member")
    assert flapping.severity == PROBLEM and "x (10.0.0.1) is flapping: in and out 3 times" in flapping.text
    assert "group.instance.id" in flapping.advice


def test_one_client_over_and_over_is_flapping_and_no_start():
    steps = [step for _ in range(5) for step in (rebalance(60, joined("x")), rebalance(50, left("x"), members=0))]
    assert only(findings(steps)).kind == "flapping member"


@pytest.mark.parametrize(
    ("cause", "limit"),
    [
        (late(CauseKind.LEFT, "consumer poll timeout has expired."), ""),
        (late(CauseKind.DID_NOT_REJOIN), " of 60 s"),
    ],
)
def test_poll_interval_too_short(cause, limit):
    found = only(findings([rebalance(60, cause)]))
    assert (found.kind, found.severity) == ("poll interval too short", PROBLEM)
    assert "slow (10.0.0.1)" in found.text and f"once (max.poll.interval.ms{limit})" in found.text
    assert "max.poll.records" in found.advice


def test_what_a_member_says_is_taken_at_its_very_words():
    assert findings([rebalance(60, late(CauseKind.LEFT, "no consumer poll timeout has expired here"))]) == []
    assert findings([rebalance(60, late(CauseKind.REMOVED, "consumer poll timeout has expired."))]) == []


def test_a_crash_and_a_pause_are_told_apart():
    crash = only(findings([rebalance(60, silent("a"))]))
    assert "crashed or was cut off: the group noticed after 45 s" in crash.text and "Close consumers" in crash.advice
    pause = only(findings([rebalance(60, silent("a")), rebalance(50, joined("a"))]))
    assert "went silent for 45 s and came back" in pause.text and "session.timeout.ms" in pause.advice


def test_commits_failing():
    refused = [Refusal(NOW - i, "commit", who("late"), "ILLEGAL_GENERATION", NOBODY_TOLD) for i in range(3)]
    found = only(findings(refusals=refused))
    assert (found.kind, found.severity) == ("commits failing", PROBLEM)
    assert "3 were refused (ILLEGAL_GENERATION 3x), from late (10.0.0.1)" in found.text
    assert only(findings(refusals=refused[:1])).severity == WARNING
    assert findings(refusals=[refused[0]._replace(at_ms=NOW - 4_000_000)]) == []


def test_joins_refused_and_instances_fenced():
    refused = [
        Refusal(NOW, "join", who("other"), "INCONSISTENT_GROUP_PROTOCOL", NOBODY_TOLD),
        Refusal(NOW, "fenced", Who("m", "worker-1", "c", ""), "FENCED_INSTANCE_ID", NOBODY_TOLD),
    ]
    join, fenced = findings(refusals=refused)
    assert join.kind == "joins refused" and "one assignor in common" in join.advice
    assert fenced.kind == "fenced member" and "worker-1" in fenced.text


def test_long_standstill_names_the_slowest():
    slow = rebalance(100, joined("a"), took_s=42, last_back=who("sloth"), last_back_after_ms=41_000)
    found = only(findings([slow]))
    assert found.kind == "long standstill"
    assert "stood still for 42 s in one rebalance; the last to rejoin was sloth (10.0.0.1) after 41 s" in found.text


def test_a_rebalance_that_does_not_end():
    stuck = Rebalance(NOW - 30_000, [], rebalance_timeout_ms=60_000, waiting_for=[who("asleep")])
    found = only(findings([stuck]))
    assert (found.kind, found.severity) == ("rebalancing", PROBLEM)
    assert "waits for asleep (10.0.0.1)" in found.text
    just_begun = Rebalance(NOW - 500, [], rebalance_timeout_ms=60_000)
    assert only(findings([just_begun])).severity == NOTE


def members(**assigned):
    return {
        "members": {name: who(name) for name in assigned},
        "subscriptions": dict.fromkeys(assigned, frozenset({"t"})),
        "assigned": assigned,
    }


def test_skew():
    found = only(findings(present=Present("Stable", "range", **members(a=8, b=2))))
    assert found.kind == "skew" and "a (10.0.0.1) has 8 partitions, others as few as 2" in found.text
    assert "cooperative-sticky" in found.advice
    assert findings(present=Present("Stable", "range", **members(a=2, b=1))) == []
    idle = only(findings(present=Present("Stable", "range", **members(a=1, b=0))))
    assert (idle.kind, idle.severity) == ("idle members", NOTE)


def test_lag_on_one_partition_and_nobody_reading():
    lags = {("t", 0): 5_000, ("t", 1): 10}
    held = members(a=1, b=1)
    found = only(findings(present=Present("Stable", "range", **held, lags=lags, owners={("t", 0): "a"})))
    assert found.kind == "lag skew" and "t-0 has 5000 of the 5010 records of lag; it belongs to a" in found.text
    kinds = {f.kind for f in findings(present=Present("Empty", lags={("t", 0): 7}))}
    assert kinds == {"no members"}


def test_the_worst_comes_first():
    found = findings(
        [rebalance(60, silent("a")), rebalance(50, late(CauseKind.LEFT, "consumer poll timeout has expired."))],
        present=Present("Stable", "range", **members(a=1, b=0)),
    )
    assert [f.severity for f in found] == [PROBLEM, WARNING, NOTE]
