"""How far partitions have grown, and when: with it a lag in records becomes a lag in seconds. Pure, and bounded."""

from __future__ import annotations

from array import array
from bisect import bisect_right

MOST_ENDS = 96


class LogEnds:
    """The end of one partition over time; when it is full, every second of the older ones goes."""

    __slots__ = ("_at", "_end")

    def __init__(self) -> None:
        self._at, self._end = array("q"), array("q")

    @property
    def last(self) -> int | None:
        return self._end[-1] if self._end else None

    def seen(self, at_ms: int, end: int) -> None:
        if self._at and (at_ms <= self._at[-1] or end < self._end[-1]):
            if end < self._end[-1]:  # the topic was created anew
                self._at, self._end = array("q", [at_ms]), array("q", [end])
            return
        if len(self._end) > 1 and end == self._end[-1] == self._end[-2]:
            self._at[-1] = at_ms  # nothing new: the same end until now
            return
        self._at.append(at_ms)
        self._end.append(end)
        if len(self._at) > MOST_ENDS:
            half = len(self._at) // 2
            self._at = self._at[:half:2] + self._at[half:]
            self._end = self._end[:half:2] + self._end[half:]

    def at(self, at_ms: int) -> int | None:
        """By interpolation; None before the first."""
        place = bisect_right(self._at, at_ms)
        if not place:
            return None
        if place == len(self._at):
            return self._end[-1]
        t0, t1, e0, e1 = self._at[place - 1], self._at[place], self._end[place - 1], self._end[place]
        return e0 + (e1 - e0) * (at_ms - t0) // (t1 - t0)

    def behind_ms(self, offset: int, now_ms: int) -> int | None:
        """How long ago the record at `offset` was written, by interpolation; None where that was before the first."""
        if not self._end:
            return None
        if offset >= self._end[-1]:
            return 0
        place = bisect_right(self._end, offset)
        if not place:
            return None
        t0, t1, e0, e1 = self._at[place - 1], self._at[place], self._end[place - 1], self._end[place]
        return max(0, now_ms - (t0 + (t1 - t0) * (offset - e0) // (e1 - e0)))
