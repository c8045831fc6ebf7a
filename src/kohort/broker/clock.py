"""The time the broker goes by: the wall clock at its start, then steady; in tests also ahead of it, or at rest."""

import time


class Clock:
    """Never goes back, and is not moved by a clock that is set while the broker runs."""

    manual = False
    """Whether time passes only when it is told to."""

    def __init__(self) -> None:
        self._offset_ms = time.time() * 1000 - time.monotonic() * 1000

    def now_ms(self) -> int:
        return int(time.monotonic() * 1000 + self._offset_ms)

    def advance_to(self, at_ms: int) -> None:
        """Let time pass at once, up to a moment; one that is over already changes nothing."""
        self._offset_ms += max(at_ms - self.now_ms(), 0)


class ManualClock(Clock):
    """Stands still at the time of its making until it is advanced."""

    manual = True

    def __init__(self) -> None:
        super().__init__()
        self._now_ms = super().now_ms()

    def now_ms(self) -> int:
        return self._now_ms

    def advance_to(self, at_ms: int) -> None:
        self._now_ms = max(self._now_ms, at_ms)
