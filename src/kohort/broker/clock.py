"""The time the broker goes by: the wall clock at its start, then steady, and on request ahead of it (for tests)."""

import time


class Clock:
    """Never goes back, and is not moved by a clock that is set while the broker runs."""

    def __init__(self) -> None:
        self._offset_ms = time.time() * 1000 - time.monotonic() * 1000

    def now_ms(self) -> int:
        return int(time.monotonic() * 1000 + self._offset_ms)

    def advance(self, seconds: float) -> None:
        """Let time pass at once: sessions expire, waits end, without sleeping."""
        if seconds < 0:
            raise ValueError("time does not go back: advance() takes a positive number of seconds")
        self._offset_ms += seconds * 1000
