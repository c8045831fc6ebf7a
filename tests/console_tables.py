"""The tables of `kohort history ingest`, written by hand: rounds of rows with a known course."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from kohort.history.kept import Kept, Round

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
WRITING = pytest.importorskip("kohort.history.writing")
BASE_MS = 1_800_000_000_000


def at(ms):
    return datetime.fromtimestamp((BASE_MS + ms) / 1000, UTC)


def generation(ms, number, **held):
    members = [
        {
            "member_id": f"{name}-id",
            "instance_id": None,
            "client_id": name,
            "client_host": "/10.0.0.1",
            "rebalance_timeout_ms": 60_000,
            "session_timeout_ms": 10_000,
            "topics": ["orders"],
            "assignment": [{"topic": "orders", "partitions": list(numbers)}],
        }
        for name, numbers in held.items()
    ]
    return {"time": at(ms), "group_id": "g", "generation": number, "protocol_type": "consumer", "protocol": "range",
            "leader_id": "a-id", "members": members, "tombstone": False, "record_offset": number}  # fmt: skip


def commit(ms, partition, offset):
    where = {"group_id": "g", "topic": "orders", "partition": partition, "offset": offset}
    return {"time": at(ms), **where, "tombstone": False}


def keep(directory: Path, number: int, **tables) -> None:
    kept = Kept(directory)
    with kept.locked():
        files = []
        for name, rows in tables.items():
            shown = directory / name / "day=2027-01-15" / f"r{number:08d}-0.parquet"
            shown.parent.mkdir(parents=True, exist_ok=True)
            schema = WRITING.SCHEMAS[name]
            columns = {column: [row.get(column) for row in rows] for column in schema.names}
            pq.write_table(pa.table(columns, schema=schema), shown)
            files.append(str(shown.relative_to(directory)))
        kept.commit(Round(number, BASE_MS + 130_000, {}, {}, {}, tuple(files)))


def a_history(directory: Path) -> Path:
    """Of a foreign Kafka: two generations of the group g, with commits until three seconds before the second."""
    commits = [commit(ms, p, ms // 100) for ms in range(2_000, 58_001, 2_000) for p in (0, 1)]
    ends = [{"time": at(ms), "topic": "orders", "partition": p, "end_offset": ms // 100 + 50}
            for ms in range(0, 120_001, 10_000) for p in (0, 1)]  # fmt: skip
    keep(directory, 0, commits=commits, log_ends=ends,
         generations=[generation(1_000, 1, a=(0, 1)), generation(61_000, 2, a=(0,), b=(1,))])  # fmt: skip
    return directory
