"""What a broker of a cluster asks of the store, as jobs: `run` on any thread, the answer handed to its owner."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from kohort.cluster.engine import Engine, EngineError, Missing
from kohort.cluster.snapshots import Damaged
from kohort.protocol.errors import ErrorCode
from kohort.storage.errors import StorageError

logger = logging.getLogger("kohort.cluster")

Answered = Callable[[Any, Exception | None, int], None]


class StoreJob:
    """One question to the store. `answered(result, error, now_ms)`: the error is an EngineError or Damaged."""

    def __init__(self, ask: Callable[[], Any], answered: Answered) -> None:
        self._ask = ask
        self._answered = answered
        self._result: Any = None
        self._error: Exception | None = None

    def run(self) -> None:
        try:
            self._result = self._ask()
        except (EngineError, Damaged) as error:
            self._error = error
        except Exception as error:
            logger.exception("a question to the store failed")
            self._error = EngineError(repr(error))

    def finish(self, error: BaseException | None, now_ms: int) -> None:
        if error is not None:
            self._error = EngineError(repr(error))
        self._answered(self._result, self._error, now_ms)


def read_range(engine: Engine, name: str, position: int, size: int) -> bytes:
    """Of a segment; StorageError has the code that clients are answered with."""
    try:
        return engine.get_range(name, position, size)
    except Missing:
        raise StorageError(
            f"{name} is gone from {engine.name}: its offsets cannot be read until it is restored from a copy",
            ErrorCode.CORRUPT_MESSAGE,
        ) from None
    except EngineError as error:
        raise StorageError(f"a segment cannot be read from the store, clients ask again: {error}") from None
