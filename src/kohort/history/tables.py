"""From a cluster to Spark DataFrames: group events, commits, generations, end offsets. What they mean: reports.py.

Every table can be narrowed to `groups` and to a time, `since` <= time < `until`; both reach the cluster, so that only
what is asked for is read. `settings` are client settings by Kafka's names, such as sasl.username.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f

from kohort.coordinator.causes import CauseKind
from kohort.coordinator.events import EVENTS_TOPIC
from kohort.coordinator.records import OFFSETS_TOPIC, partition_for
from kohort.history import arrow
from kohort.history.decoding import (
    CAUSE_FIELDS,
    COMMIT_KEYS,
    EVENT_FIELDS,
    GENERATION_KEYS,
    key_prefixes,
)
from kohort.history.kinds import MODERN_KEYS
from kohort.protocol.uuids import to_base64

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

Time = datetime | int
"""A moment: a datetime (UTC where it names no zone) or milliseconds since 1970."""

_KNOWN_KINDS = [kind.value for kind in CauseKind if kind is not CauseKind.UNKNOWN]
RECORDS = "key binary, value binary, partition int, offset bigint, timestamp timestamp"


@dataclass(frozen=True, slots=True)
class Scope:
    """Which cluster, groups and time."""

    servers: str
    groups: tuple[str, ...]
    since_ms: int | None
    until_ms: int | None
    settings: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        servers: str,
        groups: Iterable[str] | str | None,
        since: Time | None,
        until: Time | None,
        settings: Mapping[str, Any] | None,
    ) -> Scope:
        named = (groups,) if isinstance(groups, str) else tuple(groups or ())
        return cls(servers, named, millis(since), millis(until), dict(settings or {}))

    def options(self) -> dict[str, str]:
        """Of settings that tools share in one file, what a read has no use for is left out."""
        from kohort.spark.options import GROUP_ONLY, NOT_HERE

        taken = {
            name: value for name, value in self.settings.items() if name not in NOT_HERE and name not in GROUP_ONLY
        }
        given = {f"kafka.{name}": str(value) for name, value in taken.items()}
        return given | {"kafka.bootstrap.servers": self.servers}

    def within(self, frame: DataFrame) -> DataFrame:
        """By the column time: the records' own timestamps can differ from it a little."""
        if self.since_ms is not None:
            frame = frame.where(f.col("time") >= f.timestamp_millis(f.lit(self.since_ms)))
        if self.until_ms is not None:
            frame = frame.where(f.col("time") < f.timestamp_millis(f.lit(self.until_ms)))
        return frame


def millis(moment: Time | None) -> int | None:
    if moment is None or isinstance(moment, int):
        return moment
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


# -- reading ----------------------------------------------------------------------------------------------------------


def _records(spark: SparkSession, scope: Scope, topic: str) -> DataFrame:
    """The records of a topic within the scope, where it exists; of named groups, only the partitions they are in."""
    count = _partition_count(scope, topic)
    if not count:
        return spark.createDataFrame([], RECORDS)
    wanted = sorted({partition_for(group, count) for group in scope.groups} or range(count))
    reader = spark.read.format("kohort").options(**scope.options()).option("assign", json.dumps({topic: wanted}))
    # Compaction may take a record away between the planning and the reading.
    reader = reader.option("failOnDataLoss", "false").option("kafka.isolation.level", "read_committed")
    if scope.since_ms is not None:
        reader = reader.option("startingTimestamp", str(scope.since_ms))
        reader = reader.option("startingOffsetsByTimestampStrategy", "latest")
    if scope.until_ms is not None:
        reader = reader.option("endingTimestamp", str(scope.until_ms))
    return reader.schema(RECORDS).load()


def _partition_count(scope: Scope, topic: str) -> int:
    with _admin(scope) as admin:
        if topic not in admin.list_topics(internal=True):
            return 0
        return len(admin.describe_topics([topic])[topic].partitions)


def _admin(scope: Scope) -> Any:
    from kohort.client import Admin

    return Admin({**scope.settings, "bootstrap.servers": scope.servers})


