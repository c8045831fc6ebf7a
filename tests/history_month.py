"""A month of groups with a known course, tens of millions of commits: every report gives back what was put in.

    python tests/history_month.py [--groups 200] [--days 30]

The course and the checks are those of tests/history/test_known_course.py, which plays ten hours of ten groups. Commits
are made here by columns, a day at a time, and go the way of an ingest: records as they lie in `__consumer_offsets` to
tables by day, a round a day.
"""

from __future__ import annotations

import argparse
import struct
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tools"))

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import kohort.spark
from history import test_known_course as checks
from history.known_course import BEHAVIOURS, DAY, HOUR, START_MS, Group, course, raw
from kohort.coordinator.events import EVENTS_TOPIC
from kohort.coordinator.offsets import OffsetAndMetadata
from kohort.coordinator.records import OFFSETS_TOPIC, OffsetCommit, encode
from kohort.history import writing
from kohort.history.kept import Kept, Round
from kohort.history.survey import Survey, survey_of_kept

Ints = npt.NDArray[np.int64]
MARKS = (0x7A7B7C7D7E7F, 0x717273747576)
APART = 10**9  # offsets of generations lie beyond those of commits
CHECKS = (
    checks.test_rebalances_their_causes_and_the_standstill,
    checks.test_what_each_cause_cost,
    checks.test_storms_and_who_flaps,
    checks.test_what_moved,
    checks.test_lag_in_records_and_in_time_and_the_verdicts,
)
COLLECTED = (
    "groups", "rebalances", "causes", "costs", "storms", "flapping", "downtime", "moves", "stickiness", "lag",
    "verdicts", "talkers",
)  # fmt: skip


