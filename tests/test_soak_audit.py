"""The audit of the soak finds what it is there to find: each broken promise, made by hand."""

import json

from soak_audit import Audit, Ledgers, audit

PLACE = ("t", 0)


def assigned(at, consumer, period=1, generation=None):
    return ["A", at, consumer, "g", generation, *PLACE, period]


def processed(consumer, first, last, period=1):
    return ["R", consumer, "g", *PLACE, period, first, last]


def committed(sent, acknowledged, offset):
    return ["C", sent, acknowledged, "g", *PLACE, offset]


GOOD = [
    assigned(1, "w-0-a.1", generation=1),
    processed("w-0-a.1", 0, 9),
    committed(2, 3, 5),
    assigned(4, "w-0-b.1", generation=2),
    processed("w-0-b.1", 5, 19),
    committed(5, 6, 20),
]


def judge(tmp_path, rows, end=20, tail="") -> Audit:
    path = tmp_path / "ledger"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + tail)
    return audit(Ledgers([path]), {"g": "t"}, {PLACE: end})


def test_a_group_that_kept_its_promises(tmp_path):
    found = judge(tmp_path, GOOD, tail='["C",7,')
    assert found.broken == []
    assert (found.processed, found.again, found.commits) == (25, 5, 2)


def test_records_that_were_skipped(tmp_path):
    (broken,) = judge(tmp_path, GOOD, end=22).broken
    assert "skipped 2 records" in broken and "first at 20" in broken


def test_a_commit_that_was_lost(tmp_path):
    rows = [*GOOD, assigned(7, "w-0-c.1"), processed("w-0-c.1", 5, 19)]
    (broken,) = judge(tmp_path, rows).broken
    assert "began ('t', 0) at 5, 20 had been committed" in broken


def test_a_commit_that_is_under_way_may_be_missed(tmp_path):
    rows = [*GOOD, assigned(5.5, "w-0-c.1"), processed("w-0-c.1", 5, 19)]
    assert judge(tmp_path, rows).broken == []


def test_a_commit_that_goes_back(tmp_path):
    (broken,) = judge(tmp_path, [*GOOD, committed(7, 8, 10)]).broken
    assert "committed 10 after 20" in broken


def test_two_owners_in_one_generation(tmp_path):
    (broken,) = judge(tmp_path, [*GOOD, assigned(4, "w-0-c.1", generation=2)]).broken
    assert "belongs to" in broken and "generation 2" in broken


def test_records_that_are_not_there_or_not_theirs(tmp_path):
    assert "which ends at 15" in judge(tmp_path, GOOD, end=15).broken[0]
    assert "without an assignment" in judge(tmp_path, [*GOOD, processed("w-0-x.1", 20, 20)], end=21).broken[0]


def test_what_consumers_complain_of(tmp_path):
    found = judge(tmp_path, [*GOOD, ["V", "w-0-a.1", "7 right after 5"], ["E", "w-0-kafka-python.1", "gone"]])
    assert found.broken == ["w-0-a.1: 7 right after 5"]
    assert found.gave_up == {"kafka-python: gone": 1}
