"""Which Python Spark starts on this machine: this one, with the installed pyspark instead of Spark's zip of it.

Spark puts the zip before everything else, and each of its Python processes compiles anew what it imports of it,
a second of work. The installed package is the same one, compiled. No Spark in here.
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
PYTHONPATH="${{kept#:}}" exec {python} "$@"
"""


def prepare(environ: MutableMapping[str, str] | None = None, directory: Path | None = None) -> None:
    """Leaves alone what the user has set."""
    environ = os.environ if environ is None else environ
    chosen = environ.get(VARIABLES[0]) or _launcher(directory)
    for variable in VARIABLES:
        environ.setdefault(variable, chosen)


def _launcher(directory: Path | None) -> str:
    archive = _archive()
    if archive is None or os.name != "posix":
        return sys.executable
    text = _TEXT.format(zip=shlex.quote(str(archive)), python=shlex.quote(sys.executable))
    return str(launchers.write("python", "python", text, directory) / "python")


def _archive() -> Path | None:
    """Spark's zip of the pyspark that is installed here; None where it is not installed so."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        return None
    archive = Path(spec.origin).parent / "python" / "lib" / "pyspark.zip"
    return archive if archive.exists() else None
