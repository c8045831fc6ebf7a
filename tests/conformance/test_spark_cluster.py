"""spark-submit on a cluster, reading a real Apache Kafka: kohort installed on it, or shipped along with the program."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest

import kohort
from apache_kafka import ApacheKafka
from spark import cluster_job
from spark.query import Query, committed, create, produce, stopping, unique
from spark.standalone import StandaloneCluster
from spark.streams import numbers, patiently

PROGRAM = Path(cluster_job.__file__)
RECORDS = 1500


@pytest.fixture(scope="module")
def cluster(jdk: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    with StandaloneCluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


class Job:
    """The program as submitted, with topics and a group of its own. A context manager: it does not outlive its test."""

    def __init__(self, cluster: StandaloneCluster, servers: str, folder: Path, **how: Any) -> None:
        self._cluster, self._servers, self._folder = cluster, servers, folder
        self._group, self._topic, self._target = unique(), unique("orders"), unique("copies")
        create(servers, self._topic)
        create(servers, self._target)
        produce(servers, self._topic, numbers(0, RECORDS))
        self._log = folder / "submit.log"
        names = (servers, self._group, self._topic, self._target, str(folder))
        self._process = cluster.submit(PROGRAM, *names, log=self._log, **how)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def batches(self) -> int:
        """How many it has finished."""
        assert self._process.poll() is None, self._log.read_text()
        return len(list(self._folder.glob("checkpoint/commits/[0-9]*")))

    def has_done_all(self) -> dict[str, Any]:
        """Waits for its end; what it printed then."""
        output, _ = self._process.communicate(timeout=300)
        assert self._process.returncode == 0, self._log.read_text()
        told = json.loads(output.splitlines()[-1])
        assert told["master"] == self._cluster.url
        assert told["rows"] == told["places"] == RECORDS, "every record once"
        assert sum(committed(self._servers, self._group, self._topic).values()) == RECORDS
        copies = Query(self._servers, unique(), subscribe=self._target)
        with stopping(copies):
            copies.step_until(RECORDS)
        assert sorted(map(int, copies.values())) == list(range(RECORDS))
        return told


def test_a_program_with_kohort_installed_survives_the_loss_of_an_executor(
    cluster: StandaloneCluster, apache_kafka: ApacheKafka, tmp_path: Path
) -> None:
    with Job(cluster, apache_kafka.bootstrap_servers, tmp_path) as job:
        patiently(lambda: job.batches() > 2 and len(cluster.executors()) == 2, "two executors are at work")
        os.kill(min(cluster.executors()), signal.SIGKILL)
        assert job.batches() < RECORDS / cluster_job.RECORDS_A_BATCH, "it was still at work"
        told = job.has_done_all()
    assert told["from"] == kohort.__file__


def test_a_program_that_brings_kohort_along(
    cluster: StandaloneCluster, apache_kafka: ApacheKafka, tmp_path: Path
) -> None:
    package = Path(kohort.__file__).parent
    parcel = shutil.make_archive(str(tmp_path / "kohort"), "zip", package.parent, package.name)
    how = {"options": {"py-files": parcel}, "python": without_kohort(tmp_path / "venv")}
    with Job(cluster, apache_kafka.bootstrap_servers, tmp_path, **how) as job:
        told = job.has_done_all()
    assert ".zip" in told["from"]


def without_kohort(folder: Path) -> Path:
    """A Python with all that is installed here but kohort."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    (packages,) = folder.glob("lib/python*/site-packages")
    for installed in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for path in Path(installed).iterdir():
            if "kohort" not in path.name and not (packages / path.name).exists():
                (packages / path.name).symlink_to(path)
    assert subprocess.run([python, "-c", "import kohort"], capture_output=True).returncode == 1
    return python
