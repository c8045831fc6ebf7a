"""What the README and the tutorial tell a newcomer to do, done: their own words, but for the port."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from serving import environment
from terminals import CODE, DOCS, PATIENCE_S, Terminals, until


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[Terminals]:
    made = Terminals(tmp_path)
    yield made
    made.end()


def test_the_readme_runs(tmp_path):
    first = CODE.findall((DOCS.parent / "README.md").read_text())[0]
    (tmp_path / "readme.py").write_text(first)
    done = subprocess.run(
        [sys.executable, "readme.py"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    assert "one coffee" in done.stdout and "MemberEvicted" in done.stdout


def test_the_tutorial_word_for_word(terminals):
    serve, create, produce, consume, alice, bob, describe, watch, explain = terminals.follow("tutorial.md", "reader.py")
    text = (DOCS / "tutorial.md").read_text()
    assert "pip install ." in text and "kohort listening on 127.0.0.1:9092" in text

    broker = terminals.start(serve)
    until(lambda: "kohort listening on" in broker.output, "the broker")
    terminals.run(create)
    terminals.run(produce)
    assert sorted(terminals.run(consume).split("\n")) == ["", "cortado", "espresso", "flat white"]

    first = terminals.start(alice)
    until(lambda: "flat white" in first.output, "alice reads")
    second = terminals.start(bob)
    until(lambda: "given up" in first.output and "mine now" in second.output, "a rebalance")
    assert second.output.count("orders-") == 2

    second.press(signal.SIGQUIT)  # ctrl-\\
    watched = terminals.start(watch)
    until(lambda: "Stable, 1 member" in terminals.run(describe), "bob is evicted")
    until(lambda: watched.output, "a look at the group")
    said = terminals.run(explain)
    assert "bob" in said and "session.timeout.ms" in said
