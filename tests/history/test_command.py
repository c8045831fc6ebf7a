"""What `kohort history` says before it starts Spark."""

import importlib.util

import pytest

from cli.conftest import CommandLine
from console_running import MARKUP
from kohort.cli.history_html import page

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


def test_a_page_of_reports_escapes_names_and_says_what_is_left_out() -> None:
    rows = [[MARKUP, number, None] for number in range(4)]
    shown = page(MARKUP, 0, [("Groups", ["group", "members", "lag"], rows), ("Storms", ["group"], [])], 3)
    assert "<img" not in shown and "&lt;img" in shown and "\x1b" not in shown
    assert "these are the first 3" in shown and "nothing" in shown and shown.count("<tr>") == 1 + 3
    assert "default-src 'none'" in shown


def test_wrong_choices() -> None:
    k = CommandLine(NOWHERE)
    assert "say what is to be different" in k.refused("history", "whatif")
    assert "unknown assignor 'nonsense'" in k.refused("history", "whatif", "--assignor", "nonsense")
    assert "takes consumer, not 'classic'" in k.refused("history", "whatif", "--protocol", "classic")
    assert "leave --assignor out" in k.refused("history", "whatif", "--protocol", "consumer", "--assignor", "range")
    assert "above 0" in k.refused("history", "whatif", "--session-timeout", "0s")
    assert "no broker can be reached" in k.refused("history", "whatif", "--static", code=1)
