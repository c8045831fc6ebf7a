"""What the console knows of groups: bars, bands, moves, lag, verdicts; exact from events, else estimated."""

from itertools import pairwise

import pytest

from kohort.coordinator import events
from kohort.coordinator.causes import Cause, CauseKind, Who
from kohort.insight import views
from kohort.insight.detail import PIXELS, seen_bands
from kohort.insight.generations import GenerationMember, StoredGeneration
from kohort.insight.lag_verdicts import CommitPoint, LagVerdict, lag_verdict
from kohort.insight.lanes import OPEN, Lanes, Moves
from kohort.insight.ledger import Ledger
from kohort.insight.log_ends import LogEnds
from kohort.insight.rebalances import Rebalance
from kohort.insight.series import MOST_POINTS, UNKNOWN, Series

MINUTE = 60_000


def who(name, member_id=None):
    return Who(member_id or f"{name}-id", None, name, "/10.0.0.1")


def parts(*numbers, topic="orders"):
    return frozenset((topic, number) for number in numbers)


def generation(at_ms, number, protocol="range", **held):
    members = tuple(GenerationMember(who(name), 10_000, 60_000, ("orders",), parts(*ps)) for name, ps in held.items())
    return StoredGeneration(at_ms, number, protocol, "a-id", members)


def event(kind, at_ms, generation=1, **fields):
    return getattr(events, kind)(at_ms=at_ms, group_id="g", generation=generation, **fields)


def rebalance(ledger, start, end, number, name, kind=CauseKind.JOINED, **held):
    type_ = "MemberJoined" if kind is CauseKind.JOINED else "MemberEvicted"
    cause = Cause(kind, (who(name),), timeout_ms=None if kind is CauseKind.JOINED else 10_000)
    ledger.event(event(type_, start, number - 1, **who(name)._asdict(), cause=cause))
    ledger.event(event("RebalanceStarted", start, number - 1, members=1, rebalance_timeout_ms=60_000, cause=cause))
    told = {"protocol": "range", "leader_id": "a-id", "members": len(held)}
    ledger.generation("g", generation(end - 3, number, **held))  # as stored: a moment before everybody heard of it
    ledger.event(event("RebalanceCompleted", end, number, duration_ms=end - start, **told))


def exact_story():
    ledger = Ledger()
    rebalance(ledger, 1_000, 1_200, 1, "a", a=(0, 1))
    rebalance(ledger, 60_000, 60_500, 2, "b", a=(0,), b=(1,))
    rebalance(ledger, 120_000, 123_000, 3, "b", CauseKind.TIMED_OUT, a=(0, 1))
    return ledger


def shown(ledger, now_ms=200_000, group="g"):
    return views.timeline(ledger.groups[group], ledger.ends, 0, now_ms, now_ms)


def bars(timeline):
    columns = timeline["bars"]
    return sorted(
        (timeline["lanes"][lane]["client_id"], start, end, columns["sets"][number])
        for lane, start, end, number in zip(
            columns["lane"], columns["start"], columns["end"], columns["set"], strict=True
        )
    )


def test_bars_begin_and_end_with_the_events_of_their_generation():
    assert bars(shown(exact_story())) == [
        ("a", 1_200, 60_500, [["orders", [0, 1]]]),
        ("a", 60_500, 123_000, [["orders", [0]]]),
        ("a", 123_000, OPEN, [["orders", [0, 1]]]),
        ("b", 60_500, 123_000, [["orders", [1]]]),
    ]


def test_bands_are_the_rebalances_with_their_causes():
    timeline = shown(exact_story())
    bands = timeline["bands"]
    assert (bands["start"], bands["end"]) == ([1_000, 60_000, 120_000], [1_200, 60_500, 123_000])
    assert bands["standstill"] == [200, 500, 3_000] and all(bands["exact"])
    assert [timeline["texts"][i] for i in bands["kind"]] == ["joined", "joined", "timed_out"]
    assert timeline["texts"][bands["text"][2]] == "b (10.0.0.1) timed out: no heartbeat for 10 s"
    assert bands["moved"] == [0, 1, 1]


