"""The tutorials that need Spark, word for word but for the ports."""

from __future__ import annotations

import re
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from terminals import Terminals, until


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[Terminals]:
    made = Terminals(tmp_path)
    yield made
    made.end()


def test_the_tutorial_for_spark(terminals: Terminals) -> None:
    serve, create, produce, one, describe, two, explain = terminals.follow("tutorial-spark.md", "totals.py")
    broker = terminals.start(serve)
    until(lambda: "kohort listening on" in broker.output, "the broker")
    terminals.run(create)
    terminals.run(produce)
    first = terminals.start(one)
    until(lambda: len(re.findall(r"^\| +\d+\|", first.output, re.MULTILINE)) >= 4, "a batch of four partitions")
    assert "orders:0-3" in terminals.run(describe)
    second = terminals.start(two)
    until(lambda: "Stable, 2 members" in terminals.run(describe), "both share")
    rows = [line.split() for line in terminals.run(describe).splitlines() if "orders:" in line]
    assert [row[-2] for row in rows] == ["2", "2"]
    second.press(signal.SIGINT)
    until(lambda: "orders:0-3" in terminals.run(describe), "the other takes over")
    assert "generation" in terminals.run(explain)


def test_the_tutorial_for_operators(terminals: Terminals) -> None:
    commands = terminals.follow("tutorial-operating.md", "worker.py")
    serve, create, produce, steady, nightly, listed, describe, explain, ingest, report, whatif, look, do = commands
    broker = terminals.start(serve)
    until(lambda: "kohort listening on" in broker.output, "the broker")
    terminals.run(create)
    terminals.run(produce)
    worker = terminals.start(steady)
    terminals.run(nightly)
    assert "billing" in terminals.run(listed)
    assert "Stable, 1 member" in terminals.run(describe)
    said = terminals.run(explain)
    assert "nightly" in said and "group.instance.id" in said
    with urllib.request.urlopen(f"http://127.0.0.1:{terminals.console_port}/api/groups") as answer:
        rows = answer.read().decode()
    assert '"group":"billing"' in rows and "flapping" in rows
    assert "group events" in terminals.run(ingest)
    terminals.run(report)
    page = (terminals.folder / "report.html").read_text()
    assert "nightly" in page and "<script" not in page
    assert "billing" in terminals.run(whatif)
    worker.press(signal.SIGINT)
    worker.wait()
    assert "orders" in terminals.run(look)
    assert "orders" in terminals.run(do)
    assert "total lag    1000" in terminals.run(describe)
