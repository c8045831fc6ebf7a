"""What drivers of a core do alike, whatever waits for them: the end of an ask, a line for the log. No policy."""

from __future__ import annotations

import logging
from typing import Any, Protocol

from kohort.client import effects as fx

LEVELS = logging.getLevelNamesMapping()


class Waiting(Protocol):
    """A future of asyncio's or of a thread's."""

    def done(self) -> bool: ...
    def set_result(self, result: Any, /) -> None: ...
    def set_exception(self, error: Any, /) -> None: ...
    def exception(self) -> BaseException | None: ...


def resolve(future: Waiting | None, effect: fx.Done) -> None:
    """Whoever asked may have given up."""
    if future is None or future.done():
        return
    if effect.error is None:
        future.set_result(effect.value)
    else:
        future.set_exception(effect.error)
        future.exception()  # counts as seen: whoever is no longer there is not complained about


def report(logger: logging.Logger, effect: fx.Report) -> None:
    logger.log(LEVELS[effect.level], "%s", effect.text)