def _position() -> list[Column]:
    return [f.col("partition").alias("record_partition"), f.col("offset").alias("record_offset")]


# -- group events -----------------------------------------------------------------------------------------------------


def group_events(
    spark: SparkSession,
    servers: str,
    groups: Iterable[str] | str | None = None,
    since: Time | None = None,
    until: Time | None = None,
    settings: Mapping[str, Any] | None = None,
) -> DataFrame:
    """One row an event of `__kohort_group_events`, which a kohort broker keeps; no rows on any other Kafka."""
    scope = Scope.of(servers, groups, since, until, settings)
    return scope.within(_events(_records(spark, scope, EVENTS_TOPIC), scope))


def group_events_stream(
    spark: SparkSession,
    servers: str,
    group_id: str,
    groups: Iterable[str] | str | None = None,
    settings: Mapping[str, Any] | None = None,
    starting_offsets: str = "earliest",
) -> DataFrame:
    """The same as a stream, which reads the events as a member of the group `group_id`."""
    scope = Scope.of(servers, groups, None, None, settings)
    reader = spark.readStream.format("kohort").options(**scope.options()).option("subscribe", EVENTS_TOPIC)
    records = reader.option("group.id", group_id).option("startingOffsets", starting_offsets).load()
    return _events(records, scope)


def _events(records: DataFrame, scope: Scope) -> DataFrame:
    """What is not an event has no type, group or time, and is left out."""
    if scope.groups:
        records = records.where(f.col("key").cast("string").isin(*scope.groups))
    schema = ", ".join(f"{name} {kind}" for name, kind in {"at_ms": "bigint", **EVENT_FIELDS}.items())
    text = f.col("value").cast("string")
    found = records.select(
        f.from_json(text, f"{schema}, reason string").alias("event"), text.alias("text"), *_position()
    )
    found = found.where("event.type IS NOT NULL AND event.group_id IS NOT NULL AND event.at_ms IS NOT NULL")
    fields = [_cause() if name == "cause" else f.col(f"event.{name}") for name in EVENT_FIELDS]
    return found.select(f.timestamp_millis("event.at_ms").alias("time"), *fields, "record_partition", "record_offset")


def _cause() -> Column:
    """With `raw` where this version does not know the kind; of a broker without typed causes, its sentence."""
    kind, sentence = f.col("event.cause.kind"), f.col("event.reason")
    raw = f.when(~kind.isin(*_KNOWN_KINDS), f.get_json_object("text", "$.cause"))
    unknown = {"kind": f.lit(CauseKind.UNKNOWN.value), "raw": sentence}
    fields = (unknown.get(name, f.lit(None)).cast(type_).alias(name) for name, type_ in CAUSE_FIELDS.items())
    told = f.when(sentence.isNotNull(), f.struct(*fields))
    return f.when(kind.isNotNull(), f.col("event.cause").withField("raw", raw)).otherwise(told).alias("cause")


# -- __consumer_offsets -----------------------------------------------------------------------------------------------


def commits(
    spark: SparkSession,
    servers: str,
    groups: Iterable[str] | str | None = None,
    since: Time | None = None,
    until: Time | None = None,
    settings: Mapping[str, Any] | None = None,
) -> DataFrame:
    """One row a committed offset that is still in the log. A tombstone, the end of an offset, is a row without one."""
    scope = Scope.of(servers, groups, since, until, settings)
    decoded = _decoded(spark, scope, COMMIT_KEYS, arrow.udf(arrow.decode_commits, arrow.COMMIT))
    found = decoded.where("stored.problem IS NULL").select(
        f.coalesce(f.timestamp_millis("stored.commit_ms"), "timestamp").alias("time"),
        *(f.col(f"stored.{name}") for name in ("group_id", "topic", "partition", "offset", "leader_epoch", "metadata")),
        f.timestamp_millis("stored.expire_ms").alias("expires"),
        "stored.tombstone",
        "stored_bytes",
        "record_partition",
        "record_offset",
    )
    return scope.within(found)


