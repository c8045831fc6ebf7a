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
    assert "there are groups, rebalances, causes" in k.refused("history", "--report", "nonsense")
    assert "is not a time" in k.refused("history", "--since", "yesterday")
    assert "no broker can be reached" in k.refused("history", code=1)
    assert "no such command 'ingst'; did you mean ingest" in k.refused("history", "ingst")
    assert "takes a directory" in k.refused("history", "ingest", "--to", "s3://bucket/history")
    assert "choose one" in k.refused("history", "ingest", "--to", "x", "--once", "--continuous")
    assert "--format takes parquet, delta" in k.refused("history", "ingest", "--to", "x", "--format", "iceberg")
    assert "no broker can be reached" in k.refused("history", "ingest", "--to", "x", code=1)
    assert "name of a file" in k.refused("history", "--html", "no/such/folder/out.html")


def test_wrong_choices() -> None:
    k = CommandLine(NOWHERE)
    assert "say what is to be different" in k.refused("history", "whatif")
    assert "unknown assignor 'nonsense'" in k.refused("history", "whatif", "--assignor", "nonsense")
    assert "takes consumer, not 'classic'" in k.refused("history", "whatif", "--protocol", "classic")
    assert "leave --assignor out" in k.refused("history", "whatif", "--protocol", "consumer", "--assignor", "range")
    assert "above 0" in k.refused("history", "whatif", "--session-timeout", "0s")
    assert "no broker can be reached" in k.refused("history", "whatif", "--static", code=1)
