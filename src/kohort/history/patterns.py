"""Answers about how a group behaves over time: storms, flapping members, moved partitions, what each cause cost.

DataFrame in and DataFrame out, as in reports.py. What a storm is, and what a rebalance costs, insight/ decides; here it
is asked group by group, in parallel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from kohort.history import arrow
from kohort.history.reports import GENERATION_FIELDS, per_group, records_of
from kohort.insight.whatif import Choice

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

TOLD = (
    "started_ms", "completed_ms", "generation", "members_after", "protocol", "duration_ms", "estimated_standstill_ms",
    "causes",
)  # fmt: skip
"""Of a rebalance, what patterns and costs are made of."""


def _told(rebalances: DataFrame) -> DataFrame:
    return rebalances.select(
        "group_id",
        f.unix_millis("started").alias("started_ms"),
        f.unix_millis("completed").alias("completed_ms"),
        "generation",
        "members_after",
        "protocol",
        "duration_ms",
        f.when(f.col("estimated"), f.col("standstill_ms")).alias("estimated_standstill_ms"),
        "causes",
    )


def _each_group(rebalances: DataFrame) -> DataFrame:
    return _told(rebalances).groupBy("group_id").agg(f.collect_list(f.struct(*TOLD)).alias("records"))


def storms(rebalances: DataFrame) -> DataFrame:
    """One row a storm, five rebalances or more within five minutes: when, how many, why, and the standstill in all."""
    each = _each_group(rebalances)
    rows = each.select("group_id", arrow.udf(arrow.storms, arrow.STORMS)("records").alias("rows"))
    found = rows.select("group_id", f.inline("rows"))
    return found.select(
        "group_id",
        f.timestamp_millis("started_ms").alias("started"),
        f.timestamp_millis("ended_ms").alias("ended"),
        "rebalances",
        f.get("kinds", f.lit(0))["kind"].alias("cause"),
        "kinds",
        "standstill_ms",
    )


def flapping(rebalances: DataFrame) -> DataFrame:
    """One row a client that went three times or more within ten minutes: when, how often, and how."""
    each = _each_group(rebalances)
    rows = each.select("group_id", arrow.udf(arrow.flapping, arrow.FLAPPING)("records").alias("rows"))
    found = rows.select("group_id", f.inline("rows"))
    return found.select(
        "group_id",
        "client_id",
        "instance_id",
        "client_host",
        f.timestamp_millis("started_ms").alias("started"),
        f.timestamp_millis("ended_ms").alias("ended"),
        "times",
        f.col("kind").alias("how"),
    )


def moves(generations: DataFrame) -> DataFrame:
    """One row a generation: how many partitions have another reader than before, and how evenly they are dealt out.

    `lost` have no reader any more, `came` had none; a client that comes back has kept what it reads again.
    """
    stored = generations.where("NOT tombstone")
    rows = per_group(stored, GENERATION_FIELDS, arrow.moves, arrow.MOVES)
    return rows.withColumn("time", f.timestamp_millis("at_ms")).drop("at_ms")


def stickiness(moves: DataFrame) -> DataFrame:
    """Per group: partitions that changed hands a rebalance, the share that stayed, and how even it was.

    `uneven` counts generations in which a member had two partitions or more above another; `idle` those in which one
    had nothing though there was more than one partition a member.
    """
    both = f.col("moved") + f.col("kept")
    return moves.groupBy("group_id").agg(
        f.count("*").alias("generations"),
        f.sum("moved").alias("moved"),
        f.sum("kept").alias("kept"),
        (f.sum("moved") / f.count("*")).alias("moved_per_rebalance"),
        f.try_divide(f.sum("kept"), f.sum(both)).alias("kept_share"),
        f.max("most").alias("most"),
        f.count_if(f.col("most") - f.col("least") > 1).alias("uneven"),
        f.count_if((f.col("least") == 0) & (f.col("partitions") >= f.col("members"))).alias("idle"),
    )


def rebalance_costs(rebalances: DataFrame, generations: DataFrame) -> DataFrame:
    """One row a rebalance: milliseconds times partitions without a reader, within it and before it was noticed."""
    both = _with_generations(rebalances, generations)
    rows = both.select("group_id", arrow.udf(arrow.costs, arrow.COSTS)("records", "stored").alias("rows"))
    return rows.select("group_id", f.inline("rows"))


def _with_generations(rebalances: DataFrame, generations: DataFrame) -> DataFrame:
    stored = records_of(generations.where("NOT tombstone"), GENERATION_FIELDS).withColumnRenamed("records", "stored")
    return _each_group(rebalances).join(stored, "group_id", "left")


def whatif(rebalances: DataFrame, generations: DataFrame, choice: Choice) -> DataFrame:
    """One row a group: rebalances, moved partitions and standstill as they were, and as they would have been.

    The recorded memberships are replayed with another choice; `notes` say what is not known.
    """
    both = _with_generations(rebalances, generations)
    made = both.select("group_id", arrow.udf(arrow.whatif(choice), arrow.WHATIF)("records", "stored").alias("of"))
    found = made.select("group_id", "of.*")
    seconds = {name.replace("_ms", "_s"): f.col(name) / 1000 for name in ("partition_ms", "would_partition_ms")}
    return found.withColumns(seconds).drop("partition_ms", "would_partition_ms")


def costs(rebalance_costs: DataFrame) -> DataFrame:
    """Per group and kind of cause: partition-seconds without a reader, in all and of which before anybody noticed.

    A session timeout costs most of it before the rebalance begins: nobody reads what the dead member held.
    """
    total = f.col("standing") + f.col("unnoticed")
    return rebalance_costs.groupBy("group_id", "cause").agg(
        f.count("*").alias("rebalances"),
        _seconds(total).alias("partition_s"),
        _seconds(f.col("unnoticed")).alias("unnoticed_s"),
        _seconds(f.when(f.col("estimated"), f.col("standing")).otherwise(0)).alias("estimated_s"),
        f.max("partitions").alias("partitions"),
    )


def _seconds(partition_ms: Column) -> Column:
    return f.sum(partition_ms) / 1000


def worst_groups(
    rebalances: DataFrame,
    costs: DataFrame,
    storms: DataFrame,
    flapping: DataFrame,
    stickiness: DataFrame,
    lag: DataFrame,
    verdicts: DataFrame,
) -> DataFrame:
    """One row a group with what the other reports say of it in all; `verdict` and lag are those of the last look."""
    summed = rebalances.groupBy("group_id").agg(
        f.count("*").alias("rebalances"),
        f.coalesce(f.sum("standstill_ms"), f.lit(0)).alias("standstill_ms"),
        f.coalesce(f.bool_or("estimated"), f.lit(False)).alias("estimated"),
    )
    without = costs.groupBy("group_id").agg(f.sum("partition_s").alias("partition_s"))
    stormy = storms.groupBy("group_id").agg(f.count("*").alias("storms"))
    flaps = flapping.groupBy("group_id").agg(f.count("*").alias("flapping"))
    last = f.struct("time", "lag", "lag_ms")
    latest = lag.groupBy("group_id", "topic", "partition").agg(f.max_by(last, "time").alias("last"))
    behind = latest.groupBy("group_id").agg(f.sum("last.lag").alias("lag"), f.max("last.lag_ms").alias("lag_ms"))
    ended = verdicts.groupBy("group_id").agg(f.max_by("verdict", "time").alias("verdict"))
    moved = stickiness.select("group_id", "moved_per_rebalance")
    joined = summed
    for other in (without, stormy, flaps, moved, behind, ended):
        joined = joined.join(other, "group_id", "full")
    counts = {name: f.coalesce(name, f.lit(0)) for name in ("rebalances", "standstill_ms", "storms", "flapping")}
    return joined.withColumns(counts | {"estimated": f.coalesce("estimated", f.lit(False))})
