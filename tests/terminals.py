"""The terminals of somebody who follows a tutorial: what stands behind a `$` is run, in the words of the page."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from serving import environment

DOCS = Path(__file__).parent.parent / "docs"
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
        self.folder, self.port, self.console_port = folder, free_port(), free_port()
        self.running: list[subprocess.Popen[bytes]] = []
        scripts = str(Path(sys.executable).parent)
        self._environment = environment() | {
            "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
            "KOHORT_BOOTSTRAP_SERVER": f"localhost:{self.port}",
            "PYTHONUNBUFFERED": "1",
        }

    def follow(self, page: str, *programs: str) -> list[str]:
        """The commands of a page of docs/, its programs written to these files."""
        text = (DOCS / page).read_text(encoding="utf-8")
        for name, program in zip(programs, CODE.findall(text), strict=True):
            (self.folder / name).write_text(program.replace("localhost:9092", f"localhost:{self.port}"))
        return COMMAND.findall(text)

    def run(self, command: str) -> str:
        done = subprocess.run(
            ["sh", "-c", command], cwd=self.folder, env=self._environment, capture_output=True, timeout=PATIENCE_S
        )
        assert done.returncode == 0, f"{command}: {done.stdout.decode()}{done.stderr.decode()}"
        return done.stdout.decode()

    def start(self, command: str) -> Terminal:
        words = command.replace("kohort serve", f"kohort serve --port {self.port}")
        words = words.replace("--console-port 9095", f"--console-port {self.console_port}")
        place = self.folder / f"{len(self.running)}.out"
        with place.open("wb") as out:
            process = subprocess.Popen(words.split(), cwd=self.folder, env=self._environment, stdout=out)
        self.running.append(process)
        return Terminal(process, place)

    def end(self) -> None:
        for process in self.running:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
        for process in self.running:
            process.wait(PATIENCE_S)


class Terminal:
    """One in which something goes on."""

    def __init__(self, process: subprocess.Popen[bytes], place: Path) -> None:
        self._process, self._place = process, place

    @property
    def output(self) -> str:
        return self._place.read_text()

    def press(self, key: signal.Signals) -> None:
        self._process.send_signal(key)

    def wait(self) -> None:
        self._process.wait(PATIENCE_S)
