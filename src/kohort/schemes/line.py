"""One direction of a connection between two simulated processes: delayed, in order, silent while it is cut."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from kohort.sim.scheduler import Scheduler

MAX_DELAY_MS = 5


class Line:
    """What is sent while the line is cut waits, as with TCP, and arrives when it heals; a closed line loses it all."""

    def __init__(self, scheduler: Scheduler, random: Random) -> None:
        self._scheduler = scheduler
        self._random = random
        self._arrives_ms = 0
        self._held: list[tuple[Callable[..., None], tuple[Any, ...]]] | None = None
        self.closed = False

    def send(self, action: Callable[..., None], *arguments: Any) -> None:
        self._arrives_ms = max(self._arrives_ms, self._scheduler.now_ms + self._random.randint(1, MAX_DELAY_MS))
        self._scheduler.at(self._arrives_ms, self._arrive, action, arguments)

    def _arrive(self, action: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        if self.closed:
            return
        if self._held is not None:
            self._held.append((action, arguments))
        else:
            action(*arguments)

    def cut(self) -> None:
        if self._held is None:
            self._held = []

    def heal(self) -> None:
        held, self._held = self._held or [], None
        for action, arguments in held:
            action(*arguments)

    def close(self) -> None:
        self.closed = True
