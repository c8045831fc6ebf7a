"""The processes of the soak, the broker's and the consumers', and the memory of the former."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from soak_audit import Ledgers

START_LIMIT_S = 60
STOP_LIMIT_S = 60


class BrokerProcess:
    """`kohort serve` on one port and one data directory through all its lives; or on what `where` says."""

    def __init__(
        self, home: Path, config: Mapping[str, object], where: Sequence[str] = (), name: str = "broker"
    ) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port: int = probe.getsockname()[1]
        self.bootstrap_servers = f"127.0.0.1:{self.port}"
        self.log = home / f"{name}.log"
        self.lives = 0
        self.slowest_start_s = 0.0
        self._command = [sys.executable, "-m", "kohort.cli", "serve", "--port", str(self.port)]
        self._command += [*(where or ("--data-dir", str(home / "broker"))), "--log-level", "warning"]
        for name, value in config.items():
            self._command += ["--config", f"{name}={value}"]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Of the running process."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def start(self) -> None:
        began = time.monotonic()
        self.lives += 1
        with open(self.log, "ab") as log:
            process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL)
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith(b"kohort listening on "):
            raise RuntimeError(f"the broker did not start, see {self.log}: {line!r}")
        self.slowest_start_s = max(self.slowest_start_s, time.monotonic() - began)
        self._process = process

    def signal(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def end(self, number: int) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(number)
            process.wait(STOP_LIMIT_S)
            stdout: IO[bytes] | None = process.stdout
            if stdout is not None:
                stdout.close()

    def kill(self) -> None:
        self.end(signal.SIGKILL)

    def stop(self) -> None:
        self.end(signal.SIGTERM)


class Memory:
    """The memory of the broker over time: anonymous pages above all, as mapped segments come and go with the cache."""

    def __init__(self) -> None:
        self.samples: list[tuple[float, int, float, float]] = []  # time, life, anonymous MB, all MB

    def sample(self, pid: int, life: int) -> None:
        try:
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            return
        rows = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        if "RssAnon" in rows:
            anonymous, everything = (int(rows[key].split()[0]) / 1024 for key in ("RssAnon", "VmRSS"))
            self.samples.append((time.monotonic(), life, anonymous, everything))

    def ends(self) -> list[float]:
        """What each life came to."""
        last = {life: anonymous for _, life, anonymous, _ in self.samples}
        return [last[life] for life in sorted(last)]

    def slope(self, life: int) -> float:
        """MB per minute within a life, its first 20 seconds left out; least squares."""
        rows = [(at, anonymous) for at, number, anonymous, _ in self.samples if number == life]
        rows = [(at, anonymous) for at, anonymous in rows if at - rows[0][0] > 20]
        return _slope(rows) * 60 if len(rows) > 10 else 0.0


def _slope(rows: list[tuple[float, float]]) -> float:
    mean_x, mean_y = sum(x for x, _ in rows) / len(rows), sum(y for _, y in rows) / len(rows)
    spread = sum((x - mean_x) ** 2 for x, _ in rows)
    return sum((x - mean_x) * (y - mean_y) for x, y in rows) / spread if spread else 0.0


class Workers:
    """The processes of the consumers; a killed one is replaced by one with the same consumers and a new ledger.

    `foreign` are further ones that are not Python's: their programs, which take the same arguments, and consumers.
    """

    def __init__(
        self,
        servers: str,
        home: Path,
        consumers: list[str],
        count: int,
        foreign: Sequence[tuple[list[str], list[str]]] = (),
    ) -> None:
        self.servers = servers
        self.home = home
        own = [sys.executable, str(Path(__file__).with_name("soak_worker.py"))]
        self.shares = [(own, consumers[number::count]) for number in range(count)] + list(foreign)
        self.lives = [0] * len(self.shares)
        self.kills = 0
        self.processes: list[subprocess.Popen[bytes]] = [self._start(number) for number in range(len(self.shares))]

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        self.lives[number] += 1
        name = f"w{number}.{self.lives[number]}"
        program, consumers = self.shares[number]
        ledger = str(self.home / f"{name}.ledger")
        command = [*program, "--servers", self.servers, "--ledger", ledger, "--name", name, *consumers]
        with open(self.home / "workers.log", "ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def kill_one(self, number: int) -> None:
        self.processes[number].kill()
        self.processes[number].wait()
        self.kills += 1
        self.processes[number] = self._start(number)

    def revive(self) -> list[str]:
        """Those that ended by themselves, which none should."""
        ended = []
        for number, process in enumerate(self.processes):
            if process.poll() is not None:
                ended.append(f"worker {number} ended with {process.returncode}; see {self.home / 'workers.log'}")
                self.processes[number] = self._start(number)
        return ended

    def stop(self) -> None:
        for process in self.processes:
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def ledgers(self) -> Ledgers:
        return Ledgers(sorted(self.home.glob("*.ledger")))
