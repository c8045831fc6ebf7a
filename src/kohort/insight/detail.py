"""Levels of detail: of bands that lie closer together than a pixel, as many as can be seen; bars: lanes.py. Pure.

A picture of a week does not need what lasted a millisecond twice in a row; zooming in asks again and brings it back.
"""

from __future__ import annotations

from collections.abc import Iterable

from kohort.insight.lanes import OPEN
from kohort.insight.rebalances import Rebalance

PIXELS = 6_000
"""Of the span that is asked for: three screens of a wide one."""


def step_of(from_ms: int, to_ms: int, pixels: int = PIXELS) -> int:
    return max(1, (to_ms - from_ms) // pixels)


def seen_bands(rebalances: Iterable[tuple[Rebalance, int, int]], step_ms: int) -> list[Rebalance]:
    """Of (rebalance, start, end): the longest of those that begin within one step, and all that are open."""
    best: dict[int, tuple[int, Rebalance]] = {}
    kept: list[Rebalance] = []
    for one, start_ms, end_ms in rebalances:
        if end_ms == OPEN:
            kept.append(one)
            continue
        step, lasts_ms = start_ms // step_ms, end_ms - start_ms
        if step not in best or best[step][0] < lasts_ms:
            best[step] = (lasts_ms, one)
    return sorted([*kept, *(one for _, one in best.values())], key=lambda one: one.started_ms)
