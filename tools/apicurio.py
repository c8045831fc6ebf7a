"""A real schema registry for conformance tests: Apicurio's, from Maven, in memory, on loopback.

It speaks the REST API of Confluent's registry under `url`. Nothing under src/ may import this file.
"""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Self

from apache_kafka import Unavailable, _locked, _program, cache_dir
from broker_process import free_ports

VERSION = "2.6.13.Final"
"""The last that runs on Java 17."""
ARTIFACT = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
START_LIMIT_S = 180


def fetched() -> Path:
    """The folder with its jars, fetched by Maven the first time."""
    home = cache_dir() / "apicurio" / VERSION
    with _locked(home.parent / f".{VERSION}.lock"):
        if (home / "fetched").exists():
            return home
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        command = ["mvn", "-B", "-q", "dependency:copy", f"-Dartifact={ARTIFACT}", f"-DoutputDirectory={home}"]
        done = subprocess.run(command, cwd=home, capture_output=True, text=True)
        (archive,) = list(home.glob("*.tar.gz")) or (None,)
        if done.returncode != 0 or archive is None:
            raise Unavailable(f"Maven could not fetch {ARTIFACT}:\n{(done.stdout + done.stderr)[-3000:]}")
        with tarfile.open(archive) as packed:
            packed.extractall(home, filter="data")
        archive.unlink()
        (home / "fetched").touch()
        return home


class Apicurio:
    """A context manager."""

    def __init__(self, log: Path) -> None:
        (self.port,) = free_ports(1)
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/apis/ccompat/v7"

    def __enter__(self) -> Self:
        (jar,) = fetched().glob("*-runner.jar")
        settings = ["-Xmx256m", "-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={self.port}"]
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                [_program("java") or "java", *settings, "-jar", str(jar)], stdout=log, stderr=log, cwd=jar.parent
            )
        deadline = time.monotonic() + START_LIMIT_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.close()
                raise RuntimeError(f"Apicurio did not start:\n{self._log.read_text(errors='replace')[-3000:]}")
            time.sleep(0.2)
        return self

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/subjects", timeout=5) as response:
                return bool(response.status == 200)
        except (OSError, urllib.error.URLError):
            return False

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = None
