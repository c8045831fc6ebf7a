"""Made-up pasts of a group, told by events of its coordinator, as lists of rebalances with their causes."""

from kohort.coordinator import events
from kohort.coordinator.causes import Cause, CauseKind, Who
from kohort.insight.rebalances import Source, from_events
from kohort.insight.telling import tell


def event(kind, at_ms, generation=1, **fields):
    return getattr(events, kind)(at_ms=at_ms, group_id="g", generation=generation, **fields)


def who(name):
    return Who(f"{name}-id", None, name, "/10.0.0.1")


def member(kind, name, at_ms, cause=None, **fields):
    """With a cause of this kind, about this member."""
    if isinstance(cause, CauseKind):
        cause = Cause(cause, (who(name),))
    return event(kind, at_ms, **who(name)._asdict() | fields, cause=cause)


def joined(name, at_ms):
    return member("MemberJoined", name, at_ms, CauseKind.JOINED)


def rejoined(name, at_ms, kind=CauseKind.REJOINED):
    return member("MemberRejoined", name, at_ms, kind)


def started(at_ms, cause=None):
    return event("RebalanceStarted", at_ms, members=1, rebalance_timeout_ms=60_000, cause=cause)


def completed(at_ms, generation, members, duration_ms, protocol="range"):
    told = {"members": members, "protocol": protocol, "leader_id": "a-id"}
    return [
        event("GenerationStarted", at_ms - 1, generation, duration_ms=duration_ms - 1, **told),
        event("RebalanceCompleted", at_ms, generation, duration_ms=duration_ms, **told),
    ]


def kinds(rebalance):
    return [(trigger.kind, trigger.who.client_id if trigger.who else None) for trigger in rebalance.triggers]


def test_the_first_members_arrive():
    history = from_events(
        [
            joined("a", 1000),
            started(1000),
            joined("b", 1500),
            *completed(4000, 1, 2, 3000),
        ]
    )
    (rebalance,) = history.rebalances
    assert history.source is Source.EVENTS and (history.first_ms, history.last_ms) == (1000, 4000)
    assert kinds(rebalance) == [(CauseKind.JOINED, "a"), (CauseKind.JOINED, "b")]
    assert (rebalance.generation, rebalance.members, rebalance.standstill_ms) == (1, 2, 3000)
    assert (rebalance.last_back.client_id, rebalance.last_back_after_ms) == ("b", 500)


def test_where_the_time_of_a_first_join_went():
    """The initial delay began again as `b` arrived; then the leader assigned for a second."""
    first = event("RebalanceStarted", 1000, members=1, rebalance_timeout_ms=60_000, initial_delay_ms=3000)
    told = {"members": 2, "protocol": "range", "leader_id": "a-id"}
    generation = event("GenerationStarted", 7000, 1, duration_ms=6000, **told)
    done = event("RebalanceCompleted", 8000, 1, duration_ms=7000, **told)
    (rebalance,) = from_events([joined("a", 1000), first, joined("b", 3500), generation, done]).rebalances
    assert (rebalance.initial_delay_ms, rebalance.joined_after_ms, rebalance.standstill_ms) == (3000, 6000, 7000)
    assert tell(rebalance, 9000).endswith(
        "the group stood still for 7 s: 6 s waiting for more members (group.initial.rebalance.delay.ms is 3 s, and "
        "began again while members came; b (10.0.0.1) came last, after 2.5 s), 1 s for the assignment."
    )


def test_whoever_joins_alone_waited_for_nobody_who_came():
    first = event("RebalanceStarted", 1000, members=1, rebalance_timeout_ms=60_000, initial_delay_ms=3000)
    told = {"members": 1, "protocol": "range", "leader_id": "a-id"}
    generation = event("GenerationStarted", 4005, 1, duration_ms=3005, **told)
    done = event("RebalanceCompleted", 4010, 1, duration_ms=3010, **told)
    (rebalance,) = from_events([joined("a", 1000), first, generation, done]).rebalances
    assert tell(rebalance, 9000).endswith(
        "waiting for more members (group.initial.rebalance.delay.ms is 3 s), 5 ms for the assignment."
    )


def test_a_later_rebalance_has_no_initial_delay():
    history = from_events([joined("a", 0), started(0), rejoined("a", 4000), *completed(5000, 2, 1, 5000)])
    assert history.rebalances[0].initial_delay_ms is None
    assert tell(history.rebalances[0], 9000).endswith("stood still for 5 s; a (10.0.0.1) came back last, after 4 s.")


def test_a_member_times_out_and_another_is_slow_to_rejoin():
    silent = Cause(CauseKind.TIMED_OUT, (who("c"),), timeout_ms=45_000)
    history = from_events(
        [
            joined("a", 0),
            started(0),
            *completed(10, 1, 3, 10),
            member("MemberEvicted", "c", 50_000, silent),
            started(50_000, silent),
            rejoined("a", 50_100),
            rejoined("b", 59_000),
            *completed(59_010, 2, 2, 9_010),
        ]
    )
    last = history.rebalances[-1]
    assert kinds(last) == [(CauseKind.TIMED_OUT, "c")]
    assert last.triggers[0].cause == silent and "no heartbeat for 45 s" in last.triggers[0].text
    assert (last.standstill_ms, last.last_back.client_id, last.last_back_after_ms) == (9_010, "b", 9_000)


def test_two_starts_without_an_end_are_one_rebalance():
    history = from_events(
        [
            joined("a", 0),
            started(0),
            event("GenerationStarted", 5, protocol="range", leader_id="a-id", members=1, duration_ms=5),
            joined("b", 10),
            started(10),
            event("RebalanceFailed", 15, error="NOT_LEADER_OR_FOLLOWER", duration_ms=15),
            started(15),
            *completed(20, 3, 2, 20),
        ]
    )
    (rebalance,) = history.rebalances
    assert kinds(rebalance) == [(CauseKind.JOINED, "a"), (CauseKind.JOINED, "b"), (CauseKind.STORE_FAILED, None)]
    assert rebalance.standstill_ms == 20


