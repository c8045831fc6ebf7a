"""Numbers over time in a fixed amount of memory: when it is full, neighbours are put together. Pure."""

from __future__ import annotations

from array import array
from typing import NamedTuple

MOST_POINTS = 720
UNKNOWN = -1


class Point(NamedTuple):
    """`lag` is UNKNOWN where nothing is known of it."""

    at_ms: int
    commits: int
    lag: int


class Series:
    """Commits and lag of a group: a point a step, and the steps grow with the time that is covered."""

    def __init__(self, step_ms: int = 5_000, most: int = MOST_POINTS) -> None:
        self.step_ms = step_ms
        self._most = most
        self._at, self._commits, self._lag = array("q"), array("q"), array("q")

    def __len__(self) -> int:
        return len(self._at)

    def committed(self, at_ms: int, count: int = 1) -> None:
        place = self._place(at_ms)  # which may replace the columns
        self._commits[place] += count

    def lag(self, at_ms: int, lag: int) -> None:
        place = self._place(at_ms)
        self._lag[place] = lag

    def points(self, from_ms: int, to_ms: int) -> list[Point]:
        found = zip(self._at, self._commits, self._lag, strict=True)
        return [Point(*point) for point in found if from_ms - self.step_ms < point[0] < to_ms]

    def lags(self, count: int) -> list[int]:
        """The last that are known."""
        known = [lag for lag in self._lag[-4 * count :] if lag != UNKNOWN]
        return known[-count:]

    def _place(self, at_ms: int) -> int:
        step = at_ms - at_ms % self.step_ms
        if self._at and step <= self._at[-1]:
            return self._earlier(step)
        if len(self._at) >= self._most:
            self._halve()
            return self._place(at_ms)
        self._at.append(step)
        self._commits.append(0)
        self._lag.append(UNKNOWN)
        return len(self._at) - 1

    def _earlier(self, step: int) -> int:
        """What comes late, or after a clock was set back, counts for the last point at or before its time."""
        place = len(self._at) - 1
        while place > 0 and self._at[place] > step:
            place -= 1
        return place

    def _halve(self) -> None:
        self.step_ms *= 2
        points = list(zip(self._at, self._commits, self._lag, strict=True))
        self._at, self._commits, self._lag = array("q"), array("q"), array("q")
        for at_ms, commits, lag in points:
            place = self._place(at_ms)
            self._commits[place] += commits
            if lag != UNKNOWN:
                self._lag[place] = lag
