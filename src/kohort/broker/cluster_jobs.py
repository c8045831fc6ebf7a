"""What a broker of a cluster asks of the store, as jobs: `run` on any thread, the answer handed to its owner."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from kohort.cluster.engine import Creating, Engine, EngineError, Missing, claim
from kohort.cluster.journal_writer import JournalWrite
from kohort.cluster.snapshots import Damaged
from kohort.protocol.errors import ErrorCode
from kohort.storage.errors import StorageError

logger = logging.getLogger("kohort.cluster")

Answered = Callable[[Any, Exception | None, int], None]
SMALL_BYTES = 256 * 1024
"""Larger objects of a journal are put together on another thread."""


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


class JournalJob(StoreJob):
    """One object of a journal. `run` on any thread; or `begin`, and `ended` once it has, on that of the broker."""

    def __init__(self, engine: Engine, write: JournalWrite, answered: Answered) -> None:
        super().__init__(lambda: claim(engine, write.name, write.encoded()), answered)
        self._write = write

    def begin(self, creating: Creating) -> bool:
        """Whether it is on its way, and no thread has to `run` it."""
        write = self._write
        return write.size <= SMALL_BYTES and creating.begin(self, write.name, write.encoded())

    def ended(self, error: Exception | None) -> bool:
        """Whether it is answered; else it has to `run`: somebody, or an earlier try, has made an object of the name."""
        if error is not None and not isinstance(error, EngineError):
            return False
        self._error = error
        return True


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
