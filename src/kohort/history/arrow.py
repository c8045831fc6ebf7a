"""The decoders as functions on Arrow arrays, which Spark's workers call, and the types of what they return.

Arrow UDFs rather than mapInArrow and applyInArrow: those ask for pandas, these do not. Times are milliseconds here;
tables.py and reports.py make timestamps of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from kohort.history import columnar, decoding, kinds, stories
from kohort.insight.whatif import Choice

TEXT, INT, LONG, FLAG = pa.string(), pa.int32(), pa.int64(), pa.bool_()
WHO = {"member_id": TEXT, "instance_id": TEXT, "client_id": TEXT, "client_host": TEXT}


def _struct(**fields: pa.DataType) -> pa.StructType:
    return pa.struct(list(fields.items()))


MEMBER = _struct(
    **WHO,
    session_timeout_ms=INT,
    rebalance_timeout_ms=INT,
    topics=pa.list_(TEXT),
    assignment=pa.list_(_struct(topic=TEXT, partitions=pa.list_(INT))),
)
COMMIT = _struct(
    group_id=TEXT,
    topic=TEXT,
    partition=INT,
    offset=LONG,
    leader_epoch=INT,
    metadata=TEXT,
    commit_ms=LONG,
    expire_ms=LONG,
    tombstone=FLAG,
    problem=TEXT,
)
GENERATION = _struct(
    group_id=TEXT,
    generation=INT,
    protocol_type=TEXT,
    protocol=TEXT,
    leader_id=TEXT,
    state_ms=LONG,
    members=pa.list_(MEMBER),
    tombstone=FLAG,
    problem=TEXT,
)
GROUP_RECORD = _struct(
    group_id=TEXT, member_id=TEXT, family=TEXT, kind=TEXT, epoch=INT, data=TEXT, tombstone=FLAG, problem=TEXT
)
KIND = _struct(key_type=INT, kind=TEXT, family=TEXT, problem=TEXT)
CAUSE = _struct(kind=TEXT, text=TEXT, **WHO, at_ms=LONG, after_ms=LONG, said=TEXT)
REBALANCES = pa.list_(
    _struct(
        started_ms=LONG,
        completed_ms=LONG,
        duration_ms=LONG,
        estimated_standstill_ms=LONG,
        generation=INT,
        members=INT,
        protocol=TEXT,
        rebalance_timeout_ms=LONG,
        last_back=TEXT,
        last_back_after_ms=LONG,
        waiting_for=pa.list_(TEXT),
        causes=pa.list_(CAUSE),
        source=TEXT,
    )
)
LIVES = pa.list_(
    _struct(
        **WHO,
        joined_ms=LONG,
        ended_ms=LONG,
        ended=TEXT,
        reason=TEXT,
        rejoins=INT,
        first_generation=INT,
        last_generation=INT,
        source=TEXT,
    )
)
STORMS = pa.list_(
    _struct(
        started_ms=LONG,
        ended_ms=LONG,
        rebalances=LONG,
        standstill_ms=LONG,
        kinds=pa.list_(_struct(kind=TEXT, times=LONG)),
    )
)
FLAPPING = pa.list_(_struct(**WHO, started_ms=LONG, ended_ms=LONG, times=LONG, kind=TEXT))
MOVES = pa.list_(
    _struct(
        at_ms=LONG,
        generation=INT,
        members=INT,
        partitions=INT,
        moved=INT,
        kept=INT,
        lost=INT,
        came=INT,
        most=INT,
        least=INT,
    )
)
_TALLY = {"rebalances": LONG, "moved": LONG, "standstill_ms": LONG, "partition_ms": LONG}
WHATIF = _struct(**_TALLY, **{f"would_{name}": kind for name, kind in _TALLY.items()}, notes=pa.list_(TEXT))
COSTS = pa.list_(
    _struct(started_ms=LONG, generation=INT, cause=TEXT, partitions=INT, standing=LONG, unnoticed=LONG, estimated=FLAG)
)

HANDOVERS = pa.list_(
    _struct(
        topic_id=TEXT,
        partition=INT,
        from_member=TEXT,
        to_member=TEXT,
        targeted_ms=LONG,
        released_ms=LONG,
        assigned_ms=LONG,
        waited_ms=LONG,
    )
)
EXPRESSIONS = pa.list_(_struct(at_ms=LONG, regex=TEXT, topics=pa.list_(TEXT)))


def decode_commits(keys: pa.Array, values: pa.Array) -> pa.Array:
    """By columns; record by record only what is not laid out as Kafka does it."""
    read = columnar.decode(keys, values)
    return _with_odd(commit_structs(read), read.odd, _one_by_one, keys, values)


def commit_structs(read: columnar.Commits) -> pa.Array:
    """Rows that are odd mean nothing."""
    nothing = read.tombstone

    def number(name: str, kind: pa.DataType, unknown: Any = False) -> pa.Array:
        return pa.array(getattr(read, name), kind, mask=nothing | unknown)

    arrays = {
        "group_id": read.group_id,
        "topic": read.topic,
        "partition": pa.array(read.partition, INT),
        "offset": number("offset", LONG),
        "leader_epoch": number("leader_epoch", INT, read.leader_epoch < 0),
        "metadata": read.metadata,
        "commit_ms": number("commit_ms", LONG, read.commit_ms < 0),
        "expire_ms": number("expire_ms", LONG, read.expire_ms < 0),
        "tombstone": pa.array(nothing),
        "problem": pa.nulls(len(nothing), TEXT),
    }
    return pa.StructArray.from_arrays([arrays[field.name] for field in COMMIT], fields=list(COMMIT))


def _with_odd(decoded: pa.Array, odd: Any, one_by_one: Any, keys: pa.Array, values: pa.Array) -> pa.Array:
    """`decoded`, with the rows that are `odd` replaced by what `one_by_one` makes of them."""
    rows = np.flatnonzero(odd)
    if not len(rows):
        return decoded
    order = np.arange(len(decoded))
    order[rows] = len(decoded) + np.arange(len(rows))
    return pa.concat_arrays([decoded, one_by_one(keys.take(pa.array(rows)), values.take(pa.array(rows)))]).take(order)


def _one_by_one(keys: pa.Array, values: pa.Array) -> pa.Array:
    columns = decoding.commit_columns(keys.to_pylist(), values.to_pylist())
    arrays = [pa.array(columns[field.name], field.type) for field in COMMIT]
    return pa.StructArray.from_arrays(arrays, fields=list(COMMIT))


def decode_generations(keys: pa.Array, values: pa.Array) -> pa.Array:
    rows = map(decoding.generation_row, keys.to_pylist(), values.to_pylist())
    return pa.array(list(rows), GENERATION)


def decode_group_records(keys: pa.Array, values: pa.Array) -> pa.Array:
    """Of keys that begin with one of kinds.MODERN_KEYS."""
    return pa.array(list(map(kinds.modern_row, keys.to_pylist(), values.to_pylist())), GROUP_RECORD)


def kinds_of(keys: pa.Array, values: pa.Array) -> pa.Array:
    """What each record is, and what is wrong with it; commits by columns."""
    read = columnar.decode(keys, values)
    rows = len(keys)
    kind, family = pa.repeat(kinds.KINDS[1].name, rows), pa.repeat(kinds.CLASSIC, rows)
    arrays = [pa.array(read.key_type, INT), kind, family, pa.nulls(rows, TEXT)]
    commits = pa.StructArray.from_arrays(arrays, fields=list(KIND))
    return _with_odd(commits, read.odd, _kinds_one_by_one, keys, values)


def _kinds_one_by_one(keys: pa.Array, values: pa.Array) -> pa.Array:
    pairs = zip(keys.to_pylist(), values.to_pylist(), strict=True)
    return pa.array([kinds.kind_of(key, value)._asdict() for key, value in pairs], KIND)


def _each(read: Callable[[Iterable[Any]], list[dict[str, Any]]], groups: pa.Array, kind: pa.DataType) -> pa.Array:
    """`read` of the records of each group, a list in, a list out."""
    return pa.array([read(rows) for rows in groups.to_pylist()], kind)


def rebalances_of_events(groups: pa.Array) -> pa.Array:
    return _each(stories.rebalances_of_events, groups, REBALANCES)


def rebalances_of_generations(groups: pa.Array) -> pa.Array:
    return _each(stories.rebalances_of_generations, groups, REBALANCES)


def lives_of_events(groups: pa.Array) -> pa.Array:
    return _each(stories.lives_of_events, groups, LIVES)


def lives_of_generations(groups: pa.Array) -> pa.Array:
    return _each(stories.lives_of_generations, groups, LIVES)


def rebalances_of_records(groups: pa.Array) -> pa.Array:
    return _each(stories.rebalances_of_records, groups, REBALANCES)


def lives_of_records(groups: pa.Array) -> pa.Array:
    return _each(stories.lives_of_records, groups, LIVES)


def handovers_of_records(groups: pa.Array) -> pa.Array:
    return _each(stories.handovers_of_records, groups, HANDOVERS)


def expressions_of_records(groups: pa.Array) -> pa.Array:
    return _each(stories.expressions_of_records, groups, EXPRESSIONS)


def storms(groups: pa.Array) -> pa.Array:
    return _each(stories.storms, groups, STORMS)


def flapping(groups: pa.Array) -> pa.Array:
    return _each(stories.flapping, groups, FLAPPING)


def moves(groups: pa.Array) -> pa.Array:
    return _each(stories.moves, groups, MOVES)


def costs(rebalances: pa.Array, generations: pa.Array) -> pa.Array:
    pairs = zip(rebalances.to_pylist(), generations.to_pylist(), strict=True)
    return pa.array([stories.costs(*pair) for pair in pairs], COSTS)


def whatif(choice: Choice) -> Callable[[pa.Array, pa.Array], pa.Array]:
    def each(rebalances: pa.Array, generations: pa.Array) -> pa.Array:
        pairs = zip(rebalances.to_pylist(), generations.to_pylist(), strict=True)
        return pa.array([stories.whatif(*pair, choice) for pair in pairs], WHATIF)

    return each


def udf(function: Callable[..., pa.Array], returns: pa.DataType) -> Any:
    """For Spark, and called once a row: the optimizer would else repeat it for every filter on what it returns."""
    from pyspark.sql import functions
    from pyspark.sql.pandas.types import from_arrow_type

    # It is there, and its own types do not know it.
    return functions.arrow_udf(function, from_arrow_type(returns)).asNondeterministic()  # type: ignore[attr-defined]
