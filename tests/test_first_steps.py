"""What the README and the tutorial tell a newcomer to do, done: their own words, but for the port."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from serving import environment

ROOT = Path(__file__).parent.parent
PATIENCE_S = 180
CODE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^    \$ (.*)$", re.MULTILINE)


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"not in {PATIENCE_S} s: {what}"
        time.sleep(0.05)


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


class Terminals:
    """Runs what stands behind a `$`; what goes on is kept, with its output in a file."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        scripts = str(Path(sys.executable).parent)
        self._environment = environment() | {
            "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
            "KOHORT_BOOTSTRAP_SERVER": f"localhost:{self.port}",
            "PYTHONUNBUFFERED": "1",
        }

    def run(self, command: str) -> str:
        done = subprocess.run(
            ["sh", "-c", command], cwd=self.folder, env=self._environment, capture_output=True, timeout=PATIENCE_S
        )
        assert done.returncode == 0, f"{command}: {done.stderr.decode()}"
        return done.stdout.decode()

    def start(self, command: str) -> None:
        words = command.replace("kohort serve", f"kohort serve --port {self.port}").split()
        with (self.folder / self._name(command)).open("wb") as out:
            self.running[command] = subprocess.Popen(words, cwd=self.folder, env=self._environment, stdout=out)

    def output(self, command: str) -> str:
        return (self.folder / self._name(command)).read_text()

    @staticmethod
    def _name(command: str) -> str:
        return command.replace(" ", "-") + ".out"

    def end(self) -> None:
        for process in self.running.values():
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
        for process in self.running.values():
            process.wait(PATIENCE_S)


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[Terminals]:
    made = Terminals(tmp_path)
    yield made
    made.end()


def test_the_readme_runs(tmp_path):
    first = CODE.findall((ROOT / "README.md").read_text())[0]
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
    text = (ROOT / "docs" / "tutorial.md").read_text()
    commands = COMMAND.findall(text)
    (reader,) = CODE.findall(text)
    (terminals.folder / "reader.py").write_text(reader.replace("localhost:9092", f"localhost:{terminals.port}"))
    serve, create, produce, consume, alice, bob, describe, watch, explain = commands
    assert "pip install ." in text and "kohort listening on 127.0.0.1:9092" in text

    terminals.start(serve)
    until(lambda: "kohort listening on" in terminals.output(serve), "the broker")
    terminals.run(create)
    terminals.run(produce)
    assert sorted(terminals.run(consume).split("\n")) == ["", "cortado", "espresso", "flat white"]

    terminals.start(alice)
    until(lambda: "flat white" in terminals.output(alice), "alice reads")
    terminals.start(bob)
    until(lambda: "given up" in terminals.output(alice) and "mine now" in terminals.output(bob), "a rebalance")
    assert terminals.output(bob).count("orders-") == 2

    terminals.running[bob].send_signal(signal.SIGQUIT)  # ctrl-\\
    terminals.start(watch)
    until(lambda: "Stable, 1 member" in terminals.run(describe), "bob is evicted")
    until(lambda: terminals.output(watch), "a look at the group")
    said = terminals.run(explain)
    assert "bob" in said and "session.timeout.ms" in said
