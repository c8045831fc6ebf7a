"""The console over a kept history: the tables of `kohort history ingest`, also while they grow, empty or damaged."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa
import pyarrow.parquet as pq

from console_running import Running, until
from kohort.console.kept import KeptSource
from kohort.history.kept import Kept, Round

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


@pytest.fixture
def history(tmp_path):
    commits = [commit(ms, p, ms // 100) for ms in range(2_000, 58_001, 2_000) for p in (0, 1)]
    ends = [{"time": at(ms), "topic": "orders", "partition": p, "end_offset": ms // 100 + 50}
            for ms in range(0, 120_001, 10_000) for p in (0, 1)]  # fmt: skip
    keep(tmp_path, 0, commits=commits, log_ends=ends,
         generations=[generation(1_000, 1, a=(0, 1)), generation(61_000, 2, a=(0,), b=(1,))])  # fmt: skip
    return tmp_path


def test_a_foreign_kafkas_history_is_shown_estimated(history):
    with Running(lambda: KeptSource(directory=history)) as console:
        row = until(lambda: console.row("g"), "the history is read")
        assert not row["exact"] and row["members"] == 2 and row["rebalances_per_hour"] == 2
        assert row["standstill_ms_per_hour"] == 3_000 and row["lag"] == 2 * (1250 - 580)
        assert row["lag_ms"] > 60_000, "the last commit is of a record that was written long before"
        view = console.get("group", group="g")
        bands = view["bands"]
        assert (bands["start"][1] - BASE_MS, bands["end"][1] - BASE_MS) == (58_000, 61_000)
        assert bands["moved"] == [0, 1] and sum(view["series"]["commits"]) == 58
        assert [texts for texts in view["texts"] if "b (10.0.0.1) joined" in texts]
        assert console.get("status")["live"] is False


def test_a_history_that_grows_is_followed(history):
    with Running(lambda: KeptSource(directory=history, look_every_s=0.1)) as console:
        until(lambda: console.row("g"), "the history is read")
        keep(history, 1, generations=[generation(120_000, 3, a=(0, 1))])
        until(lambda: console.row("g")["rebalances_per_hour"] == 3, "the new round is read")


def test_an_empty_or_half_written_history_is_said(tmp_path):
    with Running(lambda: KeptSource(directory=tmp_path, look_every_s=0.1)) as console:
        status = until(lambda: (s := console.get("status"))["notices"] and s, "a notice")
        assert "holds no history" in status["notices"][0]["text"]
        keep(tmp_path, 0, generations=[generation(1_000, 1, a=(0,))])
        until(lambda: console.row("g"), "what came later is shown")
        (tmp_path / "_rounds" / "00000001.json").write_text("{half")
        damaged = until(lambda: (s := console.get("status"))["notices"] and s, "a notice")
        assert "is damaged" in damaged["notices"][0]["text"] and console.row("g")


def test_a_file_that_is_gone_is_said_and_the_rest_is_shown(history):
    keep(history, 1, generations=[generation(120_000, 3, a=(0, 1))])
    next((history / "commits").rglob("*.parquet")).unlink()
    with Running(lambda: KeptSource(directory=history)) as console:
        status = until(lambda: (s := console.get("status"))["notices"] and s, "a notice")
        assert "commits" in status["notices"][0]["text"]


def test_the_modern_protocols_records_are_read(tmp_path):
    def record(ms, kind, member, data):
        return {"time": at(ms), "group_id": "m", "family": "consumer", "kind": kind, "member_id": member,
                "data": json.dumps(data), "tombstone": False, "record_offset": ms}  # fmt: skip

    keep(tmp_path, 0, group_records=[
        record(1, "ConsumerGroupMemberMetadata", "a-id", {"client_id": "a", "client_host": "/h"}),
        record(2, "ConsumerGroupMetadata", None, {"epoch": 1}),
        record(3, "ConsumerGroupCurrentMemberAssignment", "a-id",
               {"member_epoch": 1, "assigned_partitions": [{"topic_id": "id", "partitions": [0, 1]}]}),
        record(4, "ShareGroupMetadata", None, {"epoch": 1}) | {"family": "share"},
    ])  # fmt: skip
    with Running(lambda: KeptSource(directory=tmp_path)) as console:
        row = until(lambda: console.row("m"), "the history is read")
        assert (row["type"], row["members"], row["rebalances_per_hour"]) == ("consumer", 1, 1)
