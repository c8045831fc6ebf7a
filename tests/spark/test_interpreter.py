"""The Python that Spark starts: the same one, which finds the installed pyspark before Spark's zip."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from kohort.spark import interpreter, launchers

ARCHIVE = Path(pyspark.__file__).parent / "python" / "lib" / "pyspark.zip"


@pytest.mark.parametrize("others", ["", ":/some where/else.zip"])
def test_the_installed_pyspark_comes_first(tmp_path: Path, others: str) -> None:
    environ: dict[str, str] = {}
    interpreter.prepare(environ, tmp_path / "a folder")
    show = "import pyspark, os, sys; print(sys.executable, pyspark.__file__, os.environ['PYTHONPATH'], *sys.argv[1:])"
    said = subprocess.run(
        [environ["PYSPARK_PYTHON"], "-c", show, "a b"],
        env={"PYTHONPATH": f"{ARCHIVE}:/x.zip{others}:{ARCHIVE}"}, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert said == f"{sys.executable} {pyspark.__file__} /x.zip{others} a b\n"


def test_other_paths_and_other_choices_are_left_alone(tmp_path: Path) -> None:
    environ: dict[str, str] = {}
    interpreter.prepare(environ, tmp_path)
    show = "import os; print(os.environ['PYTHONPATH'])"
    run = [environ["PYSPARK_PYTHON"], "-c", show]
    said = subprocess.run(run, env={"PYTHONPATH": "/other/pyspark.zip:/y"}, capture_output=True, text=True, check=True)
    assert said.stdout == "/other/pyspark.zip:/y\n"
    chosen = {"PYSPARK_PYTHON": "/usr/bin/python3"}
    interpreter.prepare(chosen, tmp_path)
    assert chosen == {"PYSPARK_PYTHON": "/usr/bin/python3", "PYSPARK_DRIVER_PYTHON": "/usr/bin/python3"}


def test_a_folder_that_others_may_write_to_is_not_used(tmp_path: Path) -> None:
    usual = launchers.write("test", "run", "#!/bin/sh\n", tmp_path)
    assert usual.parent == tmp_path and launchers.write("test", "run", "#!/bin/sh\n", tmp_path) == usual
    usual.chmod(0o777)
    home = launchers.write("test", "run", "#!/bin/sh\n", tmp_path)
    assert home != usual and (home / "run").read_text() == "#!/bin/sh\n"
    (home / "run").unlink()
    home.rmdir()


def test_environments_side_by_side_have_programs_of_their_own(tmp_path: Path) -> None:
    one, other = (launchers.write("test", "run", f"#!/bin/sh\n# {text}\n", tmp_path) for text in ("one", "other"))
    assert one != other and "# one" in (one / "run").read_text() and "# other" in (other / "run").read_text()


@pytest.mark.parametrize("installed", [True, False])
def test_daemons_of_workers_are_ours_where_they_can_be_imported(tmp_path: Path, installed: bool) -> None:
    environ: dict[str, str] = {}
    interpreter.prepare(environ, tmp_path, installed)
    command = ["sh", "-x", environ["PYSPARK_PYTHON"], "-m", "pyspark.daemon", "--help"]
    shown = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=60).stderr.decode()
    assert f"-m {interpreter.DAEMONS[installed]} --help" in shown
