"""Answers from the tables, DataFrame in and DataFrame out: Spark SQL alone, but for what caused a rebalance.

Durations are milliseconds, times are timestamps. Nothing here reads from a cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as f

from kohort.history import arrow
from kohort.history.decoding import EVENT_FIELDS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

HOUR_MS = 3_600_000
PLACE = ("group_id", "topic", "partition")
_GENERATION_FIELDS = ("generation", "protocol", "leader_id", "members")
_RECORD_FIELDS = ("family", "kind", "member_id", "data", "tombstone")


def _per_group(table: DataFrame, fields: tuple[str, ...], function: Any, kind: Any) -> DataFrame:
    """The rows that `function` makes of all records of a group, with the group's id."""
    record = f.struct(f.unix_millis("time").alias("at_ms"), "record_offset", *fields)
    groups = table.groupBy("group_id").agg(f.collect_list(record).alias("records"))
    made = groups.select("group_id", arrow.udf(function, kind)("records").alias("rows"))
    return made.select("group_id", f.inline("rows"))


def _of_best(
    events: DataFrame,
    generations: DataFrame | None,
    group_records: DataFrame | None,
    functions: tuple[Any, Any, Any],
    kind: Any,
) -> DataFrame:
    """Of the events where a group has some, else of its stored generations and the records of its epochs."""
    fields = tuple(name for name in EVENT_FIELDS if name != "group_id")
    told = _per_group(events, fields, functions[0], kind)
    known = events.select("group_id").distinct()
    if generations is not None:
        others = generations.where("NOT tombstone").join(known, "group_id", "left_anti")
        told = told.unionByName(_per_group(others, _GENERATION_FIELDS, functions[1], kind))
    if group_records is not None:
        others = group_records.where("family = 'consumer'").join(known, "group_id", "left_anti")
        told = told.unionByName(_per_group(others, _RECORD_FIELDS, functions[2], kind))
    return told


# -- rebalances -------------------------------------------------------------------------------------------------------


def rebalances(
    events: DataFrame, generations: DataFrame | None = None, group_records: DataFrame | None = None
) -> DataFrame:
    """One row a rebalance with who caused it; `cause` and `reason` are those of the first cause.

    Groups without events are told from their `generations`, without durations and without how somebody went, and those
    of KIP-848 from their `group_records`, an epoch a row; `source` says which. `completed` is empty while one is under
    way, `duration_ms` also where the group emptied.
    """
    functions = (arrow.rebalances_of_events, arrow.rebalances_of_generations, arrow.rebalances_of_records)
    rows = _of_best(events, generations, group_records, functions, arrow.REBALANCES)
    before = f.lag("members").over(Window.partitionBy("group_id").orderBy("started_ms", "generation"))
    first = f.get("causes", f.lit(0))
    return rows.select(
        "group_id",
        "generation",
        f.timestamp_millis("started_ms").alias("started"),
        f.timestamp_millis("completed_ms").alias("completed"),
        "duration_ms",
        first["kind"].alias("cause"),
        first["text"].alias("reason"),
        f.coalesce(first["instance_id"], first["client_id"], first["member_id"]).alias("member"),
        first["client_host"].alias("client_host"),
        f.coalesce(before, f.when(f.col("generation") == 1, 0)).alias("members_before"),
        f.col("members").alias("members_after"),
        "protocol",
        f.coalesce(f.contains("protocol", f.lit("cooperative")), f.lit(False)).alias("cooperative"),
        "rebalance_timeout_ms",
        "last_back",
        "last_back_after_ms",
        "waiting_for",
        "causes",
        "source",
    )


def causes(rebalances: DataFrame) -> DataFrame:
    """Per group and kind of cause: how many rebalances it began and their share, how long the group stood still.

    `times` also counts those for which a rebalance that was under way did not end. A cooperative rebalance is no
    standstill: members go on with what they keep.
    """
    begun = rebalances.groupBy("group_id", f.coalesce("cause", f.lit("unknown")).alias("cause")).agg(
        f.count("*").alias("rebalances"),
        f.coalesce(f.sum(_standstill()), f.lit(0)).alias("standstill_ms"),
        f.max(_standstill()).alias("longest_ms"),
        f.max("started").alias("last"),
    )
    each = rebalances.select("group_id", f.explode("causes").alias("one"))
    times = each.groupBy("group_id", f.col("one.kind").alias("cause")).agg(f.count("*").alias("times"))
    joined = begun.join(times, ["group_id", "cause"], "full")
    count = f.coalesce("rebalances", f.lit(0))
    return joined.select(
        "group_id",
        "cause",
        count.alias("rebalances"),
        (count / f.sum(count).over(Window.partitionBy("group_id"))).alias("share"),
        f.coalesce("standstill_ms", f.lit(0)).alias("standstill_ms"),
        "longest_ms",
        f.coalesce("times", "rebalances").alias("times"),
        "last",
    )