def test_a_rebalance_says_who_what_how_long_and_what_to_change():
    ledger = exact_story()
    detail = views.rebalance_detail(ledger.groups["g"], 120_000, 200_000)
    assert "b (10.0.0.1) timed out: no heartbeat for 10 s." in detail["text"]
    assert "stood still for 3 s" in detail["text"]
    assert detail["advice"][0]["kind"] == "session timeout"
    moved = [{"partition": "orders-1", "from": "b (10.0.0.1)", "to": "a (10.0.0.1)"}]
    assert detail["diff"] == {"kept": 1, "moved": moved, "lost": [], "came": []}
    assert views.rebalance_detail(ledger.groups["g"], 77, 200_000) is None


def test_without_events_a_standstill_is_estimated_from_commits_and_marked():
    ledger = Ledger()
    ledger.generation("g", generation(1_000, 1, a=(0, 1)))
    for at_ms in range(2_000, 60_000, 2_000):
        ledger.commit("g", ("orders", 0), at_ms, at_ms)
    ledger.generation("g", generation(61_000, 2, a=(0,), b=(1,)))
    timeline = shown(ledger)
    bands = timeline["bands"]
    assert not timeline["exact"] and not any(bands["exact"])
    assert (bands["start"][1], bands["end"][1], bands["standstill"][1]) == (58_000, 61_000, 3_000)
    assert bands["standstill"][0] is None, "nobody had committed: nothing can be said"
    assert bars(timeline)[0] == ("a", 1_000, 61_000, [["orders", [0, 1]]])


def test_a_long_silence_before_a_generation_is_idleness_and_no_standstill():
    ledger = Ledger()
    ledger.generation("g", generation(1_000, 1, a=(0,)))
    ledger.commit("g", ("orders", 0), 5, 2_000)
    ledger.generation("g", generation(10 * MINUTE, 2, a=(0,), b=(1,)))
    assert shown(ledger, 11 * MINUTE)["bands"]["standstill"] == [None, None]


def test_a_client_that_comes_back_goes_on_in_its_lane():
    lanes = Lanes()
    lanes.assign(1_000, {who("a"): parts(0), who("b", "b-1"): parts(1)})
    lanes.assign(2_000, {who("a"): parts(0, 1)})
    lanes.assign(3_000, {who("a"): parts(0), who("b", "b-2"): parts(1)})
    assert [one.client_id for one in lanes.whos] == ["a", "b"]
    lanes.assign(4_000, {who("a"): parts(0), who("b", "b-2"): parts(1), who("b", "b-3"): parts(2)})
    assert [one.client_id for one in lanes.whos] == ["a", "b", "b"], "two at a time need two lanes"


def test_moves_are_counted_from_one_assignment_to_the_next():
    lanes = Lanes()
    assert lanes.assign(1, {who("a"): parts(0, 1, 2)}) == Moves(came=3)
    assert lanes.assign(2, {who("a"): parts(0, 1), who("b"): parts(2)}) == Moves(moved=1, kept=2)
    assert lanes.assign(3, {who("b"): parts(2)}) == Moves(kept=1, lost=2)


def test_lanes_are_bounded_and_keep_what_is_held():
    lanes = Lanes(most=100)
    lanes.hold(0, who("steady"), parts(9))
    for at_ms in range(1, 1_000):
        lanes.hold(at_ms, who("busy"), parts(at_ms % 2))
    assert len(lanes) <= 101 and lanes.forgotten > 800
    assert lanes.held_at(999)[("orders", 9)] == who("steady")


def test_a_clock_that_jumps_back_makes_no_bar_of_negative_length():
    lanes = Lanes()
    lanes.assign(5_000, {who("a"): parts(0)})
    lanes.assign(1_000, {who("a"): parts(1)})
    assert all(bar.end_ms == OPEN or bar.end_ms >= bar.start_ms for bar in lanes.bars(0, 10_000))


