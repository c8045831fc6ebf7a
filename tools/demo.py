"""`make demo`: sets up what the demo needs, and plays its first part while Spark is downloaded for the second.

Standard library only: it runs before anything is installed. Says what it downloads, and how much.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
KOHORT = VENV / "bin" / "kohort"
LOG = VENV / "spark-install.log"
SMALL_MB, SPARK_MB = 12, 570
DOWNLOADING = re.compile(rb"Downloading (\S+?)(?:-py3\S*|-cp3\S*|\.tar\.gz|\.whl)\S* \(([\d.]+ [kMG]B)\)")


def has(module: str) -> bool:
    probe = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    return PYTHON.exists() and subprocess.run([PYTHON, "-c", probe]).returncode == 0


def say(text: str) -> None:
    print(f"make demo: {text}", flush=True)


def install(*what: str, **options: object) -> subprocess.Popen[bytes]:
    command = [PYTHON, "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off"]
    return subprocess.Popen([*command, "--constraint", "constraints.txt", *what], cwd=ROOT, **options)  # type: ignore[call-overload,no-any-return]


def set_up() -> None:
    if has("kohort"):
        return
    say(f"installing kohort into .venv, a download of some {SMALL_MB} MB")
    if not PYTHON.exists():
        venv.create(VENV, with_pip=True)
    if install("--quiet", "--editable", ".").wait() != 0:
        sys.exit("make demo: pip could not install kohort; see above")


def spark_packages() -> list[str]:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    return [name for extra in ("arrow", "spark") for name in extras[extra] if not name.startswith("kohort[")]


def wait_for(installing: subprocess.Popen[bytes]) -> bool:
    """Until Spark is there, with a line that moves."""
    began = time.monotonic()
    while installing.poll() is None:
        found = DOWNLOADING.findall(LOG.read_bytes())
        what = f"{found[-1][0].decode()} ({found[-1][1].decode()})" if found else "looking for packages"
        text = f"make demo: Spark for part 2: {what}, {time.monotonic() - began:.0f} s"
        if sys.stdout.isatty():
            print(f"\r\x1b[K{text}", end="", flush=True)
        time.sleep(0.5)
    if sys.stdout.isatty():
        print("\r\x1b[K", end="", flush=True)
    return installing.returncode == 0


def main() -> int:
    set_up()
    if os.environ.get("FAST"):
        return subprocess.run([KOHORT, "demo", "--fast"]).returncode
    if has("pyspark"):
        return subprocess.run([KOHORT, "demo"]).returncode
    say(f"part 2 needs Spark, some {SPARK_MB} MB: it is downloaded while part 1 plays; make demo FAST=1 goes without")
    with LOG.open("wb") as log:
        installing = install(*spark_packages(), stdout=log, stderr=subprocess.STDOUT)
        try:
            code = subprocess.run([KOHORT, "demo", "--part", "1"]).returncode
            if code != 0:
                return code
            if not wait_for(installing):
                say(f"Spark could not be installed, so part 2 is left out; {LOG.relative_to(ROOT)} says why")
                return 0
        finally:
            installing.terminate()
            installing.wait()
    return subprocess.run([KOHORT, "demo", "--part", "2"]).returncode


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
