"""What every scheme offers to the script that puts it through its changes, and the settings that they share."""

from __future__ import annotations

from typing import Protocol

from kohort.schemes.meter import Meter, Tally
from kohort.sim.scheduler import Scheduler

GROUP, TOPIC = "g", "t"
SESSION_TIMEOUT_MS = 6_000
"""zookeeper.session.timeout.ms of 0.8; today's session.timeout.ms is set to the same."""
COMMIT_EVERY_MS = 5_000


class Scheme(Protocol):
    """A group in a world of its own, with one topic. Its consumers assign by range."""

    scheduler: Scheduler
    meter: Meter

    def join(self, name: str) -> None: ...
    def leave(self, name: str) -> None: ...
    def crash(self, name: str) -> None: ...
    def grow(self, partitions: int) -> None: ...

    def lose_broker(self) -> None:
        """The broker that coordinates the group dies; where none does, any broker."""
        ...

    def fall_behind(self, lag_ms: int) -> None:
        """One ZooKeeper follower hears of nothing new for so long, and then catches up."""
        ...

    def cut(self, name: str) -> None:
        """The consumer no longer reaches whoever coordinates, but still the brokers that it reads from."""
        ...

    def heal(self, name: str) -> None: ...

    def records_flow(self, flowing: bool) -> None:
        """Whether there is something to read, and so to commit."""
        ...

    def tally(self) -> Tally: ...
    def longest_wait_us(self) -> int:
        """How long at most a request has waited for its ZooKeeper server since this was last asked; then from 0 on."""
        ...