def test_the_coordinator_says_why_and_others_of_the_same_moment_follow():
    three = Cause(CauseKind.DID_NOT_SYNC, (who("a"), who("b")), timeout_ms=60_000)
    put_out = [member("MemberEvicted", name, 5, three._replace(members=(who(name),))) for name in "ab"]
    history = from_events([joined("c", 4), rejoined("d", 5, CauseKind.METADATA_CHANGED), *put_out, started(5, three)])
    assert kinds(history.rebalances[0]) == [
        (CauseKind.DID_NOT_SYNC, "a"),
        (CauseKind.DID_NOT_SYNC, "b"),
        (CauseKind.METADATA_CHANGED, "d"),
    ]
    alone = from_events([started(5, three)])
    assert kinds(alone.rebalances[0]) == [(CauseKind.DID_NOT_SYNC, "a"), (CauseKind.DID_NOT_SYNC, "b")]
    over = from_events([joined("c", 5), started(5, Cause(CauseKind.OVER_MAX_SIZE, size=3, limit=2))])
    assert kinds(over.rebalances[0]) == [(CauseKind.OVER_MAX_SIZE, None), (CauseKind.JOINED, "c")]


def test_how_members_leave():
    def leaving(said, kind=CauseKind.LEFT):
        cause = Cause(kind, (who("a"),), said=said)
        (trigger,) = from_events([member("MemberLeft", "a", 5, cause), started(5, cause)]).rebalances[0].triggers
        return trigger.kind, trigger.text

    assert leaving("the consumer is being closed") == (CauseKind.LEFT, "left: the consumer is being closed")
    late = "left, since its application did not poll within max.poll.interval.ms"
    assert leaving("consumer poll timeout has expired.") == (CauseKind.LEFT, late)
    assert leaving("no heartbeat for 5 ms; did not sync") == (
        CauseKind.LEFT,
        "left: no heartbeat for 5 ms; did not sync",
    )
    assert leaving("", CauseKind.REMOVED) == (CauseKind.REMOVED, "was removed by an administrator")
    out = Cause(CauseKind.DID_NOT_REJOIN, (who("a"),), timeout_ms=60_000)
    slow = from_events(
        [joined("b", 5), started(5), member("MemberEvicted", "a", 60_005, out), *completed(60_006, 2, 1, 60_001)]
    )
    assert kinds(slow.rebalances[0]) == [(CauseKind.JOINED, "b"), (CauseKind.DID_NOT_REJOIN, "a")]
    assert slow.rebalances[0].triggers[1].text == "did not rejoin within 60 s and was put out"


def test_who_never_came_back_with_its_id_was_no_member():
    ghost = member("MemberEvicted", "a", 5, CauseKind.NEVER_CAME_BACK)
    assert kinds(from_events([ghost, started(5, Cause(CauseKind.MEMBERS_REJOINED))]).rebalances[0]) == [
        (CauseKind.MEMBERS_REJOINED, None)
    ]


def test_rejoining_for_other_reasons():
    for kind in (CauseKind.LEADER_REJOINED, CauseKind.METADATA_CHANGED, CauseKind.HANDED_OVER):
        assert kinds(from_events([rejoined("a", 5, kind), started(5)]).rebalances[0]) == [(kind, "a")]


def test_events_of_other_versions_are_told_by_their_type():
    said = Cause(CauseKind.UNKNOWN, raw="no heartbeat for 5 ms")
    history = from_events([member("MemberJoined", "a", 5, said), started(5, said), *completed(9, 2, 1, 4)])
    assert kinds(history.rebalances[0]) == [(CauseKind.JOINED, "a")]
    history = from_events([member("MemberEvicted", "a", 5, said), started(5, said)])
    assert kinds(history.rebalances[0]) == [(CauseKind.UNKNOWN, None)]
    assert "no heartbeat for 5 ms" in history.rebalances[0].triggers[0].text


def test_a_rebalance_under_way_names_who_is_missing():
    history = from_events(
        [
            joined("a", 0),
            joined("b", 0),
            started(0),
            *completed(10, 1, 2, 10),
            joined("c", 100),
            started(100),
            rejoined("a", 200),
        ]
    )
    last = history.rebalances[-1]
    assert last.open and [who.client_id for who in last.waiting_for] == ["b"]


def test_the_last_member_leaves_and_the_broker_restarts():
    history = from_events(
        [
            member("MemberLeft", "a", 5, CauseKind.LEFT),
            started(5),
            event("StateChanged", 6, 2, from_state="PreparingRebalance", to_state="Empty"),
            event("GroupLoaded", 90, 2, state="Empty", members=0, offsets=4),
        ]
    )
    (rebalance,) = history.rebalances
    assert (rebalance.members, rebalance.standstill_ms, rebalance.open, history.loads) == (0, None, False, 1)


def test_refusals_are_kept():
    history = from_events(
        [
            member("CommitRefused", "a", 1, CauseKind.OTHER_GENERATION, error="ILLEGAL_GENERATION"),
            member("JoinRefused", "b", 2, error="GROUP_MAX_SIZE_REACHED"),
            member("MemberFenced", "c", 3, operation="Heartbeat", instance_id="c-1"),
        ]
    )
    assert [(r.what, r.who.client_id, r.error) for r in history.refusals] == [
        ("commit", "a", "ILLEGAL_GENERATION"),
        ("join", "b", "GROUP_MAX_SIZE_REACHED"),
        ("fenced", "c", "FENCED_INSTANCE_ID"),
    ]
