"""Java programs for the recipes: their jars, fetched by Maven once, and a process that always ends."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

KAFKA = "4.3.1"
POM = """<project><modelVersion>4.0.0</modelVersion><groupId>recipes</groupId><artifactId>{name}</artifactId>
<version>1</version><dependencies>{dependencies}</dependencies></project>"""
DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"


def jars(name: str, *artifacts: str) -> str:
    """A class path of these artifacts (group:name:version) and all they need; skips where there is no JDK or Maven."""
    if shutil.which("java") is None or shutil.which("mvn") is None:
        pytest.skip("needs a JDK 17 or newer, and Maven")
    folder = Path.home() / ".cache" / "kohort-recipes" / f"{name}-{KAFKA}"
    done = folder / "fetched"
    if not done.exists():
        folder.mkdir(parents=True, exist_ok=True)
        wanted = "".join(DEPENDENCY.format(*artifact.split(":")) for artifact in artifacts)
        (folder / "pom.xml").write_text(POM.format(name=name, dependencies=wanted))
        command = ["mvn", "-B", "-q", "dependency:copy-dependencies", "-DoutputDirectory=jars"]
        subprocess.run(command, cwd=folder, check=True)
        done.touch()
    return f"{folder}/jars/*"


@contextlib.contextmanager
def running(*command: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`java` with these arguments until the block ends; what it says is in `log`."""
    with log.open("wb") as out, subprocess.Popen(["java", "-Xmx256m", *command], stdout=out, stderr=out) as process:
        try:
            yield process
        finally:
            process.kill()


def until(condition: Callable[[], object], log: Path, limit_s: float = 120) -> None:
    """Waits for a condition; where it does not come, the end of what the program said is told."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            said = log.read_text(errors="replace")[-3_000:]
            raise AssertionError(f"not within {limit_s} s; the program said:\n{said}")
        time.sleep(0.1)
