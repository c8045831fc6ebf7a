"""A history with a known course gives back exactly what was put in: every report, of groups with events and without."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kohort.spark
from history.known_course import HOUR, START_MS, Group, course, raw
from history.test_history import QUICK
from kohort.coordinator.events import EVENTS_TOPIC
from kohort.coordinator.records import OFFSETS_TOPIC
from kohort.history import judging, writing
from kohort.history.kept import Kept, Round
from kohort.history.survey import survey_of_kept
from kohort.insight.lag_verdicts import WINDOW, CommitPoint, lag_verdict

HOURS = 10
Rows = dict[str, list[dict[str, Any]]]


def keep(groups: list[Group], directory: Path) -> None:
    """As an ingest does: raw records to tables, and the ends of every hour."""
    writer = writing.Writer(directory, "r00000001-course")
    records = [record for group in groups for record in [*group.stored, *group.commits()]]
    records.sort(key=lambda record: record[2])
    told = [(b"", value, START_MS) for group in groups for value in group.told]
    for table, rows in [*writing.of_offsets(raw(records), OFFSETS_TOPIC), *writing.of_events(raw(told), EVENTS_TOPIC)]:
        assert table != "quarantine"
        writer.add(table, rows)
    for at_ms in range(START_MS, START_MS + HOURS * HOUR + 1, HOUR):
        ends = {(group.topic, p): group.end(at_ms) for group in groups for p in range(group.partitions)}
        writer.add("log_ends", writing.log_ends(ends, at_ms))
    written = writer.close()
    kept = Kept(directory)
    with kept.locked():
        kept.commit(Round(1, START_MS + HOURS * HOUR, {}, {}, dict(written.rows), written.files))


@pytest.fixture(scope="module")
def groups() -> list[Group]:
    return course(10, HOURS)


@pytest.fixture(scope="module")
def told(groups: list[Group], tmp_path_factory: Any) -> Iterator[Rows]:
    directory = tmp_path_factory.mktemp("course")
    keep(groups, directory)
    spark = kohort.spark.session("tests", "local[2]", QUICK)
    found = survey_of_kept(spark, directory)
    yield {name: frame.toArrow().to_pylist() for name, frame in found.reports.items()}
    found.close()
    spark.stop()


def of(rows: list[dict[str, Any]], group: Group) -> list[dict[str, Any]]:
    return [row for row in rows if row["group_id"] == group.name]


def ms(moment: Any) -> int:
    return round(moment.timestamp() * 1000)


def test_rebalances_their_causes_and_the_standstill(told: Rows, groups: list[Group]) -> None:
    for group in groups:
        truth = group.truth
        each = of(told["rebalances"], group)
        assert Counter(row["cause"] for row in each) == truth.rebalances, group
        assert {row["estimated"] for row in each} == {not group.exact}, [
            (row["generation"], row["started"], group.name) for row in each if row["estimated"] == group.exact
        ]
        causes = {row["cause"]: row for row in of(told["causes"], group)}
        assert {cause: row["standstill_ms"] for cause, row in causes.items()} == dict(truth.standstill_ms)
        estimated = {cause: row["estimated_ms"] for cause, row in causes.items()}
        assert estimated == {cause: 0 if group.exact else still for cause, still in truth.standstill_ms.items()}
        by_hour = {ms(row["hour"]): row["standstill_ms"] for row in of(told["downtime"], group)}
        assert {hour: still for hour, still in by_hour.items() if still} == dict(truth.standstill_by_hour)


def test_what_each_cause_cost(told: Rows, groups: list[Group]) -> None:
    for group in groups:
        costs = {row["cause"]: row for row in of(told["costs"], group)}
        assert {cause: row["partition_s"] for cause, row in costs.items()} == {
            cause: group.truth.partition_ms[cause] / 1000 for cause in group.truth.rebalances
        }
        unnoticed = {cause: row["unnoticed_s"] for cause, row in costs.items() if row["unnoticed_s"]}
        assert unnoticed == {cause: cost / 1000 for cause, cost in group.truth.unnoticed_ms.items()}


def test_storms_and_who_flaps(told: Rows, groups: list[Group]) -> None:
    for group in groups:
        storms = [(ms(row["started"]), ms(row["ended"]), row["rebalances"]) for row in of(told["storms"], group)]
        late = 0 if group.exact else group.lasts_ms  # a generation is known when it is stored
        assert storms == [(begin + late, end + late, count) for begin, end, count in group.truth.storms]
        assert {row["cause"] for row in of(told["storms"], group)} == {"joined"}
        flaps = [
            (row["client_id"], ms(row["started"]), ms(row["ended"]), row["times"])
            for row in of(told["flapping"], group)
        ]
        assert flaps == [(who, begin + late, end + late, times) for who, begin, end, times in group.truth.flapping]
        assert {row["how"] for row in of(told["flapping"], group)} == {"left" if group.exact else "gone"}


def test_what_moved(told: Rows, groups: list[Group]) -> None:
    for group in groups:
        moves = sorted((row["generation"], row["moved"], row["kept"]) for row in of(told["moves"], group))
        assert moves == group.truth.moves
        (sticky,) = of(told["stickiness"], group)
        moved, kept = (sum(move[i] for move in group.truth.moves) for i in (1, 2))
        assert (sticky["moved"], sticky["kept"]) == (moved, kept)
        assert sticky["moved_per_rebalance"] == moved / len(group.truth.moves)


def test_lag_in_records_and_in_time_and_the_verdicts(told: Rows, groups: list[Group]) -> None:
    for group in groups:
        looks = {at_ms: (lag, lag_ms) for at_ms, _, lag, lag_ms in group.looks()}
        seen = {(ms(row["time"]), row["partition"]): (row["lag"], row["lag_ms"]) for row in of(told["lag"], group)}
        wanted = {(at_ms, p): lags for at_ms, lags in looks.items() for p in range(group.partitions)}
        wanted |= {(START_MS, p): (None, None) for p in range(group.partitions)}
        assert seen == wanted, group.behaviour
        verdicts = {ms(row["time"]): (row["verdict"], row["lag"]) for row in of(told["verdicts"], group)}
        assert verdicts == {at_ms: (said, lag * group.partitions) for at_ms, said, lag, _ in group.looks()}
        (row,) = of(told["groups"], group)
        _, verdict, lag, lag_ms = list(group.looks())[-1]
        assert (row["verdict"], row["lag"], row["lag_ms"]) == (verdict, lag * group.partitions, lag_ms)
        truth = group.truth
        assert (row["storms"], row["flapping"]) == (len(truth.storms), len(truth.flapping))
        assert row["rebalances"] == truth.rebalances.total()
        assert row["partition_s"] == pytest.approx(group.truth.partition_ms.total() / 1000)


def test_verdicts_by_columns_are_those_of_one_partition() -> None:
    chance = random.Random(7)
    windows, now, lags = [], [], []
    for _ in range(3_000):
        at_ms, offset, window = 0, chance.randrange(50), []
        for _ in range(chance.randrange(1, WINDOW + 1)):
            at_ms += chance.choice((1_000, 20_000, 90_000))
            offset += chance.choice((0, 0, 0, 3, 10, -5))
            window.append(CommitPoint(at_ms, offset, chance.choice((None, 0, 5, len(window), 20 + 3 * len(window)))))
        windows.append(window)
        now.append(at_ms + chance.choice((0, 30_000, 61_000, 900_000)))
        lags.append(chance.choice((None, 0, 5, 50)))
    expected = [lag_verdict(window, lag, at) for window, lag, at in zip(windows, lags, now, strict=True)]
    assert len(set(expected)) == len(judging.VERDICTS)
    import pyarrow as pa

    rows = [[{"at": p.at_ms, "offset": p.offset, "lag": p.lag} for p in window] for window in windows]
    kind = pa.list_(pa.struct([("at", pa.int64()), ("offset", pa.int64()), ("lag", pa.int64())]))
    for part in (slice(0, None), slice(1_000, 2_000)):
        found = judging.judged(
            pa.array(rows, kind)[part], pa.array(lags, pa.int64())[part], pa.array(now, pa.int64())[part]
        )
        assert [judging.VERDICTS[rank] for rank in np.asarray(found)] == expected[part]
