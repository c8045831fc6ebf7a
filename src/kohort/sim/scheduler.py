"""Virtual time: a queue of things to happen, in the order of their time and then of their making. No real clock."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any


class Event:
    """Something that will happen, unless it is cancelled first."""

    __slots__ = ("action", "arguments", "at_ms")

    def __init__(self, at_ms: int, action: Callable[..., None] | None, arguments: tuple[Any, ...]) -> None:
        self.at_ms = at_ms
        self.action = action
        self.arguments = arguments

    def cancel(self) -> None:
        self.action = None


class Scheduler:
    def __init__(self, start_ms: int) -> None:
        self.now_ms = start_ms
        self.happened = 0
        self._sequence = 0
        self._queue: list[tuple[int, int, Event]] = []

    def at(self, at_ms: int, action: Callable[..., None], *arguments: Any) -> Event:
        event = Event(max(at_ms, self.now_ms), action, arguments)
        self._sequence += 1
        heappush(self._queue, (event.at_ms, self._sequence, event))
        return event

    def after(self, delay_ms: int, action: Callable[..., None], *arguments: Any) -> Event:
        return self.at(self.now_ms + delay_ms, action, *arguments)

    def run(self, until_ms: int) -> None:
        """Let everything happen that is due up to then."""
        queue = self._queue
        while queue and queue[0][0] <= until_ms:
            at_ms, _, event = heappop(queue)
            if event.action is None:
                continue
            self.now_ms = at_ms
            self.happened += 1
            event.action(*event.arguments)
        self.now_ms = until_ms
