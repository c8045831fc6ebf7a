"""A Spark cluster on loopback: a master and workers of one core each, whose executors are processes of their own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import pyspark

from broker_process import free_ports
from kohort.spark import java
from spark.streams import descendants, patiently

EXECUTOR = "CoarseGrainedExecutorBackend"
QUIET_AND_SMALL = {
    "spark.log.level": "ERROR",
    "spark.ui.enabled": "false",
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
}


class StandaloneCluster:
    """A context manager. What its processes say is in `folder`."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self.folder, self._workers = folder, workers
        (self._port,) = free_ports(1)
        self._home = Path(pyspark.__file__).parent
        self._processes: list[subprocess.Popen[bytes]] = []
        self._environment = {
            **os.environ,
            "SPARK_HOME": str(self._home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
        }
        java.prepare(self._environment)

    @property
    def url(self) -> str:
        return f"spark://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        try:
            master = self._start("master", "--port", str(self._port))
            patiently(self._answers, "the master listens")
            for number in range(self._workers):
                self._start("worker", "--cores", "1", "-d", str(self.folder / f"work-{number}"), self.url)
            patiently(lambda: master.read_text().count("Registering worker") == self._workers, "the workers are known")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """The workers end their executors, so they go first."""
        for process in reversed(self._processes):
            process.terminate()
            process.wait(60)
        self._processes.clear()

    def _start(self, role: str, *arguments: str) -> Path:
        """Start a master or a worker; the file with its log."""
        program = [str(self._home / "bin" / "spark-class"), f"org.apache.spark.deploy.{role}.{role.title()}"]
        command = [*program, "--host", "127.0.0.1", "--webui-port", "0", *arguments]
        log = self.folder / f"{role}-{len(self._processes)}.log"
        with open(log, "wb") as output:
            self._processes.append(subprocess.Popen(command, stdout=output, stderr=output, env=self._environment))
        return log

    def _answers(self) -> bool:
        assert self._processes[0].poll() is None, (self.folder / "master-0.log").read_text()
        try:
            socket.create_connection(("127.0.0.1", self._port), 1).close()
        except OSError:
            return False
        return True

    def submit(
        self,
        program: Path,
        *arguments: str,
        log: Path,
        options: Mapping[str, str] | None = None,
        python: Path | None = None,
    ) -> subprocess.Popen[str]:
        """spark-submit; `options` are its own. The program's output is read from the process, all else from `log`."""
        command = [str(self._home / "bin" / "spark-submit"), "--master", self.url]
        for name, value in QUIET_AND_SMALL.items():
            command += ["--conf", f"{name}={value}"]
        for name, value in (options or {}).items():
            command += [f"--{name}", value]
        command += [str(program), *arguments]
        environment = {**self._environment, "PYSPARK_PYTHON": str(python or sys.executable)}
        with open(log, "wb") as errors:
            return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)

    def executors(self) -> set[int]:
        """The process ids of the executors that run now."""
        return descendants(EXECUTOR, {process.pid for process in self._processes[1:]})