def test_of_more_than_can_be_seen_a_bar_a_pixel_is_sent_and_that_is_said():
    ledger = Ledger()
    for i in range(20_000):
        ledger.generation("g", generation(i * 1_000, i + 1, a=(i % 2,)))
    past, to_ms = ledger.groups["g"], 20_000_000
    sent = views.timeline(past, {}, 0, to_ms, to_ms)
    bars, bands = sent["bars"], sent["bands"]
    pixel_ms = to_ms // PIXELS
    assert bars["left_out_below_ms"] == pixel_ms and 5_900 < len(bars["lane"]) <= PIXELS + 2
    gaps = [later - earlier for earlier, later in pairwise(bars["start"])]
    assert max(gaps) <= 2 * pixel_ms, "no hole is wider than what cannot be seen"
    assert bars["end"][-1] == OPEN, "what is held now is always there"
    assert bands["of"] == 20_000 and len(bands["start"]) <= PIXELS + 2
    close = views.timeline(past, {}, 0, 600_000, to_ms)
    assert len(close["bars"]["lane"]) == len(close["bands"]["start"]) == close["bands"]["of"] == 600
    assert not close["bars"]["left_out_below_ms"]


def test_of_bands_within_a_pixel_the_longest_is_sent():
    within = [(Rebalance(at_ms), at_ms, at_ms + lasts_ms) for at_ms, lasts_ms in ((0, 1), (3, 5), (7, 2), (12, 1))]
    still = (Rebalance(13), 13, OPEN)
    assert [one.started_ms for one in seen_bands([*within, still], 10)] == [3, 12, 13]


@pytest.mark.parametrize(
    ("window", "lag", "now_s", "verdict"),
    [
        ([(s, s * 10, 0) for s in range(10)], 5, 10, LagVerdict.OK),
        ([(s, s * 10, 9) for s in range(10)], 0, 500, LagVerdict.OK),
        ([(s, s * 10, 10 + s) for s in range(10)], 20, 10, LagVerdict.RISING),
        ([(s, 100, 10 + s) for s in range(10)], 20, 10, LagVerdict.STALLED),
        ([(s, s * 10, 20 - s) for s in range(10)], 20, 10, LagVerdict.OK),
        ([(s, s * 10, 5) for s in range(10)], 20, 100, LagVerdict.STOPPED),
        ([*[(s, s * 10, 5) for s in range(9)], (9, 3, 80)], 80, 10, LagVerdict.REWOUND),
        ([], 80, 10, LagVerdict.OK),
    ],
)
def test_verdicts_of_burrow(window, lag, now_s, verdict):
    points = [CommitPoint(at * 1000, offset, then) for at, offset, then in window]
    assert lag_verdict(points, lag, now_s * 1000) is verdict


def test_lag_in_seconds_is_interpolated_between_the_ends_that_were_seen():
    ends = LogEnds()
    for second in range(0, 100, 10):
        ends.seen(second * 1000, second * 5)
    assert ends.behind_ms(200, 90_000) == 50_000
    assert ends.behind_ms(225, 90_000) == 45_000
    assert ends.behind_ms(450, 90_000) == 0
    assert ends.at(45_000) == 225
    ends.seen(100_000, 3)  # created anew
    assert ends.last == 3 and ends.behind_ms(2, 101_000) is None


def test_ends_are_bounded():
    ends = LogEnds()
    for second in range(10_000):
        ends.seen(second * 1000, second)
    assert len(ends._at) <= 100
    assert ends.behind_ms(5_000, 10_000_000) == pytest.approx(5_000_000, abs=200_000)


def test_a_series_keeps_every_commit_and_the_last_lag_in_bounded_memory():
    series = Series(step_ms=1_000)
    for second in range(5_000):
        series.committed(second * 1000)
        series.lag(second * 1000, second)
    points = series.points(0, 10**9)
    assert len(points) <= MOST_POINTS and sum(point.commits for point in points) == 5_000
    assert points[-1].lag == 4_999
    series.committed(0)  # late
    assert sum(point.commits for point in series.points(0, 10**9)) == 5_001
    assert UNKNOWN not in series.lags(10)


