"""What `kohort history` says before it starts Spark."""

import importlib.util

import pytest

from cli.conftest import CommandLine

NOWHERE = "localhost:1"


def test_the_extra_to_install_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "pyspark" else found(name))
    assert "pip install 'kohort[spark]'" in CommandLine(NOWHERE).refused("history", code=1)


def test_wrong_words() -> None:
    k = CommandLine(NOWHERE)
    assert "there are rebalances, causes" in k.refused("history", "--report", "nonsense")
    assert "is not a time" in k.refused("history", "--since", "yesterday")
    assert "no broker can be reached" in k.refused("history", code=1)
    assert "no such command 'ingst'; did you mean ingest" in k.refused("history", "ingst")
    assert "takes a directory" in k.refused("history", "ingest", "--to", "s3://bucket/history")
    assert "choose one" in k.refused("history", "ingest", "--to", "x", "--once", "--continuous")
    assert "--format takes parquet" in k.refused("history", "ingest", "--to", "x", "--format", "delta")
    assert "no broker can be reached" in k.refused("history", "ingest", "--to", "x", code=1)
