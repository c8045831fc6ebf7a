"""Herd effect and split brain, where they are said to be and nowhere else; figures that repeat."""

import pytest

from kohort.schemes.compare import BROKER, CHANGES, CRASH, CUT, JOIN, LAG, LEAVE, SCHEMES, Script, run
from kohort.schemes.watchers import MAX_RETRIES, Watchers

WATCHERS, SERVER, TODAY, NEXT = SCHEMES
SIZES = (4, 8, 16)
SEED = 0


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level("CRITICAL")


@pytest.fixture(scope="module")
def outcomes():
    return {(o.scheme, o.members, o.change): o for s in SCHEMES for n in SIZES for o in run(s, n, SEED)}


def tallies(outcomes, scheme, change):
    return [outcomes[scheme, size, change].tally for size in SIZES]


def test_watchers_every_consumer_is_notified_and_reads_every_other(outcomes):
    joins = tallies(outcomes, WATCHERS, JOIN)
    assert [join.notifications for join in joins] == [size - 1 for size in SIZES]
    for join, size in zip(joins, SIZES, strict=True):
        # Each one reads each registration; the newcomer sets three watches, the others one again; the rest is one
        # read of the list of consumers, of the brokers and of each, of the topic, and of the offset of each partition.
        assert join.reads == size * size + 3 + (size - 1) + size * (1 + 1 + 3 + 1) + 2 * size
    assert joins[2].reads / joins[1].reads > joins[1].reads / joins[0].reads > 2, "faster than the group"


@pytest.mark.parametrize("change", [JOIN, LEAVE, CRASH])
def test_server_coordinator_one_watcher_however_large_the_group(outcomes, change):
    changes = tallies(outcomes, SERVER, change)
    assert {tally.notifications for tally in changes} == {1}
    assert len({tally.reads for tally in changes}) == 1
    assert len({tally.writes for tally in changes}) == 1


@pytest.mark.parametrize("scheme", [SERVER, TODAY])
@pytest.mark.parametrize("change", [JOIN, LEAVE, CRASH])
def test_others_take_a_few_requests_a_member(outcomes, scheme, change):
    for tally, size in zip(tallies(outcomes, scheme, change), SIZES, strict=True):
        assert 2 * (size - 1) <= tally.requests <= 3 * size + 5


def test_today_reads_no_zookeeper_and_tells_each_member_once(outcomes):
    joins = tallies(outcomes, TODAY, JOIN)
    assert [(join.reads, join.writes) for join in joins] == [(0, 0)] * len(SIZES)
    assert [join.notifications for join in joins] == [size - 1 for size in SIZES]


@pytest.mark.parametrize("size", SIZES)
def test_a_broker_that_dies_rebalances_all_but_todays_group(outcomes, size):
    assert outcomes[WATCHERS, size, BROKER].tally.notifications == size
    assert outcomes[SERVER, size, BROKER].tally.requests == 3 * size
    assert outcomes[TODAY, size, BROKER].tally.notifications == 0
    assert outcomes[TODAY, size, BROKER].tally.no_reader_ms == 0


def test_every_change_ends_in_agreement_but_for_watchers_behind_a_lagging_follower(outcomes):
    for (scheme, size, change), outcome in outcomes.items():
        if (scheme, change) != (WATCHERS, LAG):
            assert outcome.agreed_after_ms is not None, (scheme, size, change)
            assert outcome.unread == 0, (scheme, size, change)


def test_only_watchers_decide_by_different_views_of_one_group(outcomes):
    for size in SIZES:
        assert outcomes[WATCHERS, size, LAG].tally.disagreeing_ms > 8_000
        assert outcomes[SERVER, size, LAG].tally.disagreeing_ms == 0
        assert outcomes[TODAY, size, LAG].tally.disagreeing_ms == 0


def test_watchers_owner_znodes_keep_readers_apart_so_that_consumers_give_up():
    """Split brain in 0.8: nothing is read twice, but consumers that decide by different groups block each other."""
    lagging = [o for seed in range(8) for o in run(WATCHERS, 4, seed) if o.change == LAG]
    assert {o.tally.two_readers_ms for o in lagging} == {0}
    assert any(o.tally.gave_up for o in lagging)
    for outcome in lagging:
        assert outcome.tally.failed_attempts >= MAX_RETRIES * outcome.tally.gave_up
        assert (outcome.unread > 0) == (outcome.agreed_after_ms is None) == (outcome.tally.gave_up > 0)


def test_watchers_a_follower_that_catches_up_within_the_retries_costs_time_only():
    behind = [o for seed in range(8) for o in run(WATCHERS, 4, seed, lag_ms=3_000) if o.change == LAG]
    assert any(o.tally.failed_attempts for o in behind)
    assert {(o.tally.gave_up, o.unread) for o in behind} == {(0, 0)}


def test_cut_off_from_its_coordinator_a_consumer_reads_on_and_only_with_a_generation_are_its_commits_fenced(outcomes):
    for size in SIZES:
        tallies = [outcomes[scheme, size, CUT].tally for scheme in SCHEMES]
        watchers, server, today, following = tallies
        assert min(tally.two_readers_ms for tally in tallies) > 10_000
        assert watchers.stale_commits > 0 and server.stale_commits > 0
        assert today.stale_commits == following.stale_commits == 0


def test_next_only_those_who_are_concerned_hear_of_a_change_however_large_the_group(outcomes):
    for change in (JOIN, LEAVE, CRASH):
        found = tallies(outcomes, NEXT, change)
        assert max(tally.requests for tally in found) <= 10
        assert max(tally.notifications for tally in found) <= 6
    largest = SIZES[-1]
    assert outcomes[NEXT, largest, JOIN].tally.standstill_ms < outcomes[TODAY, largest, LAG].tally.standstill_ms
    assert outcomes[NEXT, largest, BROKER].tally.standstill_ms == 0


def test_today_refuses_what_a_consumer_of_an_old_generation_commits():
    script = Script(TODAY, 3, SEED)
    list(script.all_join())
    script.group.records_flow(True)
    script.wait(10_000)
    script.cut_one()
    script.wait(30_000)
    assert script.group.tally().refused_commits > 0
    assert script.group.tally().stale_commits == 0


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_same_seed_gives_the_same_figures(outcomes, scheme):
    again = list(run(scheme, SIZES[0], SEED))
    assert [o.change for o in again] == list(CHANGES)
    assert again == [outcomes[scheme, SIZES[0], change] for change in CHANGES]
    assert again != list(run(scheme, SIZES[0], SEED + 1))


def test_watchers_who_gave_up_holds_nothing_until_the_next_change():
    """With 0 before them, a is to have 2 and 3, which b holds as long as it has not heard of 0."""
    group = Watchers(SEED, 6)
    for name in ("a", "b", "c"):
        group.join(name)
        group.scheduler.run(group.scheduler.now_ms + 1_000)
    group.fall_behind(10_000)
    group.join("0")
    group.scheduler.run(group.scheduler.now_ms + 60_000)
    assert [sorted(group.meter.read_by(name)) for name in "0abc"] == [[0, 1], [], [4], [5]]
    assert (group.meter.tally.gave_up, group.meter.unread, group.meter.agreed_since_ms) == (1, 2, None)
    group.leave("0")
    group.scheduler.run(group.scheduler.now_ms + 20_000)
    assert group.meter.unread == 0 and group.meter.agreed_since_ms is not None
