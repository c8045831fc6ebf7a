"""A task of an ingest, on an executor: records of a range to Parquet files of every table, a file a day. No Spark.

Commits stay columns from the fetch to the file; the other kinds are few and are read one by one. What cannot be read
goes to the quarantine, whole. The files are hidden until the driver commits the round (kept.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kohort.coordinator.events import EVENTS_TOPIC
from kohort.history import arrow, columnar, decoding, kinds
from kohort.history.arrow import FLAG, INT, LONG, TEXT, WHO
from kohort.history.kept import hidden
from kohort.spark import worker
from kohort.spark.fetch import ReadTask

COLUMNS = ("key", "value", "partition", "offset", "timestamp")
ROWS_TO_WRITE = 250_000
MOST_BUFFERED = 1_500_000
DAY_MS = 86_400_000
LAST_MS = 253_402_300_799_999  # of the year 9999, the last that Spark shows

_TIME = pa.timestamp("us", "UTC")
_PLACE = {"record_partition": INT, "record_offset": LONG}
_WHO_TYPE = pa.struct(list(WHO.items()))
_BY_DDL = {"string": TEXT, "int": INT, "bigint": LONG, "array<string>": pa.list_(TEXT)}
_CAUSE = pa.struct(
    [
        (name, pa.list_(_WHO_TYPE) if name == "members" else _WHO_TYPE if name == "by" else _BY_DDL[kind])
        for name, kind in decoding.CAUSE_FIELDS.items()
    ]
)
_EVENT = {name: _CAUSE if name == "cause" else _BY_DDL[kind] for name, kind in decoding.EVENT_FIELDS.items()}


def _schema(**columns: pa.DataType) -> pa.Schema:
    return pa.schema([("time", _TIME), *columns.items()])


SCHEMAS: dict[str, pa.Schema] = {
    "commits": _schema(
        group_id=TEXT, topic=TEXT, partition=INT, offset=LONG, leader_epoch=INT, metadata=TEXT, expires=_TIME,
        tombstone=FLAG, stored_bytes=INT, **_PLACE,
    ),
    "generations": _schema(
        group_id=TEXT, generation=INT, protocol_type=TEXT, protocol=TEXT, leader_id=TEXT,
        members=pa.list_(arrow.MEMBER), tombstone=FLAG, stored_bytes=INT, **_PLACE,
    ),
    "group_records": _schema(
        group_id=TEXT, family=TEXT, kind=TEXT, member_id=TEXT, epoch=INT, data=TEXT, tombstone=FLAG, stored_bytes=INT,
        **_PLACE,
    ),
    "group_events": _schema(**_EVENT, **_PLACE),
    "quarantine": _schema(
        topic=TEXT, key_type=INT, kind=TEXT, problem=TEXT, key=pa.binary(), value=pa.binary(), **_PLACE
    ),
    "log_ends": _schema(topic=TEXT, partition=INT, end_offset=LONG),
}  # fmt: skip
"""The columns of every kept table: those of tables.py by the same names."""

_ENCODINGS: dict[str, dict[str, Any]] = {
    "commits": {
        "use_dictionary": ["group_id", "topic", "metadata", "partition", "leader_epoch", "stored_bytes"],
        "column_encoding": dict.fromkeys(("time", "offset", "record_offset"), "DELTA_BINARY_PACKED"),
    }
}
"""Where it matters: numbers that grow as their differences, texts that repeat once; twice as fast, and far smaller."""


@dataclass(frozen=True, slots=True)
class WriteTask:
    """Everything an executor needs; travels pickled."""

    directory: str
    name: str  # of the files: the round and the task
    topic: str
    read: ReadTask


@dataclass(frozen=True, slots=True)
class Written:
    files: tuple[str, ...]  # as they will be shown, relative to the directory
    rows: Mapping[str, int]
    latest_ms: int = 0  # the newest record's own time


def run(task: WriteTask) -> Written:
    # Another attempt at the task, after a lost executor, must not write to the same files.
    writer = Writer(Path(task.directory), f"{task.name}-{os.urandom(4).hex()}")
    read = of_events if task.topic == EVENTS_TOPIC else of_offsets
    try:
        latest_us = 0
        for batch in worker.run(task.read):
            latest_us = max(latest_us, int(_written_us(batch).max()))
            for table, rows in read(batch, task.topic):
                writer.add(table, rows)
        return replace(writer.close(), latest_ms=latest_us // 1000)
    except BaseException:
        writer.abandon()
        raise


class Writer:
    """Rows by table and day, written in pieces large enough to be read fast."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory, self._name = directory, name
        self._waiting: dict[tuple[str, int], list[pa.RecordBatch]] = {}
        self._buffered = 0
        self._open: dict[tuple[str, int], tuple[Path, pq.ParquetWriter]] = {}
        self._rows: dict[str, int] = {}

    def add(self, table: str, rows: pa.RecordBatch) -> None:
        for day, part in _by_day(rows):
            waiting = self._waiting.setdefault((table, day), [])
            waiting.append(part)
            self._buffered += part.num_rows
            self._rows[table] = self._rows.get(table, 0) + part.num_rows
            if sum(one.num_rows for one in waiting) >= ROWS_TO_WRITE:
                self._write((table, day))
        if self._buffered > MOST_BUFFERED:
            self._write_all()

    def close(self) -> Written:
        self._write_all()
        for _, writer in self._open.values():
            writer.close()
        shown = (str(path.relative_to(self._directory)) for path, _ in self._open.values())
        return Written(tuple(sorted(shown)), self._rows)

    def abandon(self) -> None:
        for path, writer in self._open.values():
            writer.close()
            hidden(path).unlink(missing_ok=True)

    def _write_all(self) -> None:
        for place in list(self._waiting):
            self._write(place)

    def _write(self, place: tuple[str, int]) -> None:
        batches = self._waiting.pop(place)
        rows = pa.Table.from_batches(batches)
        self._buffered -= rows.num_rows
        if place not in self._open:
            self._open[place] = self._new(*place)
        self._open[place][1].write_table(rows)

    def _new(self, table: str, day: int) -> tuple[Path, pq.ParquetWriter]:
        folder = self._directory / table / f"day={datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=day):%Y-%m-%d}"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self._name}.parquet"
        return path, pq.ParquetWriter(hidden(path), SCHEMAS[table], compression="zstd", **_ENCODINGS.get(table, {}))


