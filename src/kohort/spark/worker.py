"""What a task does in one of Spark's Python workers, which run one task after another: read, and leave no burden.

How a range is read is in fetch.py.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

from kohort.spark import fetch

if TYPE_CHECKING:
    import pyarrow as pa


def run(task: fetch.ReadTask | None) -> Iterator[pa.RecordBatch]:
    if task is not None:
        _keep_memory()
        yield from fetch.read(task)
        _freeze_modules()


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGEST_FROM_HEAP = 32 * 1024 * 1024
_KEPT_FREE = 64 * 1024 * 1024


@cache
def _keep_memory() -> None:
    """Once a process. glibc gives large blocks back to the kernel when they are freed, and the next fetch would pay for
    every page anew: a third of what 1 KB records cost. Other C libraries know nothing of it and do as they do."""
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_FROM_HEAP)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_FREE)


@cache
def _freeze_modules() -> None:
    """Once a process. Spark collects garbage after every task, before the worker takes the next: some 30 ms for the
    objects of all modules, which are there to stay and need not be looked at."""
    gc.collect()
    gc.freeze()
