"""Kept tables: what an ingest writes is what the live tables say, once, however often it is killed and repeated."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kohort
import kohort.spark
from cli.conftest import CommandLine
from history.test_history import QUICK, commit, crash_and_leave, produce, rows
from kohort import history
from kohort.coordinator.events import EVENTS_TOPIC
from kohort.coordinator.records import OFFSETS_TOPIC
from kohort.history import tables
from kohort.history.ingest import Ingest
from kohort.history.kept import Kept, NotAHistory, hidden
from kohort.history.survey import survey_of_kept

LIVE = {
    "commits": history.commits,
    "generations": history.generations,
    "group_events": history.group_events,
    "group_records": history.group_records,
    "quarantine": history.quarantine,
}


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    session = kohort.spark.session("tests", "local[2]", QUICK)
    yield session
    session.stop()


@pytest.fixture(scope="module")
def broker() -> Iterator[kohort.Broker]:
    settings = {"kohort.group.events.topic.enable": "true", "offsets.topic.num.partitions": 3}
    with kohort.Broker(config={**settings, "group.min.session.timeout.ms": 1_000}) as made:
        made.create_topic("orders", 2)
        crash_and_leave(made)
        produce(made.bootstrap_servers, 10, made.clock.now_ms())
        for offset in (2, 5, 7):
            commit(made.bootstrap_servers, "moving", offset)
        yield made


def foreign_records(servers: str) -> None:
    """Of KIP-848 groups, of the future, damaged; and no event at all."""
    with kohort.Producer(bootstrap_servers=servers, client_id="__admin_client") as producer:
        for key, value in [
            (b"\x00\x03\x00\x01g", b"\x00\x00\x00\x00\x00\x07\x00"),
            (b"\x00\x63future", b"?"),
            (b"\x00\x01\x00\x01g", b"damaged"),
        ]:
            producer.send(OFFSETS_TOPIC, value, key=key, partition=1)
        for text in ("no json", "{}", json.dumps({"type": "MemberLeft", "at_ms": 2**80, "group_id": "g"})):
            producer.send(EVENTS_TOPIC, text, key=b"g")


def ingest(spark: Any, broker: kohort.Broker, directory: Path, **settings: Any) -> int:
    return Ingest(spark, broker.bootstrap_servers, directory, **settings).run()


def place(row: dict[str, Any]) -> tuple[int, int]:
    return row["record_partition"], row["record_offset"]


def same_as_live(spark: Any, broker: kohort.Broker, directory: Path) -> None:
    for name, live in LIVE.items():
        told = sorted(rows(live(spark, broker.bootstrap_servers)), key=place)
        kept = rows(tables.kept_table(spark, directory, name))
        if name == "quarantine":
            kept = [row for row in kept if row["topic"] == OFFSETS_TOPIC]
        assert sorted(kept, key=place) == told, name


def test_kept_tables_are_the_live_ones_and_grow(spark: Any, broker: kohort.Broker, tmp_path: Path) -> None:
    assert ingest(spark, broker, tmp_path) == 1
    same_as_live(spark, broker, tmp_path)
    assert ingest(spark, broker, tmp_path) == 0, "nothing is left"
    commit(broker.bootstrap_servers, "moving", 9)
    foreign_records(broker.bootstrap_servers)
    assert ingest(spark, broker, tmp_path) == 1
    same_as_live(spark, broker, tmp_path)
    kept = rows(tables.kept_table(spark, tmp_path, "quarantine"))
    assert {(row["kind"], row["topic"]) for row in kept} == {
        ("Unknown", OFFSETS_TOPIC), ("OffsetCommit", OFFSETS_TOPIC), ("GroupEvent", EVENTS_TOPIC),
    }  # fmt: skip
    assert {row["value"] for row in kept if row["topic"] == EVENTS_TOPIC} >= {b"no json", b"{}"}
    last = Kept(tmp_path).last()
    assert last is not None and last.number == 2 and last.rows["commits"] >= 1 and last.rows["quarantine"] == 5
    reports = survey_of_kept(spark, tmp_path, ["billing"]).reports
    told = [row["cause"] for row in reports["rebalances"].orderBy("started").toArrow().to_pylist()]
    assert told == ["joined", "joined", "timed_out", "left"]
    lag = {row["group_id"]: row for row in rows(survey_of_kept(spark, tmp_path).reports["lag"].orderBy("time"))}
    assert (lag["moving"]["committed_offset"], lag["moving"]["end_offset"], lag["moving"]["lag"]) == (9, 10, 1)


def test_many_rounds_are_as_one(spark: Any, broker: kohort.Broker, tmp_path: Path) -> None:
    assert ingest(spark, broker, tmp_path, rows_a_round=7) > 3
    same_as_live(spark, broker, tmp_path)


def test_the_command(spark: Any, broker: kohort.Broker, tmp_path: Path) -> None:
    k = CommandLine(broker.bootstrap_servers)
    said = k("history", "ingest", "--to", str(tmp_path / "kept"), "--once").out
    assert said.startswith("round 1: ") and " commits" in said
    assert k("history", "ingest", "--to", str(tmp_path / "kept")).out == "nothing new\n"
    told = CommandLine("localhost:1")(
        "history", "--from", str(tmp_path / "kept"), "--report", "rebalances", "--json"
    ).json()
    assert [row["cause"] for row in told["rebalances"]]
    would = CommandLine("localhost:1")(
        "history", "whatif", "--static", "--from", str(tmp_path / "kept"), "--json"
    ).json()
    assert [row["rebalances"] for row in would if row["group_id"] == "billing"] == [4]
    assert "holds no history" in k.refused("history", "--from", str(tmp_path), code=1)


class Killed(Exception):
    pass


@pytest.mark.parametrize("moment", ["before it is committed", "before it is shown", "while it is shown"])
def test_a_killed_round_is_repeated_or_finished(
    moment: str, spark: Any, broker: kohort.Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    show, shown = Kept._show, []

    def killed(*_: Any) -> None:
        raise Killed

    def killed_half_way(self: Kept, done: Any) -> None:
        for name in done.files[:1]:
            hidden(self.directory / name).rename(self.directory / name)
            shown.append(name)
        raise Killed

    with monkeypatch.context() as patch:
        if moment == "before it is committed":
            patch.setattr(Kept, "commit", killed)
        else:
            patch.setattr(Kept, "_show", killed if moment == "before it is shown" else killed_half_way)
        with pytest.raises(Killed):
            ingest(spark, broker, tmp_path)
    assert Kept._show is show
    assert len(list(tmp_path.glob("*/day=*/r*.parquet"))) == len(shown), "nobody sees the rest"
    rounds = ingest(spark, broker, tmp_path)
    assert rounds == (1 if moment == "before it is committed" else 0)
    same_as_live(spark, broker, tmp_path)
    assert not list(tmp_path.glob("*/day=*/.*")), "nothing is left behind"


def test_a_task_that_fails_leaves_nothing(spark: Any, broker: kohort.Broker, tmp_path: Path) -> None:
    broken = tmp_path / "commits"
    tmp_path.mkdir(exist_ok=True)
    broken.write_text("a file in the way")
    with pytest.raises(Exception, match=r"FileExistsError|NotADirectoryError"):
        ingest(spark, broker, tmp_path)
    broken.unlink()
    assert ingest(spark, broker, tmp_path) == 1
    same_as_live(spark, broker, tmp_path)


def test_directories_that_cannot_be_used(spark: Any, broker: kohort.Broker, tmp_path: Path) -> None:
    with pytest.raises(NotAHistory, match="kohort history ingest --to"):
        tables.kept_table(spark, tmp_path / "nothing", "commits")
    with pytest.raises(ValueError, match="no table 'lives'"):
        tables.kept_table(spark, tmp_path, "lives")
    (tmp_path / "file").write_text("")
    with pytest.raises(NotAHistory, match="cannot be written to"):
        ingest(spark, broker, tmp_path / "file")
    ingest(spark, broker, tmp_path / "kept")
    with Kept(tmp_path / "kept").locked(), pytest.raises(NotAHistory, match="another process"):
        ingest(spark, broker, tmp_path / "kept")
    (tmp_path / "kept" / "_rounds" / "00000002.json").write_text("{")
    with pytest.raises(NotAHistory, match="damaged"):
        ingest(spark, broker, tmp_path / "kept")


def test_the_name_is_a_function_whatever_is_imported() -> None:
    assert history.kept_table is tables.kept_table
