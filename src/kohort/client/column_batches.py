"""Columns to the batches of a producer: which rows go where, and together. Pure; needs numpy and pyarrow.

A table is read in pieces of some ten thousand rows. All of them are checked before the first is sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from kohort.client.batching import BATCH_OVERHEAD
from kohort.client.partitioner import Sticky, partition_for_key
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.records.encode_columns import COLUMNS, RECORD_OVERHEAD, RowError, Rows, longest, pieces

TOPIC = "topic"


class Piece(NamedTuple):
    """Rows of one topic; `places` are those in what was given, for sentences."""

    topic: str
    batch: pa.RecordBatch
    places: Sequence[int]

    def rows(self, now_ms: int) -> Rows:
        return Rows(self.batch, now_ms, self.places)


def as_table(topic: str | None, data: Any) -> pa.Table:
    """Anything Arrow can read as a table: a Table, a RecordBatch, a frame of pandas or polars; ValueError or TypeError
    where its columns are not those of records."""
    table = _table(data)
    names = table.schema.names
    allowed = COLUMNS if topic is not None else (*COLUMNS, TOPIC)
    if len(set(names)) < len(names):
        raise ValueError(f"a column is there twice among {', '.join(names)}")
    if unknown := [name for name in names if name not in allowed]:
        where = "" if TOPIC not in unknown else "; with a column topic, give None for the topic"
        raise ValueError(f"unknown columns {', '.join(unknown)}: select from {', '.join(allowed)}{where}")
    if "value" not in names and "key" not in names:
        raise ValueError("a column value is needed, binary or string, or a key")
    if topic is None and TOPIC not in names:
        raise ValueError("no topic to write to: name it, or add a column topic")
    return table


def _table(data: Any) -> pa.Table:
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    try:
        return pa.table(data)
    except TypeError:
        raise TypeError(f"columns come as an Arrow table, or what can be one, not as {type(data).__name__}") from None


def digest(topic: str | None, table: pa.Table) -> int:
    """A sum over the rows, their times left out: the same for the same rows, in whatever process and order."""
    return sum(piece.rows(0).digest(piece.topic) for piece in by_topic(topic, table)) % 2**63


def by_topic(topic: str | None, table: pa.Table) -> Iterator[Piece]:
    first = 0
    for batch in pieces(table):
        if topic is not None:
            yield Piece(topic, batch, range(first, first + batch.num_rows))
        else:
            yield from _split(batch, first)
        first += batch.num_rows


def _split(batch: pa.RecordBatch, first: int) -> Iterator[Piece]:
    column = batch.column(TOPIC)
    if column.null_count:
        row = first + int(np.argmax(np.asarray(column.is_null())))
        raise RowError(TOPIC, f"row {row} has a null topic: fill the column topic")
    try:
        names = column.cast(pa.large_string()).dictionary_encode()
    except pa.ArrowNotImplementedError:
        raise TypeError(f"column topic must be a string, not {column.type}: cast it") from None
    rest = batch.drop_columns([TOPIC])
    numbers = np.asarray(names.indices)
    for number, name in enumerate(names.dictionary.to_pylist()):
        chosen = np.flatnonzero(numbers == number)
        yield Piece(name, rest.take(pa.array(chosen)), (chosen + first).tolist())


def surely_fit(table: pa.Table, max_size: int) -> bool:
    """Whether the longest key and the longest value tell that every row can be sent; if not, `check` is to say."""
    if not {*table.schema.names} <= {"key", "value"}:
        return False
    return RECORD_OVERHEAD + sum(longest(name, table.column(name)) for name in table.schema.names) <= max_size


def check(piece: Piece, rows: Rows, partitions: int, max_size: int) -> None:
    """What a broker would refuse, or what no partition could take."""
    largest = int(np.argmax(rows.sizes))
    if rows.sizes[largest] > max_size:
        text = (
            f"row {piece.places[largest]} has {rows.sizes[largest]} bytes, more than max.request.size={max_size}: "
            "raise it and max.message.bytes"
        )
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, text)
    highest = int(np.argmax(rows.partition))
    if rows.partition[highest] >= partitions:
        text = (
            f"row {piece.places[highest]}: {piece.topic} has partitions 0 to {partitions - 1}, not "
            f"{rows.partition[highest]}"
        )
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)


def place(rows: Rows, partitions: int, available: Sequence[int], sticky: Sticky, batch_size: int) -> np.ndarray:
    """The partition of each row; those without key and partition stay together until a batch is full."""
    found = rows.partitions(partitions, partition_for_key)
    loose = np.flatnonzero(found < 0)
    sizes = rows.sizes[loose]
    for start, end in runs(sizes, batch_size):
        found[loose[start:end]] = sticky.partition(available, int(sizes[start:end].sum()))
    return found


def runs(sizes: np.ndarray, batch_size: int) -> Iterator[tuple[int, int]]:
    """Rows one after the other that fit a batch, at least one at a time."""
    ends = np.cumsum(sizes)
    start, room = 0, max(batch_size - BATCH_OVERHEAD, 0)
    while start < len(sizes):
        before = int(ends[start - 1]) if start else 0
        end = max(int(np.searchsorted(ends, before + room, side="right")), start + 1)
        yield start, end
        start = end


def batches(rows: Rows, places: np.ndarray, batch_size: int) -> list[tuple[int, np.ndarray]]:
    """(partition, rows in their order), each a batch; partitions take turns, so that all of their leaders have work."""
    narrow = places.astype(np.uint16) if len(places) and places.max() < 2**16 else places  # sorts by radix
    order = np.argsort(narrow, kind="stable")
    counts = np.bincount(places)
    numbers = np.flatnonzero(counts)
    found: list[tuple[int, int, np.ndarray]] = []
    for number, group in zip(numbers.tolist(), np.split(order, np.cumsum(counts[numbers])[:-1]), strict=True):
        for turn, (start, end) in enumerate(runs(rows.sizes[group], batch_size)):
            found.append((turn, number, group[start:end]))
    found.sort(key=lambda each: each[0])
    return [(number, group) for _, number, group in found]