def _standstill() -> Column:
    return f.when(~f.col("cooperative"), f.col("duration_ms"))


def downtime(rebalances: DataFrame, bucket_ms: int = HOUR_MS) -> DataFrame:
    """Per group and hour: how long it stood still and how long it rebalanced at all; spans are split at the hours.

    What is under way or was not measured (`source` generations) does not count.
    """
    start, length = f.unix_millis("started"), f.col("duration_ms")
    spans = rebalances.where("duration_ms IS NOT NULL").select(
        "group_id", "cooperative", start.alias("start"), (start + length).alias("end")
    )
    index = f.explode(f.sequence(f.floor(f.col("start") / bucket_ms), f.floor(f.col("end") / bucket_ms)))
    cut = spans.withColumn("bucket", index).withColumn("begin", f.col("bucket") * bucket_ms)
    spent = f.least("end", f.col("begin") + bucket_ms) - f.greatest("start", "begin")
    return cut.groupBy("group_id", f.timestamp_millis("begin").alias("hour")).agg(
        f.coalesce(f.sum(f.when(~f.col("cooperative"), spent)), f.lit(0)).alias("standstill_ms"),
        f.sum(spent).alias("rebalancing_ms"),
        f.count_if(f.col("start") >= f.col("begin")).alias("rebalances"),
        (f.coalesce(f.sum(f.when(~f.col("cooperative"), spent)), f.lit(0)) / bucket_ms).alias("share"),
    )


def member_lives(
    events: DataFrame, generations: DataFrame | None = None, group_records: DataFrame | None = None
) -> DataFrame:
    """One row a member id: when it joined, when and how it ended (`ended` is empty while it is in)."""
    functions = (arrow.lives_of_events, arrow.lives_of_generations, arrow.lives_of_records)
    rows = _of_best(events, generations, group_records, functions, arrow.LIVES)
    return rows.select(
        "group_id",
        "member_id",
        "instance_id",
        "client_id",
        "client_host",
        f.timestamp_millis("joined_ms").alias("joined"),
        f.timestamp_millis("ended_ms").alias("left"),
        (f.col("ended_ms") - f.col("joined_ms")).alias("lifetime_ms"),
        "ended",
        "reason",
        "rejoins",
        "first_generation",
        "last_generation",
        "source",
    )


# -- epochs of KIP-848 groups ----------------------------------------------------------------------------------------


def handovers(group_records: DataFrame, topics: DataFrame | None = None) -> DataFrame:
    """One row a partition that a target gave to another member: who had it, who waited, and how long.

    `released` is when the one before had given it up, `assigned` when the next had it; both empty while somebody waits.
    `topics` (topic_id, topic) gives topics their names; without it a topic is known by its id.
    """
    consumer = group_records.where("family = 'consumer'")
    rows = _per_group(consumer, _RECORD_FIELDS, arrow.handovers_of_records, arrow.HANDOVERS)
    name = f.col("topic_id")
    if topics is not None:
        rows, name = rows.join(topics, "topic_id", "left"), f.coalesce("topic", "topic_id")
    return rows.select(
        "group_id",
        name.alias("topic"),
        "partition",
        "from_member",
        "to_member",
        f.timestamp_millis("targeted_ms").alias("targeted"),
        f.timestamp_millis("released_ms").alias("released"),
        f.timestamp_millis("assigned_ms").alias("assigned"),
        "waited_ms",
    )


def expressions(group_records: DataFrame) -> DataFrame:
    """One row a change of what a subscription's regular expression stands for."""
    consumer = group_records.where("family = 'consumer'")
    rows = _per_group(consumer, _RECORD_FIELDS, arrow.expressions_of_records, arrow.EXPRESSIONS)
    return rows.select("group_id", f.timestamp_millis("at_ms").alias("time"), "regex", "topics")


# -- commits ----------------------------------------------------------------------------------------------------------


def _steps(commits: DataFrame) -> DataFrame:
    """Commits with how far each went beyond the one before; nothing is known before the first."""
    ordered = Window.partitionBy(*PLACE).orderBy("record_offset")
    return commits.where("NOT tombstone").withColumn("step", f.col("offset") - f.lag("offset").over(ordered))


