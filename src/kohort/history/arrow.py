"""The decoders as functions on Arrow arrays, which Spark's workers call, and the Spark types of what they return.

Arrow UDFs rather than mapInArrow and applyInArrow: those ask for pandas, these do not. Times are milliseconds here;
tables.py and reports.py make timestamps of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from kohort.history import decoding, stories

MEMBER = (
    "struct<member_id string, instance_id string, client_id string, client_host string, session_timeout_ms int, "
    "rebalance_timeout_ms int, topics array<string>, assignment array<struct<topic string, partitions array<int>>>>"
)
COMMIT = (
    "struct<group_id string, topic string, partition int, offset bigint, leader_epoch int, metadata string, "
    "commit_ms bigint, expire_ms bigint, tombstone boolean, problem string>"
)
GENERATION = (
    "struct<group_id string, generation int, protocol_type string, protocol string, leader_id string, "
    f"state_ms bigint, members array<{MEMBER}>, tombstone boolean, problem string>"
)
CAUSE = (
    "struct<kind string, text string, member_id string, instance_id string, client_id string, client_host string, "
    "at_ms bigint, after_ms bigint>"
)
REBALANCES = (
    "array<struct<started_ms bigint, completed_ms bigint, duration_ms bigint, generation int, members int, "
    "protocol string, rebalance_timeout_ms bigint, last_back string, last_back_after_ms bigint, "
    f"waiting_for array<string>, causes array<{CAUSE}>, source string>>"
)
LIVES = (
    "array<struct<member_id string, instance_id string, client_id string, client_host string, joined_ms bigint, "
    "ended_ms bigint, ended string, reason string, rejoins int, first_generation int, last_generation int, "
    "source string>>"
)


def spark_type(ddl: str) -> Any:
    from pyspark.sql.types import DataType

    return DataType.fromDDL(ddl)


def arrow_type(ddl: str) -> pa.DataType:
    from pyspark.sql.pandas.types import to_arrow_type

    return to_arrow_type(spark_type(ddl))


def decode_commits(keys: pa.Array, values: pa.Array) -> pa.Array:
    kind = arrow_type(COMMIT)
    columns = decoding.commit_columns(keys.to_pylist(), values.to_pylist())
    arrays = [pa.array(columns[field.name], field.type) for field in kind]
    return pa.StructArray.from_arrays(arrays, fields=list(kind))


def decode_generations(keys: pa.Array, values: pa.Array) -> pa.Array:
    rows = map(decoding.generation_row, keys.to_pylist(), values.to_pylist())
    return pa.array(list(rows), arrow_type(GENERATION))


def _each(read: Callable[[Iterable[Any]], list[dict[str, Any]]], groups: pa.Array, ddl: str) -> pa.Array:
    """`read` of the records of each group, a list in, a list out."""
    return pa.array([read(rows) for rows in groups.to_pylist()], arrow_type(ddl))


def rebalances_of_events(groups: pa.Array) -> pa.Array:
    return _each(stories.rebalances_of_events, groups, REBALANCES)


def rebalances_of_generations(groups: pa.Array) -> pa.Array:
    return _each(stories.rebalances_of_generations, groups, REBALANCES)


def lives_of_events(groups: pa.Array) -> pa.Array:
    return _each(stories.lives_of_events, groups, LIVES)


def lives_of_generations(groups: pa.Array) -> pa.Array:
    return _each(stories.lives_of_generations, groups, LIVES)


def udf(function: Callable[..., pa.Array], ddl: str) -> Any:
    """For Spark, and called once a row: the optimizer would else repeat it for every filter on what it returns."""
    from pyspark.sql.pandas.functions import ArrowUDFType, arrow_udf

    return arrow_udf(function, spark_type(ddl), ArrowUDFType.SCALAR).asNondeterministic()