class Commits:
    """The commits of one group by columns: equal to Group.commits()."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._times: Ints = np.array(group.commit_times(), np.int64)
        value = OffsetAndMetadata(MARKS[0], -1, "", MARKS[1], -1, b"")
        both = [encode(OffsetCommit(group.name, group.topic, p, value)) for p in range(group.partitions)]
        self.keys = [key for key, _ in both]
        stored = both[0][1]
        assert stored is not None
        self._places = [stored.index(struct.pack(">q", mark)) for mark in MARKS]
        self._template = np.frombuffer(stored, np.uint8)

    def between(self, from_ms: int, to_ms: int) -> tuple[Ints, Ints, npt.NDArray[np.uint8]]:
        """Times, partitions and values, in the order of time."""
        times = self._times[(self._times >= from_ms) & (self._times < to_ms)]
        count = self._group.partitions
        values = np.tile(self._template, (len(times), 1))
        for place, numbers in zip(self._places, (self._offsets(times), times), strict=True):
            values[:, place : place + 8] = numbers.astype(">i8").view(np.uint8).reshape(-1, 8)
        return np.repeat(times, count), np.tile(np.arange(count), len(times)), np.repeat(values, count, axis=0)

    def _offsets(self, times: Ints) -> Ints:
        group = self._group
        assert group.behaviour in BEHAVIOURS
        end = group.rate * ((times - START_MS) // 1000)
        if group.behaviour in ("lag rises", "stopped committing"):
            return end // 2
        if group.behaviour == "stalled":
            return np.minimum(end // 2, group.end(START_MS + group.hours * HOUR // 2) // 2)
        if group.behaviour == "rewound":
            return np.where(times % HOUR == 0, end // 2, end)
        return end


def check_columns(group: Group, made: Commits, hours: int) -> None:
    """What is made by columns is what the plan says, record by record, for the first hours."""
    until = START_MS + hours * HOUR
    times, partitions, values = made.between(START_MS, until)
    found = [(made.keys[p], bytes(v), int(at)) for at, p, v in zip(times, partitions, values, strict=True)]
    assert found == [record for record in group.commits() if record[2] < until], group


def batch_of(parts: list[tuple[Commits, tuple[Ints, Ints, npt.NDArray[np.uint8]]]], first: int) -> pa.RecordBatch:
    """Commits of all groups of some time as a fetch gives them, in the order of time."""
    times = np.concatenate([found[0] for _, found in parts])
    order = np.argsort(times, kind="stable")
    keys: list[bytes] = []
    numbers = []
    for made, (_, partitions, _) in parts:
        numbers.append(partitions + len(keys))
        keys += made.keys
    values = np.concatenate([found[2] for _, found in parts])[order]
    count, size = values.shape
    bounds = np.arange(0, (count + 1) * size, size, dtype=np.int32)
    stored = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(bounds), pa.py_buffer(values.tobytes())])
    moments = pa.array(times[order] * 1000).view(pa.timestamp("us", "UTC"))
    return pa.record_batch(
        {
            "key": pa.array(keys, pa.binary()).take(pa.array(np.concatenate(numbers)[order])),
            "value": stored,
            "partition": pa.array(np.zeros(count, np.int32)),
            "offset": pa.array(np.arange(first, first + count)),
            "timestamp": moments,
        }
    )


def batches(groups: list[Group], from_ms: int, to_ms: int, step_ms: int, first: int) -> Iterator[pa.RecordBatch]:
    made = [Commits(group) for group in groups]
    for begin in range(from_ms, to_ms, step_ms):
        parts = [(one, one.between(begin, min(begin + step_ms, to_ms))) for one in made]
        batch = batch_of(parts, first)
        first += batch.num_rows
        if batch.num_rows:
            yield batch


def keep(groups: list[Group], directory: Path, hours: int) -> int:
    """Rounds of a day each; how many commits there are."""
    kept, count, end_ms = Kept(directory), 0, START_MS + hours * HOUR
    with kept.locked():
        for number, day_ms in enumerate(range(START_MS, end_ms + 1, DAY), 1):
            writer = writing.Writer(directory, f"r{number:08d}-course")
            until = min(day_ms + DAY, end_ms + 1)
            stored = sorted(
                (one for group in groups for one in group.stored if day_ms <= one[2] < until), key=lambda one: one[2]
            )
            told = [(b"", value, START_MS) for group in groups for value in group.told] if number == 1 else []
            found = [
                writing.of_offsets(batch, OFFSETS_TOPIC) for batch in batches(groups, day_ms, until, 6 * HOUR, count)
            ]
            found += [writing.of_offsets(raw(stored, number * APART), OFFSETS_TOPIC)] if stored else []
            found += [writing.of_events(raw(told), EVENTS_TOPIC)] if told else []
            for tables in found:
                for table, rows in tables:
                    assert table != "quarantine"
                    writer.add(table, rows)
            for at_ms in range(day_ms, until, HOUR):
                ends = {(group.topic, p): group.end(at_ms) for group in groups for p in range(group.partitions)}
                writer.add("log_ends", writing.log_ends(ends, at_ms))
            written = writer.close()
            count += written.rows.get("commits", 0)
            kept.commit(Round(number, until - 1, {}, {}, dict(written.rows), written.files))
    return count


def check_totals(found: Survey, told: dict[str, list[dict[str, Any]]], groups: list[Group]) -> None:
    """Reports that are too long to be looked at row by row: their sums."""
    planned = {group.name: len(group.commit_times()) * group.partitions for group in groups}
    assert {row["group_id"]: row["commits"] for row in told["talkers"]} == planned
    sums = found.reports["progress"].groupBy("group_id").agg({"commits": "sum", "rewinds": "sum"}).collect()
    assert {row["group_id"]: row["sum(commits)"] for row in sums} == planned
    rewinds = {
        group.name: sum(at_ms % HOUR == 0 for at_ms in group.commit_times()) * group.partitions
        if group.behaviour == "rewound"
        else 0
        for group in groups
    }
    assert {row["group_id"]: row["sum(rewinds)"] for row in sums} == rewinds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=200)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--memory", default="4g", help="of Spark's driver")
    options = parser.parse_args()
    hours = options.days * 24
    groups = course(options.groups, hours)
    for group in groups[:20]:
        check_columns(group, Commits(group), 30)
    with tempfile.TemporaryDirectory(prefix="kohort-course-") as folder:
        began = time.perf_counter()
        count = keep(groups, Path(folder), hours)
        rebalances = sum(group.truth.rebalances.total() for group in groups)
        took = time.perf_counter() - began
        print(f"{len(groups)} groups, {options.days} days, {rebalances:,} rebalances", flush=True)
        print(f"{count:,} commits decoded and kept in {took:.0f} s by one process", flush=True)
        spark = kohort.spark.session(
            "course",
            "local[2]",
            {"spark.driver.memory": options.memory, "spark.log.level": "ERROR", "spark.local.dir": folder},
        )
        began = time.perf_counter()
        found = survey_of_kept(spark, Path(folder))
        told = {}
        for name in COLLECTED:
            told[name] = found.reports[name].toArrow().to_pylist()
            print(f"  {name}: {len(told[name]):,} rows, {time.perf_counter() - began:.0f} s", flush=True)
        for check in CHECKS:
            check(told, groups)
            print(f"exact: {check.__name__.removeprefix('test_').replace('_', ' ')}", flush=True)
        check_totals(found, told, groups)
        print(f"exact: commits and rewinds of every group; all in {time.perf_counter() - began:.0f} s", flush=True)
        spark.stop()


if __name__ == "__main__":
    main()
