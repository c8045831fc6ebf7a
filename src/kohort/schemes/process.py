"""Blocking code in virtual time: a generator that yields a pause in milliseconds, or a call that it waits for."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Protocol

from kohort.sim.scheduler import Scheduler

Steps = Generator[Any, Any, Any]


class Call(Protocol):
    """Something that will be answered once: `answered(value, error)`, one of the two None."""

    def begin(self, answered: Callable[[Any, Exception | None], None]) -> None: ...


class Process:
    """Runs the steps one after another."""

    def __init__(self, scheduler: Scheduler, steps: Steps) -> None:
        self._scheduler = scheduler
        self._steps = steps
        self._stopped = False
        scheduler.after(0, self._go_on, None, None)

    def stop(self) -> None:
        """As if the machine had lost power: nothing of it happens any more, not even its `finally`."""
        self._stopped = True

    def _go_on(self, value: Any, error: Exception | None) -> None:
        if self._stopped:
            return
        try:
            wanted = self._steps.send(value) if error is None else self._steps.throw(error)
        except StopIteration:
            return
        if isinstance(wanted, int):
            self._scheduler.after(wanted, self._go_on, None, None)
        else:
            wanted.begin(self._go_on)