def commit_progress(commits: DataFrame, window: str = "1 minute") -> DataFrame:
    """Per window and partition of a group: records by which the committed offset advanced, and their rate.

    `rewinds` counts commits of a smaller offset: a reset, or a member that committed what it had lost.
    """
    in_window = _steps(commits).groupBy(f.window("time", window).alias("window"), *PLACE)
    sums = in_window.agg(
        f.count("*").alias("commits"),
        f.coalesce(f.sum(f.greatest("step", f.lit(0))), f.lit(0)).alias("records"),
        f.count_if(f.col("step") < 0).alias("rewinds"),
        f.max_by("offset", "record_offset").alias("last_offset"),
    )
    start, end = f.col("window.start"), f.col("window.end")
    seconds = (f.unix_millis(end) - f.unix_millis(start)) / 1000
    return sums.select(
        start.alias("start"),
        end.alias("end"),
        *PLACE,
        "commits",
        "records",
        (f.col("records") / seconds).alias("records_per_s"),
        "rewinds",
        "last_offset",
    )


def lag(commits: DataFrame, end_offsets: DataFrame) -> DataFrame:
    """Per time of `end_offsets` and partition of a group: the offset committed by then, and how far behind it was.

    Empty where nothing was committed yet, or the offset was deleted; never negative.
    """
    looks = commits.select(*PLACE).distinct().join(end_offsets, ["topic", "partition"])
    nothing = f.lit(None)
    asked = looks.select(
        *PLACE, "time", f.lit(1).alias("is_look"), f.lit(0).cast("bigint").alias("record_offset"), "end_offset",
        nothing.cast("struct<offset:bigint,time:timestamp>").alias("stored"),
    )  # fmt: skip
    known = commits.select(
        *PLACE, "time", f.lit(0).alias("is_look"), "record_offset", nothing.cast("bigint").alias("end_offset"),
        f.struct("offset", "time").alias("stored"),
    )  # fmt: skip
    order = Window.partitionBy(*PLACE).orderBy("time", "is_look", "record_offset")
    last = f.last("stored", ignorenulls=True).over(order)
    seen = asked.unionByName(known).withColumn("stored", last).where("is_look = 1")
    behind = f.when(f.col("stored.offset").isNotNull(), f.greatest(f.expr("end_offset - stored.offset"), f.lit(0)))
    return seen.select(
        "time",
        *PLACE,
        f.col("stored.offset").alias("committed_offset"),
        f.col("stored.time").alias("committed"),
        "end_offset",
        behind.alias("lag"),
    )


def stuck_partitions(lag: DataFrame) -> DataFrame:
    """Partitions whose end moved on while the group's committed offset did not: since when, and how far behind."""
    last = f.max_by("committed_offset", "time").over(Window.partitionBy(*PLACE))
    still = lag.where("committed_offset IS NOT NULL").withColumn("last_offset", last)
    found = (
        still.where("committed_offset = last_offset")
        .groupBy(*PLACE)
        .agg(
            f.first("last_offset").alias("committed_offset"),
            f.min("time").alias("since"),
            f.max("time").alias("until"),
            (f.max("end_offset") - f.min("end_offset")).alias("arrived"),
            f.max_by("lag", "time").alias("lag"),
            f.max("committed").alias("last_commit"),
        )
    )
    return found.where("arrived > 0 AND lag > 0")


def top_talkers(commits: DataFrame, generations: DataFrame | None = None) -> DataFrame:
    """Per group: what it writes to `__consumer_offsets`, how often it commits, how many records that covers."""
    wrote = (
        _steps(commits)
        .groupBy("group_id")
        .agg(
            f.count("*").alias("commits"),
            f.count_distinct("topic", "partition").alias("partitions"),
            f.coalesce(f.sum(f.greatest("step", f.lit(0))), f.lit(0)).alias("records"),
            f.sum("stored_bytes").alias("commit_bytes"),
            f.min("time").alias("first"),
            f.max("time").alias("last"),
        )
    )
    if generations is not None:
        made = generations.groupBy("group_id").agg(
            f.count_if(~f.col("tombstone")).alias("generations"), f.sum("stored_bytes").alias("generation_bytes")
        )
        wrote = wrote.join(made, "group_id", "full")
    else:
        wrote = wrote.withColumns({"generations": f.lit(0), "generation_bytes": f.lit(0)})
    seconds = (f.unix_millis("last") - f.unix_millis("first")) / 1000
    commits_or_0 = f.coalesce("commits", f.lit(0))
    return wrote.select(
        "group_id",
        commits_or_0.alias("commits"),
        (commits_or_0 / f.sum(commits_or_0).over(Window.partitionBy())).alias("share"),
        f.try_divide(f.col("commits"), seconds).alias("commits_per_s"),
        f.coalesce("partitions", f.lit(0)).alias("partitions"),
        f.coalesce("records", f.lit(0)).alias("records"),
        f.coalesce("generations", f.lit(0)).alias("generations"),
        (f.coalesce("commit_bytes", f.lit(0)) + f.coalesce("generation_bytes", f.lit(0))).alias("stored_bytes"),
        "first",
        "last",
    )
