"""Whether a group keeps up, from its last commits: the five verdicts of Burrow, by its rules. Pure.

A fixed limit for lag says little; what matters is whether the offsets move and the lag shrinks (LinkedIn's Burrow).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from itertools import pairwise
from typing import NamedTuple

WINDOW = 10
"""Commits that a verdict looks at."""
SILENT_MS = 60_000
"""No shorter pause counts as silence."""


class LagVerdict(Enum):
    """The value is its name for people, from good to bad."""

    OK = "keeps up"
    RISING = "lag rises"
    REWOUND = "rewound"
    STOPPED = "stopped committing"
    STALLED = "stalled"


class CommitPoint(NamedTuple):
    """`lag` as it was at the commit; None where the end of the partition was not known then."""

    at_ms: int
    offset: int
    lag: int | None


def lag_verdict(window: Sequence[CommitPoint], lag_now: int | None, now_ms: int) -> LagVerdict:
    """Of one partition; the oldest commit first."""
    if not window or lag_now is None or lag_now <= 0:
        return LagVerdict.OK
    first, last = window[0], window[-1]
    if len(window) > 1 and last.offset < window[-2].offset:
        return LagVerdict.REWOUND
    if any(point.lag == 0 for point in window):
        # It had caught up in the meantime; unless it has said nothing since.
        return LagVerdict.STOPPED if _silent(window, now_ms) else LagVerdict.OK
    if _silent(window, now_ms):
        return LagVerdict.STOPPED
    lags = [point.lag for point in window if point.lag is not None]
    growing = len(lags) > 1 and all(later >= earlier for earlier, later in pairwise(lags))
    if len(window) >= WINDOW // 2 and first.offset == last.offset and growing:
        return LagVerdict.STALLED
    if len(window) >= WINDOW // 2 and growing and lags[-1] > lags[0]:
        return LagVerdict.RISING
    return LagVerdict.OK


def _silent(window: Sequence[CommitPoint], now_ms: int) -> bool:
    """No commit for longer than the whole window took."""
    took_ms = window[-1].at_ms - window[0].at_ms
    return len(window) > 1 and now_ms - window[-1].at_ms > max(took_ms, SILENT_MS)
