"""Made-up pasts of a group, from each of the three sources, as lists of rebalances with their causes."""

from kohort.coordinator.rebalances import (
    Generation,
    Kind,
    Sample,
    Source,
    StoredMember,
    Who,
    from_events,
    from_generations,
    from_samples,
)


def event(kind, at_ms, generation=1, **fields):
    return {"type": kind, "at_ms": at_ms, "group_id": "g", "generation": generation, **fields}


def member(kind, name, at_ms, **fields):
    return event(kind, at_ms, member_id=f"{name}-id", client_id=name, client_host="/10.0.0.1", **fields)


def started(at_ms, reason="", members=1):
    return event("RebalanceStarted", at_ms, reason=reason, members=members, rebalance_timeout_ms=60_000)


def completed(at_ms, generation, members, duration_ms, protocol="range"):
    return [
        event(
            "GenerationStarted", at_ms - 1, generation, members=members, protocol=protocol, duration_ms=duration_ms - 1
        ),
        event("RebalanceCompleted", at_ms, generation, members=members, protocol=protocol, duration_ms=duration_ms),
    ]


def kinds(rebalance):
    return [(cause.kind, cause.who.client_id if cause.who else None) for cause in rebalance.causes]


def test_the_first_members_arrive():
    history = from_events(
        [
            member("MemberJoined", "a", 1000),
            started(1000),
            member("MemberJoined", "b", 1500),
            *completed(4000, 1, 2, 3000),
        ]
    )
    (rebalance,) = history.rebalances
    assert history.source is Source.EVENTS and (history.first_ms, history.last_ms) == (1000, 4000)
    assert kinds(rebalance) == [(Kind.JOINED, "a"), (Kind.JOINED, "b")]
    assert (rebalance.generation, rebalance.members, rebalance.standstill_ms) == (1, 2, 3000)
    assert (rebalance.last_back.client_id, rebalance.last_back_after_ms) == ("b", 500)


def test_a_member_times_out_and_another_is_slow_to_rejoin():
    history = from_events(
        [
            member("MemberJoined", "a", 0),
            started(0),
            *completed(10, 1, 3, 10),
            member("MemberEvicted", "c", 50_000, reason="no heartbeat for 45000 ms"),
            started(50_000, "member c-id: no heartbeat for 45000 ms"),
            member("MemberRejoined", "a", 50_100, reason="member a-id rejoins in PreparingRebalance"),
            member("MemberRejoined", "b", 59_000, reason="member b-id rejoins in PreparingRebalance"),
            *completed(59_010, 2, 2, 9_010),
        ]
    )
    last = history.rebalances[-1]
    assert kinds(last) == [(Kind.TIMED_OUT, "c")]
    assert last.causes[0].after_ms == 45_000 and "no heartbeat for 45 s" in last.causes[0].text
    assert (last.standstill_ms, last.last_back.client_id, last.last_back_after_ms) == (9_010, "b", 9_000)


def test_two_starts_without_an_end_are_one_rebalance():
    history = from_events(
        [
            member("MemberJoined", "a", 0),
            started(0),
            event("GenerationStarted", 5),
            member("MemberJoined", "b", 10),
            started(10),
            event("RebalanceFailed", 15, error="NOT_LEADER_OR_FOLLOWER", duration_ms=15),
            started(15),
            *completed(20, 3, 2, 20),
        ]
    )
    (rebalance,) = history.rebalances
    assert kinds(rebalance) == [(Kind.JOINED, "a"), (Kind.JOINED, "b"), (Kind.STORE_FAILED, None)]
    assert rebalance.standstill_ms == 20


def test_how_members_leave():
    def leaving(reason, kind="MemberLeft"):
        return from_events([member(kind, "a", 5, reason=reason), started(5), *completed(9, 2, 1, 4)])

    assert kinds(leaving("the consumer is being closed").rebalances[0]) == [(Kind.LEFT, "a")]
    assert kinds(leaving("consumer poll timeout has expired.").rebalances[0]) == [(Kind.POLLED_LATE, "a")]
    assert kinds(leaving("removed by an administrator").rebalances[0]) == [(Kind.REMOVED, "a")]
    assert kinds(leaving("did not sync before the rebalance timeout", "MemberEvicted").rebalances[0]) == [
        (Kind.DID_NOT_SYNC, "a")
    ]
    late = from_events(
        [
            member("MemberJoined", "b", 5),
            started(5),
            member("MemberEvicted", "a", 60_005, reason="did not rejoin before the rebalance timeout"),
            *completed(60_006, 2, 1, 60_001),
        ]
    )
    assert kinds(late.rebalances[0]) == [(Kind.JOINED, "b"), (Kind.DID_NOT_REJOIN, "a")]
    assert late.rebalances[0].causes[1].after_ms == 60_000


