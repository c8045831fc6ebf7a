"""The console over a kept history: the tables of `kohort history ingest`, also while they grow, empty or damaged."""

import json

import pytest

from console_running import Running, until
from console_tables import BASE_MS, a_history, at, generation, keep
from kohort.console.kept import KeptSource


@pytest.fixture
def history(tmp_path):
    return a_history(tmp_path)


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
