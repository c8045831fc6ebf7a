"""What a Spark worker process keeps from task to task."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PAGE_FAULTS = """
import resource
from kohort.spark.worker import _keep_memory

if {keep}:
    _keep_memory()

def use():
    blocks = [bytearray(4 << 20) for _ in range(12)]

use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told to keep freed memory")
def test_freed_memory_is_used_again_instead_of_fresh_pages() -> None:
    def faults(keep: bool) -> int:
        command = [sys.executable, "-c", PAGE_FAULTS.format(keep=keep)]
        return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    assert faults(keep=True) * 10 < faults(keep=False)
