"""What a query waits for, told once it has lasted and then now and again, so that no standstill is silent."""

from __future__ import annotations

import logging
import time

log = logging.getLogger("kohort.spark")

PATIENCE_SECONDS = 3.0
"""Less is usual: a rebalance, a broker that restarts."""
CHANGED_SECONDS = 10.0
"""Another reason is told no sooner: of several brokers that are away, each has its own."""
REPEAT_SECONDS = 60.0


class Waiting:
    def __init__(self, who: str) -> None:
        self._who = who
        self.reason: str | None = None
        """Why nothing can be read now; None where all is well."""
        self._since = time.monotonic()
        self._told_at = 0.0
        self._told: str | None = None

    def begins(self) -> None:
        """What may take long, and says nothing before it has failed."""
        if self.reason is None:
            self._since = time.monotonic()

    @property
    def seconds(self) -> float:
        """How long it has lasted."""
        return time.monotonic() - self._since

    def says(self, reason: str | None, usual_seconds: float = 0) -> bool:
        """Why nothing is read now, as often as one likes; whether it was told now. What is usual is not told."""
        if reason is None:
            self.is_over()
            return False
        self.reason = reason
        if self.seconds < max(PATIENCE_SECONDS, usual_seconds) or not self._is_news(reason):
            return False
        self._told, self._told_at = reason, time.monotonic()
        log.warning("%s: for %.0f s nothing could be read: %s", self._who, self.seconds, reason)
        return True

    def _is_news(self, reason: str) -> bool:
        ago = time.monotonic() - self._told_at
        return self._told is None or ago >= REPEAT_SECONDS or (reason != self._told and ago >= CHANGED_SECONDS)

    def is_over(self) -> None:
        if self._told is not None:
            log.info("%s: reading again after %.0f s", self._who, time.monotonic() - self._since)
        self.reason = self._told = None
        self._since = time.monotonic()
