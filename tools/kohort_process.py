"""`kohort serve` as a subprocess on a free port, shaped like apache_kafka.ApacheKafka: for tests and benchmarks.

This is the one place that knows how kohort's server is started and how one sees that it answers.
"""

from __future__ import annotations

import atexit
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from apache_kafka import answers_api_versions

START_TIMEOUT_S = 60


def kohort_command(port: int, data_dir: Path, config: Mapping[str, object], log_level: str = "info") -> list[str]:
    program = Path(sys.executable).with_name("kohort")
    settings = [word for key, value in config.items() for word in ("--config", f"{key}={value}")]
    return [
        str(program),
        "serve",
        "--port",
        str(port),
        "--data-dir",
        str(data_dir),
        "--log-level",
        log_level,
        *settings,
    ]


class KohortProcess:
    """A context manager; ended at exit in any case. Its folder is removed unless the caller named it."""

    def __init__(
        self, config: Mapping[str, object] | None = None, *, data_dir: Path | str | None = None, log_level: str = "info"
    ) -> None:
        self.config = dict(config or {})
        self._own_dir = tempfile.mkdtemp(prefix="kohort-") if data_dir is None else None
        self.home = Path(self._own_dir or data_dir or "").resolve()
        self.data_dir = self.home / "data"
        self.log_file = self.home / "server.log"
        self.log_level = log_level
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self.bootstrap_servers = f"127.0.0.1:{self.port}"
        self.startup_seconds = 0.0
        """From the start of the process to the first answered request, at the last start."""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("kohort is not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def log_tail(self, lines: int = 60) -> str:
        return (
            "\n".join(self.log_file.read_text(errors="replace").splitlines()[-lines:]) if self.log_file.exists() else ""
        )

    def __enter__(self) -> KohortProcess:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Start, and return at the first answer."""
        if self.running:
            return
        self.home.mkdir(parents=True, exist_ok=True)
        atexit.register(self.close)
        command = kohort_command(self.port, self.data_dir, self.config, self.log_level)
        began = time.monotonic()
        with open(self.log_file, "ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        while not answers_api_versions(self.port):
            if not self.running:
                raise RuntimeError(f"kohort serve ended while starting; its log:\n{self.log_tail()}")
            if time.monotonic() - began > START_TIMEOUT_S:
                self.kill()
                raise TimeoutError(f"kohort serve did not answer in {START_TIMEOUT_S} s; its log:\n{self.log_tail()}")
            time.sleep(0.002)
        self.startup_seconds = time.monotonic() - began

    def stop(self) -> None:
        """SIGTERM and wait; the data stays for the next start."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._process = None

    def kill(self) -> None:
        """Kill -9; the data stays for the next start."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._process = None

    def close(self) -> None:
        self.stop()
        if self._own_dir is not None:
            shutil.rmtree(self._own_dir, ignore_errors=True)
        atexit.unregister(self.close)
