"""Burrow's verdicts over time, hour by hour, from commits and the ends of partitions: on Spark, by columns.

The rules are those of insight/lag_verdicts.py, here for all rows at once (`judge`); a test holds the two together.
Of an hour only the last commits of a partition matter, so Spark throws the others away before anything is sorted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as f

from kohort.history import arrow
from kohort.history.reports import HOUR_MS, PLACE
from kohort.insight.lag_verdicts import SILENT_MS, WINDOW, LagVerdict

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

VERDICTS = tuple(LagVerdict)
UNKNOWN = -1


def verdicts(commits: DataFrame, end_offsets: DataFrame, every_ms: int = HOUR_MS) -> DataFrame:
    """Per group and hour: how many partitions keep up, fall behind, were rewound, stopped or stalled at its end.

    `verdict` is the worst of them. A look is at the end of each hour between the first and the last known end of a
    partition, and the last end itself; a group is looked at from its first commit on.
    """
    each = partition_verdicts(commits, end_offsets, every_ms)
    counts = [f.count_if(f.col("rank") == rank).alias(one.name.lower()) for rank, one in enumerate(VERDICTS)]
    lag = f.sum("lag").alias("lag")
    found = each.groupBy("group_id", "time").agg(f.max("rank").alias("rank"), *counts, lag)
    return found.withColumn("verdict", _name(f.col("rank"))).drop("rank")


def partition_verdicts(commits: DataFrame, end_offsets: DataFrame, every_ms: int = HOUR_MS) -> DataFrame:
    """The same, per partition of a group; `rank` is from good to bad."""
    ends = _looks(end_offsets, every_ms)
    last = _last_commits(commits, ends, every_ms)
    asked = last.select(*PLACE).distinct().join(ends.drop("end_before", "look_before"), ["topic", "partition"])
    by_look = Window.partitionBy(*PLACE).orderBy("look")
    recent = f.flatten(f.collect_list("points").over(by_look.rowsBetween(1 - WINDOW, 0)))
    windows = last.select(*PLACE, "look", f.reverse(f.slice(f.reverse(recent), 1, WINDOW)).alias("window"))
    rows = asked.join(windows, [*PLACE, "look"], "left")
    seen = rows.withColumn("window", f.last("window", ignorenulls=True).over(by_look)).where("window IS NOT NULL")
    offset = f.element_at("window", -1)["offset"]
    seen = seen.withColumn("lag", f.when(offset.isNotNull(), f.greatest(f.col("end") - offset, f.lit(0))))
    rank = arrow.udf(judged, pa.int32())("window", "lag", "at_ms")
    return seen.withColumn("rank", rank).select(
        f.timestamp_millis("at_ms").alias("time"), *PLACE, "lag", "rank", _name(f.col("rank")).alias("verdict")
    )


def _name(rank: Column) -> Column:
    return f.get(f.array(*(f.lit(one.value) for one in VERDICTS)), rank)


def _looks(end_offsets: DataFrame, every_ms: int) -> DataFrame:
    """Per partition and look (the number of the hour that ends with it): the end then, and at the look before."""
    place = ("topic", "partition")
    by_time = Window.partitionBy(*place).orderBy("t0")
    ends = end_offsets.select(*place, f.unix_millis("time").alias("t0"), f.col("end_offset").alias("e0"))
    following = ends.withColumns({"t1": f.lead("t0").over(by_time), "e1": f.lead("e0").over(by_time)})
    hours = f.sequence(f.ceil(f.col("t0") / every_ms), f.ceil(f.col("t1") / every_ms) - 1)
    between = following.where(f"t1 IS NOT NULL AND ceil(t0 / {every_ms}) < ceil(t1 / {every_ms})").select(
        "*", f.explode(hours).alias("look")
    )
    at = f.col("look") * every_ms
    grown = f.expr(f"e0 + (e1 - e0) * (look * {every_ms} - t0) div (t1 - t0)")
    # An end that fell is that of a topic created anew: nothing lies between.
    then = f.when(f.col("e1") < f.col("e0"), f.col("e0")).otherwise(grown)
    whole = between.select(*place, "look", at.alias("at_ms"), then.alias("end"))
    last = following.where("t1 IS NULL").select(
        *place, f.ceil(f.col("t0") / every_ms).alias("look"), f.col("t0").alias("at_ms"), f.col("e0").alias("end")
    )
    by_look = Window.partitionBy(*place).orderBy("look")
    found = whole.unionByName(last)
    return found.withColumns({"end_before": f.lag("end").over(by_look), "look_before": f.lag("at_ms").over(by_look)})


def _last_commits(commits: DataFrame, ends: DataFrame, every_ms: int) -> DataFrame:
    """Per partition of a group and look, the last commits before it as `points`, each with the lag of its moment."""
    at_ms = f.unix_millis("time")
    timed = commits.where("NOT tombstone").select(
        *PLACE, at_ms.alias("at"), "offset", "record_offset", f.ceil(at_ms / every_ms).alias("look")
    )
    latest = Window.partitionBy(*PLACE, "look").orderBy(f.desc("record_offset"))
    few = timed.withColumn("place", f.row_number().over(latest)).where(f"place <= {WINDOW}")
    placed = few.join(ends, ["topic", "partition", "look"], "left")
    share = "end_before + (end - end_before) * (at - look_before) div (at_ms - look_before)"
    end = f.when(f.col("end_before").isNotNull() & (f.col("end") >= f.col("end_before")), f.expr(share))
    end = f.when(f.col("at") >= f.col("at_ms"), f.col("end")).otherwise(end)
    lag = f.greatest(end - f.col("offset"), f.lit(0))
    point = f.struct("record_offset", "at", "offset", lag.alias("lag"))
    return placed.groupBy(*PLACE, "look").agg(f.sort_array(f.collect_list(point)).alias("points"))


def judged(windows: pa.Array, lag_now: pa.Array, now_ms: pa.Array) -> pa.Array:
    """For Spark's workers: the rank of each verdict."""
    windows = windows.combine_chunks() if isinstance(windows, pa.ChunkedArray) else windows
    starts = np.asarray(windows.offsets).astype(np.int64)
    points = windows.values
    counts = np.diff(starts)

    def column(name: str) -> Any:
        return np.asarray(points.field(name).fill_null(UNKNOWN))

    place = starts[1:, None] - WINDOW + np.arange(WINDOW)  # the last of each window at the right
    there = place >= starts[:-1, None]
    place = np.where(there, place, starts[:-1, None])
    matrix = {name: column(name)[np.minimum(place, max(len(points) - 1, 0))] for name in ("at", "offset", "lag")}
    lag = np.asarray(lag_now.fill_null(UNKNOWN))
    return pa.array(judge(matrix["at"], matrix["offset"], matrix["lag"], there, counts, lag, np.asarray(now_ms)))


