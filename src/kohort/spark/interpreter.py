"""Which Python Spark starts on this machine: this one, with the installed pyspark instead of Spark's zip of it.

Spark puts the zip before everything else, and each of its Python processes compiles anew what it imports of it,
a second of work. The installed package is the same one, compiled. Its daemons of workers are kohort's
(worker_daemon.py), also those in which Spark plans, for which it has no setting. No Spark in here.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import sys
from collections.abc import MutableMapping
from pathlib import Path

from kohort.spark import launchers

VARIABLES = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
"""For workers, and for the processes in which sources plan."""
_TEXT = """#!/bin/sh
set -f
IFS=:
kept=
for entry in $PYTHONPATH; do
    [ "$entry" = {zip} ] || kept="$kept:$entry"
done
unset IFS
export PYTHONPATH="${{kept#:}}"
if [ "$1 $2" = "-m pyspark.daemon" ]; then
    shift 2
    exec {python} -m {daemon} "$@"
fi
exec {python} "$@"
"""
DAEMONS = ("pyspark.daemon", "kohort.spark.worker_daemon")
"""Spark's own, and the one in its stead where kohort can be imported."""


def prepare(
    environ: MutableMapping[str, str] | None = None, directory: Path | None = None, installed: bool = True
) -> None:
    """Leaves alone what the user has set. `installed`: Spark's Python processes can import kohort."""
    environ = os.environ if environ is None else environ
    chosen = environ.get(VARIABLES[0]) or _launcher(directory, DAEMONS[installed])
    for variable in VARIABLES:
        environ.setdefault(variable, chosen)


def _launcher(directory: Path | None, daemon: str) -> str:
    archive = _archive()
    if archive is None or os.name != "posix":
        return sys.executable
    text = _TEXT.format(zip=shlex.quote(str(archive)), python=shlex.quote(sys.executable), daemon=daemon)
    return str(launchers.write("python", "python", text, directory) / "python")


def _archive() -> Path | None:
    """Spark's zip of the pyspark that is installed here; None where it is not installed so."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        return None
    archive = Path(spec.origin).parent / "python" / "lib" / "pyspark.zip"
    return archive if archive.exists() else None
