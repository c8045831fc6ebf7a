"""What a query waits for, told once it has lasted and then now and again, so that no standstill is silent."""

from __future__ import annotations

import logging
import time

log = logging.getLogger("kohort.spark")

PATIENCE_SECONDS = 3.0
"""Less is usual: a rebalance, a broker that restarts."""
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

    def says(self, reason: str | None) -> None:
        """Why nothing is read now, as often as one likes."""
        if reason is None:
            self.is_over()
            return
        now = time.monotonic()
        self.reason = reason
        lasted = now - self._since
        if lasted >= PATIENCE_SECONDS and (self._told != reason or now - self._told_at >= REPEAT_SECONDS):
            self._told, self._told_at = reason, now
            log.warning("%s: for %.0f s nothing could be read: %s", self._who, lasted, reason)

    def is_over(self) -> None:
        if self._told is not None:
            log.info("%s: reading again after %.0f s", self._who, time.monotonic() - self._since)
        self.reason = self._told = None
        self._since = time.monotonic()
