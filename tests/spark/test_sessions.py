"""How many tasks a local session runs at a time, as far as its master says."""

from __future__ import annotations

import os

import pytest

from kohort.spark.sessions import local_cores


@pytest.mark.parametrize(
    ("master", "cores"),
    [
        ("local", 1),
        ("local[2]", 2),
        ("local[ 4, 3 ]", 4),
        ("local[*]", os.cpu_count()),
        ("local-cluster[2,1,1024]", None),
        ("spark://host:7077", None),
        ("yarn", None),
    ],
)
def test_cores_of_a_master(master: str, cores: int | None) -> None:
    assert local_cores(master) == cores
