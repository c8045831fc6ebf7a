"""Kept tables as Delta tables: a transaction log beside the Parquet files that a round has put in place (kept.py).

A round counts when its manifest is there; the logs follow the manifests. Each says by a transaction id of its own which
round it has come to, so an ingest that dies in between goes on where it was, and no file is added twice.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from kohort.history.kept import TABLES, NotAHistory, Round, rounds
from kohort.history.writing import SCHEMAS

APP, LOG, DAY = "kohort-history", "_delta_log", "day"


def need_delta() -> None:
    if importlib.util.find_spec("deltalake") is None:
        raise NotAHistory("--format delta needs the library deltalake: pip install 'kohort[delta]'")


def is_delta(directory: Path) -> bool:
    return any((directory / table / LOG).is_dir() for table in TABLES)


def follow(directory: Path) -> None:
    """Brings the log of every table to the last committed round."""
    try:
        known = rounds(directory)
    except NotAHistory:
        known = []
    for table in TABLES:
        _follow(directory / table, table, known)


def _follow(path: Path, table: str, known: list[Round]) -> None:
    from deltalake import CommitProperties, DeltaTable, Transaction
    from deltalake.transaction import create_table_with_add_actions

    schema = _schema(table)
    if not (path / LOG).is_dir():
        path.mkdir(parents=True, exist_ok=True)
        create_table_with_add_actions(str(path), schema, [], mode="ignore", partition_by=[DAY])
    reached = DeltaTable(str(path)).transaction_version(APP) or 0
    for one in known:
        added = list(_added(path, table, one))
        if one.number > reached and added:
            told = CommitProperties(app_transactions=[Transaction(APP, one.number)])
            DeltaTable(str(path)).create_write_transaction(added, "append", schema, [DAY], commit_properties=told)


def _schema(table: str) -> Any:
    from deltalake import Schema

    return Schema.from_arrow(SCHEMAS[table].append(pa.field(DAY, pa.date32())))


def _added(path: Path, table: str, one: Round) -> Iterator[Any]:
    from deltalake.transaction import AddAction

    for name in one.files:
        of, day, file = name.split("/")
        if of == table:
            stat = (path / day / file).stat()
            values = {DAY: day.removeprefix(f"{DAY}=")}
            yield AddAction(f"{day}/{file}", stat.st_size, values, int(stat.st_mtime * 1000), True, "{}")