def judge(at: Any, offset: Any, lag: Any, there: Any, counts: Any, lag_now: Any, now_ms: Any) -> Any:
    """As `lag_verdict`, of every row: WINDOW columns with the latest commit at the right, where `there`."""
    rows = np.arange(len(at))
    first = np.argmax(there, axis=1)
    first_at, first_offset, last_at, last_offset = at[rows, first], offset[rows, first], at[:, -1], offset[:, -1]
    rewound = (counts > 1) & (last_offset < offset[:, -2])
    silent = (counts > 1) & (now_ms - last_at > np.maximum(last_at - first_at, SILENT_MS))
    known = there & (lag != UNKNOWN)
    caught_up = (known & (lag == 0)).any(axis=1)
    growing, first_lag, last_lag = _growth(lag, known)
    long = counts >= WINDOW // 2
    growing &= known.sum(axis=1) > 1
    rank = {one: number for number, one in enumerate(VERDICTS)}
    found = np.full(len(at), rank[LagVerdict.OK], np.int32)
    open_ = (counts > 0) & (lag_now > 0)
    found[open_ & long & growing & (last_lag > first_lag) & ~caught_up] = rank[LagVerdict.RISING]
    found[open_ & long & growing & (first_offset == last_offset) & ~caught_up] = rank[LagVerdict.STALLED]
    found[open_ & silent] = rank[LagVerdict.STOPPED]
    found[open_ & rewound] = rank[LagVerdict.REWOUND]
    return found


def _growth(lag: Any, known: Any) -> tuple[Any, Any, Any]:
    """Whether known lags never shrink, and the first and the last of them."""
    growing = np.ones(len(lag), np.bool_)
    first = np.zeros(len(lag), np.int64)
    last = np.zeros(len(lag), np.int64)
    begun = np.zeros(len(lag), np.bool_)
    for column in range(lag.shape[1]):
        now, value = known[:, column], lag[:, column]
        growing &= ~(now & begun) | (value >= last)
        first = np.where(now & ~begun, value, first)
        last = np.where(now, value, last)
        begun |= now
    return growing, first, last
