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
GENERATION_FIELDS = ("generation", "protocol", "leader_id", "members")
_RECORD_FIELDS = ("family", "kind", "member_id", "data", "tombstone")


def records_of(table: DataFrame, fields: tuple[str, ...]) -> DataFrame:
    """All records of each group as one list, `records`."""
    record = f.struct(f.unix_millis("time").alias("at_ms"), "record_offset", *fields)
    return table.groupBy("group_id").agg(f.collect_list(record).alias("records"))


def per_group(table: DataFrame, fields: tuple[str, ...], function: Any, kind: Any) -> DataFrame:
    """The rows that `function` makes of all records of a group, with the group's id."""
    made = records_of(table, fields).select("group_id", arrow.udf(function, kind)("records").alias("rows"))
    return made.select("group_id", f.inline("rows"))


def _of_best(
    events: DataFrame,
    generations: DataFrame | None,
    group_records: DataFrame | None,
    functions: tuple[Any, Any, Any],
    kind: Any,
    more: tuple[str, ...] = (),
) -> DataFrame:
    """Of the events where a group has some, else of its stored generations and the records of its epochs.

    `more` are columns of the generations that are taken too.
    """
    fields = tuple(name for name in EVENT_FIELDS if name != "group_id")
    told = per_group(events, fields, functions[0], kind)
    known = events.select("group_id").distinct()
    if generations is not None:
        others = generations.where("NOT tombstone").join(known, "group_id", "left_anti")
        told = told.unionByName(per_group(others, (*GENERATION_FIELDS, *more), functions[1], kind))
    if group_records is not None:
        others = group_records.where("family = 'consumer'").join(known, "group_id", "left_anti")
        told = told.unionByName(per_group(others, _RECORD_FIELDS, functions[2], kind))
    return told


# -- rebalances -------------------------------------------------------------------------------------------------------


def rebalances(
    events: DataFrame,
    generations: DataFrame | None = None,
    group_records: DataFrame | None = None,
    commits: DataFrame | None = None,
) -> DataFrame:
    """One row a rebalance with who caused it; `cause` and `reason` are those of the first cause.

    Groups without events are told from their `generations`, without durations and without how somebody went, and those
    of KIP-848 from their `group_records`, an epoch a row; `source` says which. `completed` is empty while one is under
    way, `duration_ms` also where the group emptied. `standstill_ms` is what nobody read for; where `estimated`, the
    most that it can have been: the gap between the group's last commit and the generation, of groups without events,
    where their `commits` are given.
    """
    functions = (arrow.rebalances_of_events, arrow.rebalances_of_generations, arrow.rebalances_of_records)
    stored = generations if generations is None else _with_last_commit(generations, commits)
    rows = _of_best(events, stored, group_records, functions, arrow.REBALANCES, ("last_commit_ms",))
    cooperative = f.coalesce(f.contains("protocol", f.lit("cooperative")), f.lit(False))
    still = f.coalesce("duration_ms", "estimated_standstill_ms")
    before = f.lag("members").over(Window.partitionBy("group_id").orderBy("started_ms", "generation"))
    first = f.get("causes", f.lit(0))
    return rows.select(
        "group_id",
        "generation",
        f.timestamp_millis("started_ms").alias("started"),
        f.timestamp_millis("completed_ms").alias("completed"),
        "duration_ms",
        f.when(cooperative & still.isNotNull(), 0).otherwise(still).alias("standstill_ms"),
        (f.col("duration_ms").isNull() & f.col("estimated_standstill_ms").isNotNull()).alias("estimated"),
        first["kind"].alias("cause"),
        first["text"].alias("reason"),
        f.coalesce(first["instance_id"], first["client_id"], first["member_id"]).alias("member"),
        first["client_host"].alias("client_host"),
        f.coalesce(before, f.when(f.col("generation") == 1, 0)).alias("members_before"),
        f.col("members").alias("members_after"),
        "protocol",
        cooperative.alias("cooperative"),
        "rebalance_timeout_ms",
        "last_back",
        "last_back_after_ms",
        "waiting_for",
        "causes",
        "source",
    )


