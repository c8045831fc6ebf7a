"""What a clean stop leaves behind for the next start: every segment with its size, and where each log ends.

A start that finds something else knows that somebody, or a disk, has taken records: which offsets are gone is said, and
the rest is served. Nothing here opens a segment.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from kohort.storage import checkpoints

FILE = "kohort.segments.json"
"""It is there from the first start on, so that a directory without its other documents is known for kohort's."""


class Inventory(NamedTuple):
    end_offset: int
    sizes: dict[int, int]
    """Base offset -> bytes."""


class Lost(NamedTuple):
    """Records that were stored and are not there any more: from `start` up to `end`, which is still there."""

    start: int
    end: int
    reason: str

    def __str__(self) -> str:
        return f"offsets {self.start} to {self.end - 1} are lost: {self.reason}"


class _Segment(Protocol):
    @property
    def base_offset(self) -> int: ...
    @property
    def size(self) -> int: ...


class _Log(Protocol):
    @property
    def end_offset(self) -> int: ...
    @property
    def segments(self) -> Iterable[_Segment]: ...


def write(directory: Path, logs: Mapping[tuple[str, int], _Log]) -> None:
    """OSError where it cannot be written."""
    document = {
        f"{topic}-{partition}": [log.end_offset, [[s.base_offset, s.size] for s in log.segments]]
        for (topic, partition), log in logs.items()
    }
    checkpoints.write_atomically(directory / FILE, json.dumps(document).encode(), sync=True)


def read(directory: Path) -> dict[tuple[str, int], Inventory]:
    """Empty where there is none, or where it cannot be read: then nothing is compared."""
    found: dict[tuple[str, int], Inventory] = {}
    try:
        for name, (end_offset, segments) in json.loads(checkpoints.read_file(directory / FILE) or b"{}").items():
            topic, _, partition = name.rpartition("-")
            found[topic, int(partition)] = Inventory(int(end_offset), {int(base): int(size) for base, size in segments})
    except (ValueError, TypeError, AttributeError):
        return {}
    return found


def exists(directory: Path) -> bool:
    return (directory / FILE).exists()
