"""Who reads which partition, and on the strength of which view of the group: how long that was not as it should be.

The same for every scheme, so that their figures can be compared. A consumer has a view while it reads by it; in the
middle of a rebalance it has none.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, fields
from typing import NamedTuple

from kohort.sim.scheduler import Scheduler


class View(NamedTuple):
    """Which members a consumer takes the group to have, and what else it went by (partitions, generation)."""

    members: frozenset[str]
    basis: Hashable


@dataclass(slots=True)
class Tally:
    """What has added up. The first four are round trips, but for notifications, which go one way."""

    reads: int = 0
    writes: int = 0
    notifications: int = 0
    requests: int = 0
    disagreeing_ms: int = 0
    two_readers_ms: int = 0
    no_reader_ms: int = 0
    standstill_ms: int = 0
    """Time without a reader, added up over the partitions."""
    failed_attempts: int = 0
    gave_up: int = 0
    stale_commits: int = 0
    refused_commits: int = 0

    def since(self, before: Tally) -> Tally:
        return Tally(**{f.name: getattr(self, f.name) - getattr(before, f.name) for f in fields(self)})

    def copy(self) -> Tally:
        return Tally().since(Tally().since(self))

    @property
    def messages(self) -> int:
        return self.reads + self.writes + self.notifications + self.requests


@dataclass(slots=True)
class Meter:
    scheduler: Scheduler
    tally: Tally = field(default_factory=Tally)
    members: set[str] = field(default_factory=set)
    agreed_since_ms: int | None = None
    _views: dict[str, View] = field(default_factory=dict)
    _reading: dict[str, frozenset[int]] = field(default_factory=dict)
    _readers: list[int] = field(default_factory=list)
    _since_ms: int = 0

    # What is so.

    def joined(self, name: str) -> None:
        self._account()
        self.members.add(name)
        self._judge()

    def gone(self, name: str) -> None:
        """It left or died: it reads no more, and nobody should count on it."""
        self._account()
        self.members.discard(name)
        self._put(name, frozenset(), None)

    def topic_has(self, partitions: int) -> None:
        self._account()
        self._readers += [0] * (partitions - len(self._readers))
        self._judge()

    def reads(self, name: str, partitions: Iterable[int], view: View) -> None:
        self._account()
        self._put(name, frozenset(partitions), view)

    def stops(self, name: str) -> None:
        self._account()
        self._put(name, frozenset(), None)

    def read_by(self, name: str) -> frozenset[int]:
        return self._reading.get(name, frozenset())

    @property
    def unread(self) -> int:
        """Partitions that nobody reads."""
        return self._readers.count(0)

    def now(self) -> Tally:
        self._account()
        return self.tally.copy()

    # How it adds up.

    def _put(self, name: str, partitions: frozenset[int], view: View | None) -> None:
        before = self._reading.pop(name, frozenset())
        for partition in before - partitions:
            self._readers[partition] -= 1
        for partition in partitions - before:
            self._readers[partition] += 1
        self._views.pop(name, None)
        if view is not None:
            self._reading[name] = partitions
            self._views[name] = view
        self._judge()

    def _account(self) -> None:
        """Add the time since the last change to whatever has been wrong during it."""
        now_ms = self.scheduler.now_ms
        lasted_ms, self._since_ms = now_ms - self._since_ms, now_ms
        if lasted_ms and self._readers:
            self.tally.disagreeing_ms += lasted_ms * self._disagree()
            self.tally.two_readers_ms += lasted_ms * (max(self._readers) > 1)
            self.tally.no_reader_ms += lasted_ms * (min(self._readers) == 0)
            self.tally.standstill_ms += lasted_ms * self.unread

    def _disagree(self) -> bool:
        return len(set(self._views.values())) > 1

    def _judge(self) -> None:
        """Agreed: all members and nobody else go by one view, the true one, and each partition has one reader."""
        agreed = (
            set(self._readers) == {1}
            and self._views.keys() == self.members
            and not self._disagree()
            and all(view.members == self.members for view in self._views.values())
        )
        if not agreed:
            self.agreed_since_ms = None
        elif self.agreed_since_ms is None:
            self.agreed_since_ms = self.scheduler.now_ms
