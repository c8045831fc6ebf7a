"""What a task does in one of Spark's Python workers, which run one task after another: read, and leave no burden.

How a range is read is in fetch.py.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

from kohort.spark import fetch

if TYPE_CHECKING:
    import pyarrow as pa


def run(task: fetch.ReadTask | None) -> Iterator[pa.RecordBatch]:
    if task is not None:
        yield from fetch.read(task)
        _freeze_modules()


@cache
def _freeze_modules() -> None:
    """Once a process. Spark collects garbage after every task, before the worker takes the next: some 30 ms for the
    objects of all modules, which are there to stay and need not be looked at."""
    gc.collect()
    gc.freeze()
