"""`kohort serve` as a process of its own, for tests that kill it or read what it prints."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

LIMIT_S = 60
# Compiled once per test run, so that fifty starts cost what they cost a user.
_CACHE = Path(tempfile.gettempdir()) / f"kohort-tests-pycache-{os.getuid()}"


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPYCACHEPREFIX": str(_CACHE)}


def start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "kohort.cli", "serve", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())


class Serving:
    """A broker that is up once this is constructed."""

    def __init__(self, *arguments: str) -> None:
        self.process = start("--port", "0", "--log-level", "error", *arguments)
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        assert line.startswith("kohort listening on "), self.process.communicate(timeout=LIMIT_S)
        self.address = line.removeprefix("kohort listening on ")

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=LIMIT_S)

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        self.process.communicate(timeout=LIMIT_S)
        return self.process.returncode