def generations(
    spark: SparkSession,
    servers: str,
    groups: Iterable[str] | str | None = None,
    since: Time | None = None,
    until: Time | None = None,
    settings: Mapping[str, Any] | None = None,
) -> DataFrame:
    """One row a stored generation of a classic group that is still in the log. A tombstone has its group alone."""
    scope = Scope.of(servers, groups, since, until, settings)
    decoded = _decoded(spark, scope, GENERATION_KEYS, arrow.udf(arrow.decode_generations, arrow.GENERATION))
    fields = ("group_id", "generation", "protocol_type", "protocol", "leader_id", "members", "tombstone")
    found = decoded.where("stored.problem IS NULL").select(
        f.coalesce(f.timestamp_millis("stored.state_ms"), "timestamp").alias("time"),
        *(f.col(f"stored.{name}") for name in fields),
        "stored_bytes",
        "record_partition",
        "record_offset",
    )
    return scope.within(found)


def _decoded(spark: SparkSession, scope: Scope, kinds: Sequence[bytes], decode: Any) -> DataFrame:
    """Keys tell kinds and groups apart: what is not asked for never reaches Python."""
    records = _records(spark, scope, OFFSETS_TOPIC).where(_begins_with(key_prefixes(kinds, scope.groups)))
    return records.select(
        decode("key", "value").alias("stored"),
        "timestamp",
        (f.octet_length("key") + f.coalesce(f.octet_length("value"), f.lit(0))).alias("stored_bytes"),
        *_position(),
    )


def _begins_with(prefixes: Sequence[bytes]) -> Column:
    found = f.lit(False)
    for prefix in prefixes:
        found = found | f.startswith(f.col("key"), f.lit(prefix))
    return found


def group_records(
    spark: SparkSession,
    servers: str,
    groups: Iterable[str] | str | None = None,
    since: Time | None = None,
    until: Time | None = None,
    settings: Mapping[str, Any] | None = None,
) -> DataFrame:
    """One row a record of a consumer (KIP-848), share or streams group that is still in the log; `data` is JSON."""
    scope = Scope.of(servers, groups, since, until, settings)
    decode = arrow.udf(arrow.decode_group_records, arrow.GROUP_RECORD)
    fields = ("group_id", "family", "kind", "member_id", "epoch", "data", "tombstone")
    found = (
        _decoded(spark, scope, MODERN_KEYS, decode)
        .where("stored.problem IS NULL")
        .select(
            f.col("timestamp").alias("time"),
            *(f.col(f"stored.{name}") for name in fields),
            "stored_bytes",
            "record_partition",
            "record_offset",
        )
    )
    return scope.within(found)


def topic_ids(spark: SparkSession, servers: str, settings: Mapping[str, Any] | None = None) -> DataFrame:
    """The topics that exist by their ids: records of KIP-848 groups know no names."""
    with _admin(Scope.of(servers, None, None, None, settings)) as admin:
        names = admin.list_topics()
        found = admin.describe_topics(names) if names else {}
    rows = [(to_base64(topic.topic_id), name) for name, topic in found.items()]
    return spark.createDataFrame(rows, "topic_id string, topic string")


def record_counts(
    spark: SparkSession,
    servers: str,
    since: Time | None = None,
    until: Time | None = None,
    settings: Mapping[str, Any] | None = None,
) -> DataFrame:
    """One row a kind of record in `__consumer_offsets`: how many there are, and how many of them cannot be read."""
    each = _kinds(_records(spark, Scope.of(servers, None, since, until, settings), OFFSETS_TOPIC)).select("of.*")
    return each.groupBy("key_type", "kind", "family").agg(
        f.count("*").alias("records"), f.count("problem").alias("damaged")
    )


