"""The data source reaches a process that does not find the package by itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark import cloudpickle

import kohort
from kohort.spark import KohortDataSource

RECEIVER = """
import importlib.util, pathlib, sys
package_root, parcel = sys.argv[1:]
if package_root != "known":
    sys.path = [place for place in sys.path if place != package_root]
    assert importlib.util.find_spec("kohort") is None
from pyspark import cloudpickle
source = cloudpickle.loads(pathlib.Path(parcel).read_bytes())
print(source.name(), source.options["subscribe"], source.schema().fieldNames()[0])
"""


@pytest.mark.parametrize("known", [True, False])
def test_a_data_source_is_unpacked(known: bool, tmp_path: Path) -> None:
    parcel = tmp_path / "parcel"
    parcel.write_bytes(cloudpickle.dumps(KohortDataSource({"subscribe": "orders"})))
    root = "known" if known else str(Path(kohort.__file__).parents[1])
    command = [sys.executable, "-c", RECEIVER, root, str(parcel)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert run.stdout.split() == ["kohort", "orders", "key"], run.stderr
