"""franz-go's own tests, to be run against any broker: its module, fetched by Go, in a folder that can be written to."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

from apache_kafka import Unavailable, cache_dir

VERSION = "v1.19.5"


def fetch_franz_go() -> Path:
    """The folder of its sources; Unavailable says what is missing."""
    folder = cache_dir() / "franz-go" / VERSION
    if (folder / "go.mod").exists():
        return folder
    if shutil.which("go") is None:
        raise Unavailable("go not found: install Go, which fetches franz-go")
    folder.parent.mkdir(parents=True, exist_ok=True)
    command = ["go", "mod", "download", "-json", f"github.com/twmb/franz-go@{VERSION}"]
    done = subprocess.run(command, cwd=folder.parent, capture_output=True, text=True)
    if done.returncode != 0:
        raise Unavailable(f"Go could not fetch franz-go {VERSION}:\n{(done.stdout + done.stderr)[-2000:]}")
    shutil.copytree(json.loads(done.stdout)["Dir"], folder, copy_function=_copy)
    return folder


def _copy(source: str, target: str) -> None:
    """Go's own copy is read-only."""
    shutil.copyfile(source, target)
    folder = os.path.dirname(target)
    os.chmod(folder, 0o755)


def build(program: Path) -> Path:
    """A program of one file that uses its client, made within its module; what can be run."""
    folder = fetch_franz_go()
    target = folder / "programs" / program.stem
    target.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(program, target / "main.go")
    made = target / program.stem
    command = ["go", "build", "-o", str(made), f"./programs/{program.stem}"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"go build of {program.name} failed:\n{done.stdout + done.stderr}")
    return made


def run_tests(names: str, servers: str, records: int, timeout: float) -> subprocess.CompletedProcess[str]:
    """`go test -run names` of its client package."""
    settings = {"KGO_SEEDS": servers, "KGO_TEST_RF": "1", "KGO_TEST_RECORDS": str(records), "KGO_LOG_LEVEL": "warn"}
    command = ["go", "test", "-count=1", "-run", names, "-timeout", f"{timeout:.0f}s", "./pkg/kgo"]
    folder = fetch_franz_go()
    return subprocess.run(command, cwd=folder, env={**os.environ, **settings}, capture_output=True, text=True)