def quarantine(
    spark: SparkSession,
    servers: str,
    since: Time | None = None,
    until: Time | None = None,
    settings: Mapping[str, Any] | None = None,
) -> DataFrame:
    """One row a record of `__consumer_offsets` that no table has, raw, with what is wrong: unknown, or damaged."""
    each = _kinds(_records(spark, Scope.of(servers, None, since, until, settings), OFFSETS_TOPIC))
    return each.where("of.problem IS NOT NULL").select(
        f.col("timestamp").alias("time"),
        f.lit(OFFSETS_TOPIC).alias("topic"),
        "of.key_type",
        "of.kind",
        "of.problem",
        "key",
        "value",
        *_position(),
    )


def _kinds(records: DataFrame) -> DataFrame:
    return records.withColumn("of", arrow.udf(arrow.kinds_of, arrow.KIND)("key", "value"))


# -- kept tables ------------------------------------------------------------------------------------------------------


def kept_table(
    spark: SparkSession,
    directory: Path | str,
    table: str,
    groups: Iterable[str] | str | None = None,
    since: Time | None = None,
    until: Time | None = None,
) -> DataFrame:
    """A table that `kohort history ingest` keeps in a directory, with the columns that the live one has."""
    from pyspark.sql.pandas.types import from_arrow_schema

    from kohort.history.kept import TABLES, rounds
    from kohort.history.writing import SCHEMAS

    if table not in TABLES:
        raise ValueError(f"no table {table!r}: there are {', '.join(TABLES)}")
    rounds(Path(directory))  # says what is wrong with a directory that is none of ours
    scope = Scope.of("", groups, since, until, None)
    schema = from_arrow_schema(SCHEMAS[table])
    path = Path(directory) / table
    if not any(path.glob("day=*/r*.parquet")):
        return spark.createDataFrame([], schema)
    found = spark.read.schema(from_arrow_schema(SCHEMAS[table]).add("day", "date")).parquet(str(path))
    if scope.since_ms is not None:
        found = found.where(f.col("day") >= f.to_date(f.timestamp_millis(f.lit(scope.since_ms))))
    if scope.until_ms is not None:
        found = found.where(f.col("day") <= f.to_date(f.timestamp_millis(f.lit(scope.until_ms))))
    if scope.groups and "group_id" in schema.names:
        found = found.where(f.col("group_id").isin(*scope.groups))
    return scope.within(found.drop("day"))


# -- ends -------------------------------------------------------------------------------------------------------------


def end_offsets(
    spark: SparkSession,
    servers: str,
    topics: Iterable[str] | None = None,
    times: Iterable[Time] = (),
    settings: Mapping[str, Any] | None = None,
) -> DataFrame:
    """One row a partition and time: the offset after the last record that was there then, by the records' timestamps.

    The ends of now come with any `times`. Without `topics`, of all topics that are not internal.
    """
    scope = Scope.of(servers, None, None, None, settings)
    asked = sorted({at_ms for moment in times if (at_ms := millis(moment)) is not None})
    # A cluster's clock may be ahead of ours: now is not before what is asked for.
    now_ms = max([round(datetime.now(UTC).timestamp() * 1000), *(at_ms + 1 for at_ms in asked[-1:])])
    rows: list[tuple[datetime, str, int, int]] = []
    with _admin(scope) as admin:
        known = set(admin.list_topics())
        wanted = known if topics is None else known & set(topics)
        infos = admin.describe_topics(wanted) if wanted else {}
        partitions = [(name, p.partition) for name, info in infos.items() for p in info.partitions if p.leader >= 0]
        found = admin.list_offsets(dict.fromkeys(partitions, "latest")) if partitions else {}
        ends = {tp: place.offset for tp, place in found.items() if place is not None}
        for at_ms in asked if ends else ():
            then = admin.list_offsets(dict.fromkeys(ends, at_ms))
            rows += [(_moment(at_ms), *tp, place.offset if place else ends[tp]) for tp, place in then.items()]
    rows += [(_moment(now_ms), *tp, end) for tp, end in ends.items()]
    return spark.createDataFrame(rows, "time timestamp, topic string, partition int, end_offset bigint")


def _moment(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, UTC)