def test_rejoining_for_other_reasons():
    def rejoining(reason):
        return kinds(from_events([member("MemberRejoined", "a", 5, reason=reason), started(5)]).rebalances[0])

    assert rejoining("leader a-id rejoins in Stable; client reason: cached metadata has changed") == [
        (Kind.LEADER, "a")
    ]
    assert rejoining("member a-id changed its metadata in Stable; client reason: not provided") == [
        (Kind.METADATA, "a")
    ]
    handed = "member a-id changed its metadata in Stable; client reason: need to revoke partitions and re-join"
    assert rejoining(handed) == [(Kind.HAND_OVER, "a")]


def test_a_rebalance_under_way_names_who_is_missing():
    history = from_events(
        [
            member("MemberJoined", "a", 0),
            member("MemberJoined", "b", 0),
            started(0),
            *completed(10, 1, 2, 10),
            member("MemberJoined", "c", 100),
            started(100),
            member("MemberRejoined", "a", 200, reason="member a-id rejoins in PreparingRebalance"),
        ]
    )
    last = history.rebalances[-1]
    assert last.open and [who.client_id for who in last.waiting_for] == ["b"]


def test_the_last_member_leaves_and_the_broker_restarts():
    history = from_events(
        [
            member("MemberLeft", "a", 5, reason="not provided"),
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
            member("CommitRefused", "a", 1, error="ILLEGAL_GENERATION", reason="generation 3 in Stable"),
            member("JoinRefused", "b", 2, error="GROUP_MAX_SIZE_REACHED"),
            member("MemberFenced", "c", 3, operation="Heartbeat", instance_id="c-1"),
        ]
    )
    assert [(r.what, r.who.client_id, r.error) for r in history.refusals] == [
        ("commit", "a", "ILLEGAL_GENERATION"),
        ("join", "b", "GROUP_MAX_SIZE_REACHED"),
        ("fenced", "c", "FENCED_INSTANCE_ID"),
    ]


def stored(name, topics=("t",), partitions=()):
    who = Who(f"{name}-id", None, name, "/h")
    return StoredMember(who, 45_000, 300_000, b"", topics, frozenset(("t", p) for p in partitions))


def test_generations_tell_who_came_and_went():
    history = from_generations(
        [
            Generation(5, 0, "", "", ()),
            Generation(10, 1, "range", "a-id", (stored("a", partitions=(0, 1)),)),
            Generation(20, 2, "range", "a-id", (stored("a", partitions=(0,)), stored("b", partitions=(1,)))),
            Generation(30, 3, "range", "b-id", (stored("b", partitions=(0, 1)),)),
            Generation(40, 4, "range", "b-id", (stored("b", ("t", "u"), (0, 1)),)),
            Generation(50, 5, "range", "b-id", (stored("b", ("t", "u"), (0, 1, 2)),)),
            Generation(60, 6, "", "", ()),
        ]
    )
    assert [kinds(r) for r in history.rebalances] == [
        [(Kind.JOINED, "a")],
        [(Kind.JOINED, "b")],
        [(Kind.GONE, "a")],
        [(Kind.METADATA, "b")],
        [(Kind.OTHER, None)],
        [(Kind.GONE, "b")],
    ]
    assert "session timeout of 45 s" in history.rebalances[2].causes[0].text
    assert "1 partitions came in" in history.rebalances[4].causes[0].text
    assert all(r.standstill_ms is None for r in history.rebalances)


def test_a_group_that_began_anew_has_no_predecessor():
    history = from_generations(
        [Generation(10, 9, "range", "a-id", (stored("a"),)), Generation(20, 1, "range", "b-id", (stored("b"),))]
    )
    assert [kinds(r) for r in history.rebalances] == [[(Kind.OTHER, None)], [(Kind.OTHER, None)]]
    assert "the group began" in history.rebalances[1].causes[0].text


def test_looks_at_a_group_show_changes_between_them():
    a, b = Who("a-id", None, "a", "h"), Who("b-id", None, "b", "h")
    both = {"a-id": frozenset({("t", 0)}), "b-id": frozenset({("t", 1)})}
    history = from_samples(
        [
            Sample(0, "Stable", (a,), {"a-id": frozenset({("t", 0), ("t", 1)})}, "range"),
            Sample(250, "PreparingRebalance", (a, b), {}, ""),
            Sample(500, "CompletingRebalance", (a, b), {}, ""),
            Sample(750, "Stable", (a, b), both, "range"),
            Sample(1000, "Stable", (a, b), both, "range"),
        ]
    )
    (rebalance,) = history.rebalances
    assert kinds(rebalance) == [(Kind.JOINED, "b")]
    assert (rebalance.standstill_ms, rebalance.members, rebalance.protocol) == (500, 2, "range")
    assert from_samples([Sample(0, "Stable", (a,), {}, "range")] * 3).rebalances == []
