"""All tables and all reports of a cluster at once, each table read once; and their way to Parquet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f

from kohort.history import patterns, reports, tables
from kohort.history.judging import verdicts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TABLES = ("group_events", "commits", "generations", "group_records")
REPORTS = (
    "groups", "rebalances", "causes", "costs", "storms", "flapping", "downtime", "moves", "stickiness", "members",
    "handovers", "expressions", "progress", "lag", "verdicts", "stuck", "talkers",
)  # fmt: skip
LOOKS = 12
MOST_LOOKS = 720
"""Of kept ends: a month has an hour between two of them."""
CACHED = ("rebalances", "costs", "storms", "flapping", "moves", "lag", "verdicts")
"""What other reports are made of too."""


@dataclass(frozen=True)
class Survey:
    """DataFrames by the names in TABLES and REPORTS."""

    tables: Mapping[str, DataFrame]
    reports: Mapping[str, DataFrame]

    def write(self, directory: Path, wanted: Iterable[str] = REPORTS) -> None:
        """The tables and these reports, each as a folder of Parquet files."""
        for name, frame in {**self.tables, **{name: self.reports[name] for name in wanted}}.items():
            frame.write.parquet(str(directory / name))

    def close(self) -> None:
        for frame in (*self.tables.values(), *(self.reports[name] for name in CACHED)):
            frame.unpersist()


def survey(
    spark: SparkSession,
    servers: str,
    groups: Iterable[str] = (),
    since: tables.Time | None = None,
    until: tables.Time | None = None,
    settings: Mapping[str, Any] | None = None,
    window: str = "1 minute",
) -> Survey:
    scope = (spark, servers, tuple(groups), since, until, settings)
    events = tables.group_events(*scope).cache()
    commits = tables.commits(*scope).cache()
    generations = tables.generations(*scope).cache()
    records = tables.group_records(*scope).cache()
    ends = _ends(spark, servers, commits, settings)
    return _survey((events, commits, generations, records), ends, window, tables.topic_ids(spark, servers, settings))


def survey_of_kept(
    spark: SparkSession,
    directory: Path,
    groups: Iterable[str] = (),
    since: tables.Time | None = None,
    until: tables.Time | None = None,
    window: str = "1 minute",
) -> Survey:
    """The same from the tables that an ingest keeps; lag at the ends of its rounds."""
    scope = (tuple(groups), since, until)
    read = tuple(tables.kept_table(spark, directory, name, *scope).cache() for name in TABLES)
    return _survey(read, _thinned(tables.kept_table(spark, directory, "log_ends", None, since, until)), window)


def _thinned(ends: DataFrame) -> DataFrame:
    """Of ends that were seen again and again, the last of each of MOST_LOOKS stretches of time."""
    at_ms = f.unix_millis("time")
    (span,) = ends.agg(f.min(at_ms).alias("a"), f.max(at_ms).alias("z")).collect()
    if span.a is None:
        return ends
    step_ms = max(1, (span.z - span.a) // MOST_LOOKS)
    by_look = ends.groupBy("topic", "partition", f.floor((f.lit(span.z) - at_ms) / step_ms).alias("look"))
    last = by_look.agg(f.max(f.struct("time", "end_offset")).alias("last"))
    return last.select("last.time", "topic", "partition", "last.end_offset")


def _survey(read: tuple[DataFrame, ...], ends: DataFrame, window: str, topics: DataFrame | None = None) -> Survey:
    """`read` are the tables in the order of TABLES."""
    events, commits, generations, records = read
    rebalances = reports.rebalances(events, generations, records, commits).cache()
    lag = reports.lag(commits, ends).cache()
    storms, flapping = patterns.storms(rebalances).cache(), patterns.flapping(rebalances).cache()
    costs = patterns.costs(patterns.rebalance_costs(rebalances, generations)).cache()
    moves = patterns.moves(generations).cache()
    stickiness = patterns.stickiness(moves)
    over_time = verdicts(commits, ends).cache()
    return Survey(
        dict(zip(TABLES, read, strict=True)),
        {
            "groups": patterns.worst_groups(rebalances, costs, storms, flapping, stickiness, lag, over_time),
            "rebalances": rebalances,
            "causes": reports.causes(rebalances),
            "costs": costs,
            "storms": storms,
            "flapping": flapping,
            "downtime": reports.downtime(rebalances),
            "moves": moves,
            "stickiness": stickiness,
            "members": reports.member_lives(events, generations, records),
            "handovers": reports.handovers(records, topics),
            "expressions": reports.expressions(records),
            "progress": reports.commit_progress(commits, window),
            "lag": lag,
            "verdicts": over_time,
            "stuck": reports.stuck_partitions(lag),
            "talkers": reports.top_talkers(commits, generations),
        },
    )


def _ends(spark: SparkSession, servers: str, commits: DataFrame, settings: Mapping[str, Any] | None) -> DataFrame:
    """The ends of the committed topics at moments spread over the time of the commits, and of now."""
    at_ms = f.unix_millis("time")
    (span,) = commits.agg(f.min(at_ms).alias("a"), f.max(at_ms).alias("z"), f.collect_set("topic").alias("t")).collect()
    if span.a is None:
        return tables.end_offsets(spark, servers, [], (), settings)
    times = [span.a + (span.z - span.a) * number // LOOKS for number in range(1, LOOKS + 1)]
    return tables.end_offsets(spark, servers, span.t, times, settings)
