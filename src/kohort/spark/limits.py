"""How much a micro-batch takes of what there is: at most so many offsets or bytes, at least so many or after a while.

Pure, with the time as an argument. What a record takes is asked for elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from kohort.client.types import TopicPartition
from kohort.spark.offsets import share

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_duration_ms(text: str) -> int:
    """`15m`, `30s`, `500ms`, as Spark writes durations; ValueError else."""
    match = re.fullmatch(r"\s*(\d+)\s*([a-z]+)\s*", text.lower())
    if match is None or match.group(2) not in _UNITS_MS:
        raise ValueError(f"{text!r} is not a duration such as 30s, 15m or 1h")
    return int(match.group(1)) * _UNITS_MS[match.group(2)]


def take(
    available: Mapping[TopicPartition, int],
    most_offsets: int | None,
    most_bytes: int | None,
    bytes_per_offset: Mapping[TopicPartition, float],
) -> dict[TopicPartition, int]:
    """Of the offsets each partition has, those of the next batch; one record where not even that fits a limit."""
    taken = dict(available) if most_offsets is None else share(available, most_offsets)
    if most_bytes is None:
        return taken
    sizes = {tp: int(count * bytes_per_offset.get(tp, 0.0)) for tp, count in taken.items()}
    if sum(sizes.values()) <= most_bytes:
        return taken
    shares = share(sizes, most_bytes)
    fitting = {
        tp: min(count, int(count * shares[tp] / sizes[tp])) if sizes[tp] else count for tp, count in taken.items()
    }
    if any(fitting.values()):
        return fitting
    first = min(tp for tp, count in taken.items() if count)
    return {tp: 1 if tp == first else 0 for tp in taken}


class Holdback:
    """minOffsetsPerTrigger: a batch waits for enough, but not longer than maxTriggerDelay. The first does not wait."""

    def __init__(self, least_offsets: int | None, longest_ms: int) -> None:
        self._least = least_offsets
        self._longest_ms = longest_ms
        self._last_ms: int | None = None

    def holds(self, available: int, now_ms: int) -> bool:
        if self._least is None or self._last_ms is None or available >= self._least:
            return False
        return now_ms - self._last_ms < self._longest_ms

    def planned(self, now_ms: int) -> None:
        self._last_ms = now_ms