def test_groups_are_worst_first_and_only_those_that_changed_are_given_again():
    ledger = exact_story()
    ledger.grew(0, [(("orders", 0), 0)])
    ledger.generation("quiet", generation(1_000, 1, a=(0,)))
    rows = ledger.rows(200_000)
    assert [row["group"] for row in rows] == ["g", "quiet"]
    assert (rows[0]["rebalances_per_hour"], rows[0]["standstill_ms_per_hour"]) == (3, 3_700)
    assert rows[0]["severity"] == "warning" and rows[0]["exact"] and not rows[1]["exact"]
    seen = ledger.revision
    assert ledger.rows(201_000, seen) == []
    ledger.commit("quiet", ("orders", 0), 7, 200_000)
    assert [row["group"] for row in ledger.rows(201_000, seen)] == ["quiet"]


def test_a_group_that_the_cluster_no_longer_names_is_dead():
    ledger = Ledger()
    ledger.listed([("one", "Stable", "classic"), ("two", "Empty", "consumer")])
    ledger.listed([("two", "Empty", "consumer")])
    assert ledger.groups["one"].state == "Dead" and ledger.groups["two"].type == "consumer"


def test_partitions_without_a_reader_are_named():
    ledger = Ledger()
    ledger.grew(1, [(("orders", 0), 10), (("orders", 1), 10)])
    ledger.generation("g", generation(1_000, 1, a=(0,)))
    ledger.commit("g", ("orders", 1), 3, 1_000)
    (row,) = ledger.topics()
    assert row == {"topic": "orders", "partitions": 2, "end": 20, "unread": [1], "groups": ["g"]}
    assert ledger.talkers() == [{"group": "g", "commits": 1, "share": 1.0}]


def test_a_kip_848_group_has_current_and_target():
    ledger, names = Ledger(), {"id": "orders"}
    past = ledger.group("g")

    def member(at_ms, name):
        past.modern(at_ms, "ConsumerGroupMemberMetadata", name, {"client_id": name, "client_host": "/h"}, names)

    def current(at_ms, name, epoch, *numbers):
        assigned = [{"topic_id": "id", "partitions": list(numbers)}]
        data = {"member_epoch": epoch, "assigned_partitions": assigned}
        past.modern(at_ms, "ConsumerGroupCurrentMemberAssignment", name, data, names)

    def target(at_ms, name, *numbers):
        data = {"topic_partitions": [{"topic_id": "id", "partitions": list(numbers)}]}
        past.modern(at_ms, "ConsumerGroupTargetAssignmentMember", name, data, names)

    member(1_000, "a")
    past.modern(1_000, "ConsumerGroupMetadata", None, {"epoch": 1}, names)
    target(1_001, "a", 0, 1)
    current(1_002, "a", 1, 0, 1)
    member(5_000, "b")
    past.modern(5_000, "ConsumerGroupMetadata", None, {"epoch": 2}, names)
    target(5_000, "a", 0)
    target(5_000, "b", 1)
    current(6_000, "a", 2, 0)
    current(8_000, "b", 2, 1)
    timeline = shown(ledger, 10_000)
    assert timeline["type"] == "consumer"
    assert bars(timeline) == [
        ("a", 1_002, 6_000, [["orders", [0, 1]]]),
        ("a", 6_000, OPEN, [["orders", [0]]]),
        ("b", 8_000, OPEN, [["orders", [1]]]),
    ]
    assert timeline["targets"]["start"] == [1_001, 5_000, 5_000]
    bands = timeline["bands"]
    assert (bands["start"], bands["end"], bands["generation"]) == ([1_000, 5_000], [1_002, 8_000], [1, 2])
    assert bands["standstill"] == [0, 0], "members go on reading what they keep"