def _with_last_commit(generations: DataFrame, commits: DataFrame | None) -> DataFrame:
    """`last_commit_ms`: when the group had last committed by then.

    Commits are many and generations few: minutes are summed up first, and only those in which a generation was stored
    are looked at commit by commit.
    """
    if commits is None:
        return generations.withColumn("last_commit_ms", f.lit(None).cast("bigint"))
    minute, at_ms = f.floor(f.unix_millis("time") / 60_000), f.unix_millis("time")
    stored = generations.withColumns({"minute": minute, "at_ms": at_ms})
    timed = commits.where("NOT tombstone").select("group_id", at_ms.alias("commit_ms"), minute.alias("minute"))
    minutes = timed.groupBy("group_id", "minute").agg(f.max("commit_ms").alias("latest"))
    ordered = Window.partitionBy("group_id").orderBy("minute").rowsBetween(Window.unboundedPreceding, -1)
    asked = stored.select("group_id", "minute").distinct()
    earlier = (
        minutes.join(asked.withColumn("asked", f.lit(True)), ["group_id", "minute"], "full")
        .withColumn("before_ms", f.last("latest", ignorenulls=True).over(ordered))
        .where("asked")
        .select("group_id", "minute", "before_ms")
    )
    moments = stored.select("group_id", "minute", "at_ms").distinct()
    near = (
        timed.join(f.broadcast(moments), ["group_id", "minute"])
        .where("commit_ms <= at_ms")
        .groupBy("group_id", "at_ms")
        .agg(f.max("commit_ms").alias("near_ms"))
    )
    found = stored.join(earlier, ["group_id", "minute"], "left").join(near, ["group_id", "at_ms"], "left")
    return found.withColumn("last_commit_ms", f.coalesce("near_ms", "before_ms")).drop(
        "minute", "at_ms", "near_ms", "before_ms"
    )


def causes(rebalances: DataFrame) -> DataFrame:
    """Per group and kind of cause: how many rebalances it began and their share, how long the group stood still.

    `times` also counts those for which a rebalance that was under way did not end. A cooperative rebalance is no
    standstill: members go on with what they keep. `estimated_ms` is the part of the standstill that nobody measured.
    """
    begun = rebalances.groupBy("group_id", f.coalesce("cause", f.lit("unknown")).alias("cause")).agg(
        f.count("*").alias("rebalances"),
        _total("standstill_ms").alias("standstill_ms"),
        _total("standstill_ms", f.col("estimated")).alias("estimated_ms"),
        f.max("standstill_ms").alias("longest_ms"),
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
        f.coalesce("estimated_ms", f.lit(0)).alias("estimated_ms"),
        "longest_ms",
        f.coalesce("times", "rebalances").alias("times"),
        "last",
    )


def _total(column: str, where: Column | None = None) -> Column:
    wanted = f.col(column) if where is None else f.when(where, f.col(column))
    return f.coalesce(f.sum(wanted), f.lit(0))