def _by_day(rows: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    days = _microseconds(rows.column("time")) // (DAY_MS * 1000)
    turns = np.diff(days)
    if (turns < 0).any():  # in the order of time they are cut, not sorted
        order = np.argsort(days, kind="stable")
        days, rows = days[order], rows.take(pa.array(order))
        turns = np.diff(days)
    bounds = [0, *(np.flatnonzero(turns) + 1).tolist(), len(days)]
    for start, end in pairwise(bounds):
        yield int(days[start]), rows.slice(start, end - start)


def _written_us(batch: pa.RecordBatch) -> Any:
    return np.clip(_microseconds(batch.column("timestamp")), 0, LAST_MS * 1000)


def _microseconds(times: pa.Array) -> Any:
    return times.cast(_TIME).view(LONG).to_numpy()


# -- __consumer_offsets -----------------------------------------------------------------------------------------------


def of_offsets(batch: pa.RecordBatch, topic: str) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Rows of each table that records of `__consumer_offsets` become."""
    keys, values = batch.column("key"), batch.column("value")
    written_us = _written_us(batch)
    read = columnar.decode(keys, values)
    good = ~read.odd
    if good.any():
        commits = _commits(batch, read, written_us)
        yield "commits", commits if good.all() else commits.filter(pa.array(good))
    if not good.all():
        odd = np.flatnonzero(read.odd)
        yield from _one_by_one(batch.take(pa.array(odd)), written_us[odd], topic)


def _commits(batch: pa.RecordBatch, read: columnar.Commits, written_us: Any) -> pa.RecordBatch:
    stored = arrow.commit_structs(read)
    known = ~read.tombstone & (read.commit_ms >= 0) & (read.commit_ms <= LAST_MS)
    columns = {name: stored.field(name) for name in ("group_id", "topic", "partition", "offset", "leader_epoch")}
    expires = ~read.tombstone & (read.expire_ms >= 0) & (read.expire_ms <= LAST_MS)
    columns |= {
        "time": pa.array(np.where(known, read.commit_ms * 1000, written_us)).view(_TIME),
        "metadata": stored.field("metadata"),
        "expires": pa.array(read.expire_ms * 1000, mask=~expires).view(_TIME),
        "tombstone": stored.field("tombstone"),
        "stored_bytes": _stored_bytes(batch),
    }
    return _placed("commits", columns, batch)


def _stored_bytes(batch: pa.RecordBatch) -> pa.Array:
    lengths = (pc.fill_null(pc.binary_length(batch.column(name)), 0) for name in ("key", "value"))
    return pc.add(*lengths).cast(INT)


def _placed(table: str, columns: dict[str, pa.Array], batch: pa.RecordBatch) -> pa.RecordBatch:
    columns |= {"record_partition": batch.column("partition"), "record_offset": batch.column("offset")}
    schema = SCHEMAS[table]
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def _one_by_one(batch: pa.RecordBatch, written_us: Any, topic: str) -> Iterator[tuple[str, pa.RecordBatch]]:
    rows: dict[str, list[dict[str, Any]]] = {}
    for record, at_us in zip(batch.to_pylist(), written_us.tolist(), strict=True):
        table, row = _row(record["key"], record["value"], topic)
        size = len(record["key"] or b"") + len(record["value"] or b"")
        placed = {"record_partition": record["partition"], "record_offset": record["offset"], "stored_bytes": size}
        rows.setdefault(table, []).append({"time": at_us} | row | placed)
    yield from _batches(rows)


def _row(key: bytes | None, value: bytes | None, topic: str) -> tuple[str, dict[str, Any]]:
    of = kinds.kind_of(key, value)
    if of.problem is not None or key is None:
        problem = {"topic": topic, "key_type": of.key_type, "kind": of.kind, "problem": of.problem}
        return "quarantine", problem | {"key": key, "value": value}
    if of.kind == "OffsetCommit":
        row = decoding.commit_row(key, value)
        return "commits", row | _times(row.pop("commit_ms"), row.pop("expire_ms"))
    if of.kind == "GroupMetadata":
        row = decoding.generation_row(key, value)
        return "generations", row | _times(row.pop("state_ms", None))
    return "group_records", kinds.modern_row(key, value)


def _times(at_ms: int | None, expire_ms: int | None = None) -> dict[str, Any]:
    """The columns `time` and `expires`, where they are known and a calendar has them."""
    named = {"time": at_ms, "expires": expire_ms}
    return {name: ms * 1000 for name, ms in named.items() if ms is not None and 0 <= ms <= LAST_MS}


def _batches(rows: Mapping[str, Iterable[dict[str, Any]]]) -> Iterator[tuple[str, pa.RecordBatch]]:
    for table, found in rows.items():
        yield table, pa.RecordBatch.from_pylist(list(found), schema=SCHEMAS[table])


# -- group events -----------------------------------------------------------------------------------------------------


def of_events(batch: pa.RecordBatch, topic: str) -> Iterator[tuple[str, pa.RecordBatch]]:
    rows: dict[str, list[dict[str, Any]]] = {}
    for record, at_us in zip(batch.to_pylist(), _written_us(batch).tolist(), strict=True):
        row, problem = decoding.event_row(record["value"])
        place = {"record_partition": record["partition"], "record_offset": record["offset"]}
        if problem is None:
            rows.setdefault("group_events", []).append({"time": at_us} | row | _times(row.pop("at_ms")) | place)
        else:
            raw = {"topic": topic, "kind": "GroupEvent", "problem": problem, "key": record["key"]}
            rows.setdefault("quarantine", []).append({"time": at_us, "value": record["value"]} | raw | place)
    yield from _batches(rows)


def log_ends(ends: Mapping[tuple[str, int], int], at_ms: int) -> pa.RecordBatch:
    rows = [{"time": at_ms * 1000, "topic": t, "partition": p, "end_offset": end} for (t, p), end in ends.items()]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMAS["log_ends"])
