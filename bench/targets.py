"""The two brokers under measurement, started as subprocesses in the same way: `kohort serve` and a real Apache Kafka.

This is the one place that knows how to start either. What is measured on them belongs to the sections.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

from apache_kafka import PRODUCTION_JVM, ApacheKafka, answers_api_versions, available

START_TIMEOUT_S = 60


class Target(Protocol):
    """A running broker. `side` is the column of the tables it belongs to."""

    side: str
    bootstrap_servers: str
    pid: int
    startup_seconds: float

    def start(self) -> None: ...

    def stop(self) -> None: ...


def kohort_command(port: int, data_dir: Path, config: Mapping[str, object]) -> list[str]:
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
        "warning",
        *settings,
    ]


class KohortTarget:
    """`kohort serve` on a free port with files in a temporary folder."""

    side = "kohort"

    def __init__(self, config: Mapping[str, object] | None = None) -> None:
        self.config = dict(config or {})
        self.home = Path(tempfile.mkdtemp(prefix="kohort-bench-"))
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self.bootstrap_servers = f"127.0.0.1:{self.port}"
        self.startup_seconds = 0.0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, "kohort is not running"
        return self._process.pid

    def start(self) -> None:
        log_path = self.home / "server.log"
        began = time.monotonic()
        with open(log_path, "ab") as log:
            command = kohort_command(self.port, self.home / "data", self.config)
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        while not answers_api_versions(self.port):
            if self._process.poll() is not None:
                raise RuntimeError(f"kohort serve ended while starting:\n{log_path.read_text()[-3000:]}")
            if time.monotonic() - began > START_TIMEOUT_S:
                self.stop()
                raise TimeoutError(
                    f"kohort serve did not answer in {START_TIMEOUT_S} s:\n{log_path.read_text()[-3000:]}"
                )
            time.sleep(0.002)
        self.startup_seconds = time.monotonic() - began

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.home, ignore_errors=True)


class KafkaTarget(ApacheKafka):
    """Apache Kafka with the JVM settings of its own start script."""

    side = "kafka"

    def __init__(self, config: Mapping[str, object] | None = None) -> None:
        super().__init__(config, jvm=PRODUCTION_JVM, log_level="WARN")


@contextlib.contextmanager
def running(side: str, config: Mapping[str, object] | None = None) -> Iterator[Target]:
    """A started broker of one side, ended and cleaned up afterwards."""
    target = KohortTarget(config) if side == "kohort" else KafkaTarget(config)
    try:
        target.start()
        yield target
    finally:
        target.close()


def usable_sides(wanted: list[str]) -> tuple[list[str], list[str]]:
    """The sides that can be run here, and a sentence for each that cannot."""
    usable, reasons = [], []
    for side in wanted:
        if side == "kafka" and not available()[0]:
            reasons.append(f"Apache Kafka is left out: {available()[1]}")
        else:
            usable.append(side)
    return usable, reasons
