"""The data source in a process that may not find this package by itself. Nothing else in here: it travels by value.

Spark tells a query's driver process a wrong place for what was shipped with --py-files. The planner has found it, and
is on the same machine.
"""

from __future__ import annotations

from typing import Any


def unpack(place: str, options: dict[str, str]) -> Any:
    """`place` is where the package was found by whoever packed the data source."""
    import importlib
    import sys

    try:
        source = importlib.import_module("kohort.spark.source")
    except ModuleNotFoundError:
        sys.path.append(place)
        source = importlib.import_module("kohort.spark.source")
    return source.KohortDataSource(options)
