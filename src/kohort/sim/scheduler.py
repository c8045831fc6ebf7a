"""Virtual time: a queue of things to happen, in the order of their time and then of their making. No real clock."""

from __future__ import annotations

from collections import deque
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


class Stall:
    """A process that may stand still: whatever it was about to do waits, in order, until it goes on."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._until_ms = 0
        self._held: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque()
        self._going_on = False

    def lasts(self, duration_ms: int) -> None:
        self._until_ms = max(self._until_ms, self._scheduler.now_ms + duration_ms)

    def forget(self) -> None:
        """The process is gone, and what it was about to do with it."""
        self._until_ms = 0
        self._held.clear()

    def holds(self, action: Callable[..., Any], *arguments: Any) -> bool:
        """Whether this has to wait; then it is done later."""
        if self._going_on or (self._scheduler.now_ms >= self._until_ms and not self._held):
            return False
        if not self._held:
            self._scheduler.at(self._until_ms, self._go_on)
        self._held.append((action, arguments))
        return True

    def _go_on(self) -> None:
        if self._held and self._scheduler.now_ms < self._until_ms:
            self._scheduler.at(self._until_ms, self._go_on)
            return
        self._going_on = True
        while self._held:
            action, arguments = self._held.popleft()
            action(*arguments)
        self._going_on = False
