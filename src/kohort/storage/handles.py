"""How many files a store keeps open: segments that are not used for a while give up descriptors and maps."""

from __future__ import annotations

import threading
from typing import Protocol

DEFAULT_LIMIT = 128


class Holder(Protocol):
    used: bool

    def release(self) -> None: ...


class Handles:
    """Second chance: the oldest holder goes, unless it was used since it was last looked at."""

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self.limit = limit
        self._holders: dict[int, Holder] = {}
        self._lock = threading.Lock()  # logs are closed by several threads

    def __len__(self) -> int:
        return len(self._holders)

    def opened(self, holder: Holder) -> None:
        """`holder` has opened something."""
        holder.used = True
        with self._lock:
            self._holders[id(holder)] = holder
            while len(self._holders) > self.limit:
                key, oldest = next(iter(self._holders.items()))
                del self._holders[key]
                if oldest.used:
                    oldest.used = False
                    self._holders[key] = oldest
                else:
                    oldest.release()

    def forget(self, holder: Holder) -> None:
        """`holder` is gone for good."""
        with self._lock:
            self._holders.pop(id(holder), None)
