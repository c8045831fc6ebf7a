"""Delta tables over kept files: the same rows, each once, wherever an ingest dies; without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from history.known_course import START_MS, course, raw
from kohort.coordinator.records import OFFSETS_TOPIC
from kohort.history import delta, writing
from kohort.history.ingest import Ingest
from kohort.history.kept import TABLES, Kept, NotAHistory, Round

HOURS = 30  # more than a day, so that there are two folders


def a_round(directory: Path, number: int) -> Round:
    """Commits and generations of one group."""
    group = course(number, HOURS)[number - 1]
    writer = writing.Writer(directory, f"r{number:08d}-00000")
    for table, rows in writing.of_offsets(raw([*group.stored, *list(group.commits())[::50]]), OFFSETS_TOPIC):
        writer.add(table, rows)
    written = writer.close()
    return Round(number, START_MS, {}, {}, dict(written.rows), written.files)


def rows(directory: Path, table: str) -> list[dict[str, Any]]:
    found = DeltaTable(str(directory / table)).to_pyarrow_table().to_pylist()
    assert all(row.pop("day") == row["time"].date() for row in found)
    return sorted(found, key=str)


def files(directory: Path, table: str) -> list[dict[str, Any]]:
    kept = (directory / table).glob("day=*/r*.parquet")
    return sorted((row for file in kept for row in pq.ParquetFile(file).read().to_pylist()), key=str)


def same(directory: Path) -> None:
    for table in TABLES:
        assert rows(directory, table) == files(directory, table), table


def test_delta_tables_have_the_rows_of_the_files_once(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    with kept.locked():
        delta.follow(tmp_path)
        assert all(rows(tmp_path, table) == [] for table in TABLES), "empty tables can be read"
        kept.commit(a_round(tmp_path, 1))
        delta.follow(tmp_path)
        same(tmp_path)
        assert len(rows(tmp_path, "generations")) > 10
        assert len(list((tmp_path / "commits").glob("day=*"))) == 2
        delta.follow(tmp_path)
        same(tmp_path)


def test_an_ingest_that_dies_before_or_within_the_logs_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept(tmp_path)
    with kept.locked():
        kept.commit(a_round(tmp_path, 1))  # and died
        kept.commit(a_round(tmp_path, 2))
        one = delta._follow

        def dies_at_generations(path: Path, table: str, known: list[Round]) -> None:
            if table == "generations":
                raise KeyboardInterrupt
            one(path, table, known)

        monkeypatch.setattr(delta, "_follow", dies_at_generations)
        with pytest.raises(KeyboardInterrupt):
            delta.follow(tmp_path)
        assert rows(tmp_path, "commits") and not (tmp_path / "generations" / delta.LOG).exists()
        monkeypatch.undo()
        delta.follow(tmp_path)
        same(tmp_path)


def test_a_directory_is_of_one_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    delta.follow(tmp_path)
    with pytest.raises(NotAHistory, match="go on with --format delta"):
        Ingest(None, "localhost:1", tmp_path)  # type: ignore[arg-type]
    monkeypatch.setattr(delta.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(NotAHistory, match=r"pip install 'kohort\[delta\]'"):
        Ingest(None, "localhost:1", tmp_path, as_delta=True)  # type: ignore[arg-type]
