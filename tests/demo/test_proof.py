"""The proof must fail where it should: orders skipped, read again without need, or never sold."""

import json

from kohort.demo.proof import Journal, Read, journal_of_sink, prove, read_journal

ENDS = {0: 3, 1: 1}


def journal(name, *places, committed=(), at=1.0):
    return Journal(name, tuple(Read(place, at) for place in places), {place: at + 0.5 for place in committed})


def test_everything_read_once():
    proof = prove(4, ENDS, [journal("a", (0, 0), (0, 1)), journal("b", (0, 2), (1, 0))])
    assert proof.holds and (proof.rows, proof.read, proof.twice) == (4, 4, {})


def test_a_skipped_order_is_found():
    proof = prove(4, ENDS, [journal("a", (0, 0), (0, 2), (1, 0))])
    assert not proof.holds and proof.skipped == [(0, 1)]


def test_an_order_read_again_after_a_crash_is_within_the_promise():
    dead = journal("dead", (0, 0), (0, 1), committed=[(0, 0)])
    heir = journal("heir", (0, 1), (0, 2), (1, 0), committed=[(0, 1)], at=9.0)
    proof = prove(4, ENDS, [heir, dead])
    assert proof.holds and proof.twice == {(0, 1): ["dead", "heir"]} and proof.first_readers() == {"dead": 1}


def test_an_order_read_again_after_its_commit_is_not():
    first = journal("first", (0, 0), (0, 1), (0, 2), (1, 0), committed=[(0, 1)])
    proof = prove(4, ENDS, [first, journal("second", (0, 1), at=9.0)])
    assert not proof.holds and proof.without_need == [(0, 1)]


def test_orders_that_nobody_sold():
    proof = prove(4, ENDS, [journal("a", (0, 0), (0, 1), (0, 2), (1, 0), (1, 1))])
    assert not proof.holds and proof.strange == 1


def test_what_was_sold_and_the_logs_must_agree():
    assert not prove(5, ENDS, [journal("a", (0, 0), (0, 1), (0, 2), (1, 0))]).holds


def test_a_readers_file_with_a_torn_end():
    lines = [
        {"p": 0, "o": 0, "id": "x", "t": 1.0},
        {"p": 1, "o": 0, "id": "y", "t": 1.0},
        {"committed": {"0": 1}, "t": 2},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines) + '{"p": 0, "o": 1, "id"'
    found = read_journal("a", text)
    assert [read.place for read in found.read] == [(0, 0), (1, 0)] and found.committed == {(0, 0): 2}
    assert found.ids == {"x", "y"}


def test_a_sink_without_times_goes_by_the_commits_at_the_kill():
    killed = journal_of_sink("killed", [(0, 0, "a"), (0, 1, "b")], {0: 1}, killed=True)
    heir = journal_of_sink("heir", [(0, 1, "b"), (0, 2, "c"), (1, 0, "d")], {0: 1}, killed=False)
    assert prove(4, ENDS, [killed, heir]).holds
    greedy = journal_of_sink("heir", [(0, 0, "a"), (0, 1, "b"), (0, 2, "c"), (1, 0, "d")], {0: 1}, killed=False)
    assert prove(4, ENDS, [killed, greedy]).without_need == [(0, 0)]
