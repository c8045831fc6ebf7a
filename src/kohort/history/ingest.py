"""Keeps the tables of a cluster in a directory: reads on from where the last round ended, writes, commits, again.

Rounds are planned here and run on Spark, a task a range of a partition; what a task does is writing.py's business, what
makes a round count kept.py's. Any Kafka will do; no group is joined and nothing is changed in the cluster.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kohort.client.types import TopicPartition
from kohort.coordinator.events import EVENTS_TOPIC
from kohort.coordinator.records import OFFSETS_TOPIC
from kohort.history import delta, writing
from kohort.history.kept import Kept, NotAHistory, Round
from kohort.history.tables import Scope
from kohort.spark import fetch
from kohort.spark.offsets import EARLIEST, LATEST, Ranges, share
from kohort.spark.options import ReadOptions, parse_read_options
from kohort.spark.planning import tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS_A_ROUND = 20_000_000
"""A long past is read in rounds of some size, so that not all of it is repeated when a round is lost."""


@dataclass(slots=True)
class Plan:
    ranges: dict[str, Ranges] = field(default_factory=dict)  # by topic, what this round reads
    ends: dict[str, dict[str, int]] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    more: bool = False  # whether there is more than one round may read


class Ingest:
    """`rounds()` reads until nothing is left."""

    def __init__(
        self,
        spark: SparkSession,
        servers: str,
        directory: Path,
        settings: Mapping[str, Any] | None = None,
        rows_a_round: int = ROWS_A_ROUND,
        as_delta: bool = False,
    ) -> None:
        self._spark, self._directory = spark, directory
        self._kept = Kept(directory)
        self._rows_a_round, self._as_delta = rows_a_round, as_delta
        if as_delta:
            delta.need_delta()
        elif delta.is_delta(directory):
            raise NotAHistory(f"{directory} is kept as Delta tables: go on with --format delta")
        scope = Scope.of(servers, None, None, None, settings)
        self._given = scope.options() | {"failOnDataLoss": "false", "kafka.isolation.level": "read_committed"}
        self._cluster = fetch.cluster_for(self._options(OFFSETS_TOPIC, [0]).settings)

    def _options(self, topic: str, partitions: list[int]) -> ReadOptions:
        return parse_read_options(self._given | {"assign": json.dumps({topic: partitions})}, "batch")

    def run(
        self, continuous: bool = False, every_s: float = 10.0, told: Callable[[Round], None] = lambda done: None
    ) -> int:
        """Rounds until nothing is left, or for ever; how many there were. `told` hears of each."""
        count = 0
        with self._kept.locked():
            self._kept.recover()
            self._follow()
            while True:
                for done in self.rounds():
                    told(done)
                    count += 1
                if not continuous:
                    return count
                time.sleep(every_s)

    def rounds(self) -> Iterator[Round]:
        more = True
        while more:
            last = self._kept.last()
            plan = self._plan(last)
            more = plan.more
            if any(plan.ranges.values()) or last is None:
                yield self._round(1 if last is None else last.number + 1, plan)

    # -- planning ------------------------------------------------------------------------------------------------------

    def _plan(self, last: Round | None) -> Plan:
        plan = Plan()
        known = {tp.topic for tp in self._cluster.refresh((OFFSETS_TOPIC, EVENTS_TOPIC))}
        for topic in (OFFSETS_TOPIC, EVENTS_TOPIC):
            before = None if last is None else last.ends.get(topic)
            if topic in known:
                self._plan_topic(plan, topic, before or {}, "" if last is None else last.ids.get(topic, ""))
            elif before is not None:
                plan.ends[topic], plan.ids[topic] = before, "" if last is None else last.ids.get(topic, "")
        return plan

    def _plan_topic(self, plan: Plan, topic: str, before: Mapping[str, int], id_before: str) -> None:
        cluster = self._cluster
        partitions = [TopicPartition(topic, number) for number in range(cluster.partition_count(topic))]
        topic_id = cluster.topic_id(topic)
        if id_before and topic_id and id_before != topic_id:
            plan.notes.append(f"{topic} was created anew: its records are read from the first on")
            before = {}
        starts = cluster.list_offsets(dict.fromkeys(partitions, EARLIEST))
        stops = cluster.list_offsets(dict.fromkeys(partitions, LATEST), committed_only=True)
        ranges: Ranges = {}
        for tp in partitions:
            first, stop = starts.get(tp), stops.get(tp)
            if first is not None and stop is not None:
                reached = before.get(str(tp.partition))
                ranges[tp] = (self._start(plan, tp, reached, first, stop, bool(topic_id)), stop)
        taken = self._limited(plan, ranges)
        plan.ranges[topic] = {tp: span for tp, span in taken.items() if span[0] < span[1]}
        plan.ends[topic] = dict(before) | {str(tp.partition): stop for tp, (_, stop) in taken.items()}
        plan.ids[topic] = topic_id

    def _start(self, plan: Plan, tp: TopicPartition, reached: int | None, first: int, stop: int, same: bool) -> int:
        """Where to read on. `same`: the topic's id says that it is the one that was read before."""
        if reached is None:
            return first
        if reached > stop and same:
            plan.notes.append(f"{tp} had been read to {reached} and ends at {stop}: the cluster has lost records")
            return stop
        if reached > stop:
            plan.notes.append(
                f"{tp} had been read to {reached} and ends at {stop}: it began anew, and so does its read"
            )
            return first
        if reached < first:
            plan.notes.append(f"{tp}: {first - reached} offsets were gone before they were read")
        return max(first, reached)

    def _limited(self, plan: Plan, ranges: Ranges) -> Ranges:
        waiting = {tp: stop - first for tp, (first, stop) in ranges.items()}
        if sum(waiting.values()) <= self._rows_a_round:
            return ranges
        plan.more = True
        shares = share(waiting, self._rows_a_round)
        return {tp: (first, first + shares.get(tp, 0)) for tp, (first, _) in ranges.items()}

    # -- a round -------------------------------------------------------------------------------------------------------

    def _round(self, number: int, plan: Plan) -> Round:
        written = self._run(list(self._tasks(number, plan)))
        # A cluster's clock may be ahead of ours: the ends are those of after what was read.
        now_ms = max(time.time_ns() // 1_000_000, *(one.latest_ms + 1 for one in written), 0)
        written.append(self._log_ends(number, now_ms))
        rows: dict[str, int] = {}
        for one in written:
            for table, count in one.rows.items():
                rows[table] = rows.get(table, 0) + count
        files = tuple(sorted(name for one in written for name in one.files))
        done = Round(number, now_ms, plan.ends, plan.ids, rows, files, tuple(plan.notes))
        self._kept.commit(done)
        self._follow()
        return done

    def _follow(self) -> None:
        if self._as_delta:
            delta.follow(self._directory)

    def _tasks(self, number: int, plan: Plan) -> Iterator[writing.WriteTask]:
        count = 0
        for topic, ranges in plan.ranges.items():
            options = self._options(topic, [tp.partition for tp in ranges] or [0])
            for pieces in tasks(ranges, options) if ranges else ():
                read = fetch.ReadTask(
                    pieces, writing.COLUMNS, options.settings, options.fail_on_data_loss, {topic: plan.ids[topic]}
                )
                yield writing.WriteTask(str(self._directory.absolute()), f"r{number:08d}-{count:05d}", topic, read)
                count += 1

    def _run(self, planned: list[writing.WriteTask]) -> list[writing.Written]:
        if not planned:
            return []
        return self._spark.sparkContext.parallelize(planned, len(planned)).map(writing.run).collect()

    def _log_ends(self, number: int, now_ms: int) -> writing.Written:
        """The ends of all topics that are not internal, at the end of the round: what lag is measured by."""
        wanted = [tp for tp in self._cluster.refresh(None) if not tp.topic.startswith("__")]
        ends = self._cluster.list_offsets(dict.fromkeys(wanted, LATEST)) if wanted else {}
        known = {(tp.topic, tp.partition): end for tp, end in ends.items() if end is not None}
        writer = writing.Writer(self._directory, f"r{number:08d}-ends")
        if known:
            writer.add("log_ends", writing.log_ends(known, now_ms))
        return writer.close()