def downtime(rebalances: DataFrame, bucket_ms: int = HOUR_MS) -> DataFrame:
    """Per group and hour: how long it stood still and how long it rebalanced at all; spans are split at the hours.

    What is under way does not count. An estimated standstill ends with its generation, and counts under
    `estimated_ms` too.
    """
    start = f.unix_millis("started")
    length = f.coalesce("duration_ms", "standstill_ms")
    begin = f.when(f.col("estimated"), start - length).otherwise(start)
    spans = rebalances.where("coalesce(duration_ms, standstill_ms) IS NOT NULL").select(
        "group_id", "cooperative", "estimated", begin.alias("start"), (begin + length).alias("end")
    )
    index = f.explode(f.sequence(f.floor(f.col("start") / bucket_ms), f.floor(f.col("end") / bucket_ms)))
    cut = spans.withColumn("bucket", index).withColumn("begin", f.col("bucket") * bucket_ms)
    cut = cut.withColumn("spent", f.least("end", f.col("begin") + bucket_ms) - f.greatest("start", "begin"))
    still = _total("spent", ~f.col("cooperative"))
    return cut.groupBy("group_id", f.timestamp_millis("begin").alias("hour")).agg(
        still.alias("standstill_ms"),
        _total("spent", ~f.col("cooperative") & f.col("estimated")).alias("estimated_ms"),
        f.sum("spent").alias("rebalancing_ms"),
        f.count_if(f.col("start") >= f.col("begin")).alias("rebalances"),
        (still / bucket_ms).alias("share"),
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
    rows = per_group(consumer, _RECORD_FIELDS, arrow.handovers_of_records, arrow.HANDOVERS)
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
    rows = per_group(consumer, _RECORD_FIELDS, arrow.expressions_of_records, arrow.EXPRESSIONS)
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

    Empty where nothing was committed yet, or the offset was deleted; never negative. `lag_ms` is how long ago the next
    record to be read was written, between two known ends by interpolation; empty where that was before the first.
    """
    ends = _grown(end_offsets)
    looks = commits.select(*PLACE).distinct().join(ends, ["topic", "partition"])
    nothing = f.lit(None)
    asked = looks.select(
        *PLACE, "time", f.lit(1).alias("is_look"), f.lit(0).cast("bigint").alias("record_offset"), "end_offset",
        "life", nothing.cast("struct<offset:bigint,time:timestamp>").alias("stored"),
    )  # fmt: skip
    known = commits.select(
        *PLACE, "time", f.lit(0).alias("is_look"), "record_offset", nothing.cast("bigint").alias("end_offset"),
        nothing.cast("bigint").alias("life"), f.struct("offset", "time").alias("stored"),
    )  # fmt: skip
    order = Window.partitionBy(*PLACE).orderBy("time", "is_look", "record_offset")
    last = f.last("stored", ignorenulls=True).over(order)
    seen = asked.unionByName(known).withColumn("stored", last).where("is_look = 1")
    behind = f.when(f.col("stored.offset").isNotNull(), f.greatest(f.expr("end_offset - stored.offset"), f.lit(0)))
    found = seen.select(
        "time",
        *PLACE,
        f.col("stored.offset").alias("committed_offset"),
        f.col("stored.time").alias("committed"),
        "end_offset",
        behind.alias("lag"),
        "life",
    )
    return _with_lag_ms(found, ends)


def _grown(end_offsets: DataFrame) -> DataFrame:
    """Ends with the `life` of the partition: a topic that was created anew is another one, and begins at 0."""
    by_time = Window.partitionBy("topic", "partition").orderBy("time")
    fell = f.coalesce((f.col("end_offset") < f.lag("end_offset").over(by_time)).cast("bigint"), f.lit(0))
    return end_offsets.withColumn("fell", fell).withColumn("life", f.sum("fell").over(by_time)).drop("fell")


def _with_lag_ms(lag: DataFrame, ends: DataFrame) -> DataFrame:
    """Stretches in which a partition grew and the offsets to be found in them, sorted together."""
    place = ("topic", "partition", "life")
    by_time = Window.partitionBy(*place).orderBy("time")
    at_ms = f.unix_millis("time")
    stretch = f.struct(
        f.col("end_offset").alias("e0"), f.lead("end_offset").over(by_time).alias("e1"),
        at_ms.alias("t0"), f.lead(at_ms).over(by_time).alias("t1"),
    )  # fmt: skip
    grown = ends.withColumn("stretch", stretch).where("stretch.e1 > stretch.e0")
    grown = grown.select(*place, f.col("end_offset").alias("sought"), f.lit(0).alias("is_look"), "stretch")
    looks = lag.withColumns({"sought": f.col("committed_offset"), "is_look": f.lit(1)})
    ordered = Window.partitionBy(*place).orderBy("sought", "is_look")
    both = looks.unionByName(grown, allowMissingColumns=True)
    found = both.withColumn("in", f.last("stretch", ignorenulls=True).over(ordered)).where("is_look = 1")
    then = f.expr("in.t0 + (sought - in.e0) * (in.t1 - in.t0) div (in.e1 - in.e0)")
    behind = f.when(f.col("lag") == 0, 0).when(f.col("sought") < f.col("in.e1"), f.greatest(at_ms - then, f.lit(0)))
    return found.withColumn("lag_ms", behind).select(*(name for name in lag.columns if name != "life"), "lag_ms")


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
