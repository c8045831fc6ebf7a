"""What a process and its children cost, from /proc (Linux). Nothing here knows what the process does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def family(pid: int) -> Iterator[int]:
    """The process and its living descendants."""
    todo = [pid]
    while todo:
        current = todo.pop()
        yield current
        try:
            for task in Path(f"/proc/{current}/task").iterdir():
                todo += map(int, (task / "children").read_text().split())
        except OSError:
            continue


def cpu_seconds(pid: int) -> float:
    """User and system time used so far by the family, ended children included where they were waited for."""
    ticks = 0
    for member in family(pid):
        try:
            fields = Path(f"/proc/{member}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += sum(map(int, fields[11:15]))
    return ticks / TICKS_PER_SECOND


def resident_bytes(pid: int) -> int:
    """Resident memory of the family."""
    total = 0
    for member in family(pid):
        try:
            lines = Path(f"/proc/{member}/status").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))
    return total
