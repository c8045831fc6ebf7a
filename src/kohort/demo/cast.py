"""The processes of the demo: started, talked to, ended nicely or with kill -9, and never left behind."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

END_S = 20.0


class CastFailed(Exception):
    """A process ended or fell silent although it should not; the text has the end of what it wrote."""


class Process:
    """`python -m MODULE` with a task as JSON. It has a session of its own, so that ctrl-C reaches only the demo.

    It says things in lines of JSON on standard output; everything on standard error goes to a file.
    """

    def __init__(self, name: str, module: str, task: dict[str, Any], folder: Path) -> None:
        self.name = name
        self._errors = folder / f"{name}.log"
        with self._errors.open("wb") as errors:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", module, json.dumps(task)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        self._said: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._listener = threading.Thread(target=self._listen, name=f"listen to {name}", daemon=True)
        self._listener.start()

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def is_running(self) -> bool:
        return self._popen.poll() is None

    def _listen(self) -> None:
        assert self._popen.stdout is not None
        for line in self._popen.stdout:
            with contextlib.suppress(ValueError):
                said = json.loads(line)
                if isinstance(said, dict):
                    self._said.put(said)
        self._said.put(None)

    def hear(self, what: str, seconds: float) -> dict[str, Any]:
        """Its next word with this key."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                said = self._said.get(timeout=max(deadline - time.monotonic(), 0))
            except queue.Empty:
                raise CastFailed(f"{self.name} did not say {what!r} within {seconds:g} s.{self.last_words()}") from None
            if said is None:
                raise CastFailed(f"{self.name} ended by itself.{self.last_words()}")
            if "failed" in said:
                raise CastFailed(f"{self.name}: {said['failed']}")
            if what in said:
                return said

    def tell(self, word: dict[str, Any]) -> None:
        assert self._popen.stdin is not None
        self._popen.stdin.write(json.dumps(word).encode() + b"\n")
        self._popen.stdin.flush()

    def last_words(self) -> str:
        lines = self._errors.read_text(errors="replace").strip().splitlines()[-5:]
        return " It wrote:\n  " + "\n  ".join(lines) if lines else ""

    def kill(self) -> None:
        """SIGKILL to it and to everything below it, at once: nobody gets to say goodbye."""
        for pid in [self.pid, *descendants(self.pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._popen.wait()

    def ask_to_end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._popen.terminate()

    def end(self) -> None:
        self.ask_to_end()
        try:
            self._popen.wait(END_S)
        except subprocess.TimeoutExpired:
            self.kill()


class Cast:
    """All processes of a run; at the end of the `with` none is left."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.everybody: list[Process] = []

    def start(self, name: str, module: str, task: dict[str, Any]) -> Process:
        process = Process(name, module, task, self.folder)
        self.everybody.append(process)
        return process

    def __enter__(self) -> Cast:
        return self

    def __exit__(self, *exc: object) -> None:
        for process in self.everybody:
            if process.is_running:
                process.kill()


def descendants(pid: int) -> list[int]:
    """The processes below one, as the system knows them now."""
    children: dict[int, list[int]] = {}
    for child, parent in _parents():
        children.setdefault(parent, []).append(child)
    found: list[int] = []
    todo = [pid]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def _parents() -> list[tuple[int, int]]:
    proc = Path("/proc")
    if (proc / "self" / "stat").exists():
        pairs = []
        for path in proc.glob("[0-9]*/stat"):
            with contextlib.suppress(OSError, IndexError, ValueError):
                pairs.append((int(path.parent.name), int(path.read_text().rpartition(")")[2].split()[1])))
        return pairs
    said = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    return [(int(pid), int(parent)) for pid, parent in (line.split() for line in said.splitlines())]
