"""What a query holds of its group: partitions, positions, the batch in flight. Shared by two threads, does no I/O.

Spark's thread plans batches and reports them finished; the member's thread assigns, revokes and commits. A partition
goes through: assigned -> resolved (its position is known) -> planned in batches -> being revoked -> gone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping

from kohort.client.types import TopicPartition
from kohort.spark.offsets import Ranges


class Holdings:
    """Every method is one step under one lock; `changed` is called after steps that may free or bring partitions."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._changed: Callable[[], None] = lambda: None
        self._owned: set[TopicPartition] = set()
        self._revoking: set[TopicPartition] = set()
        self._in_flight: set[TopicPartition] = set()
        self._positions: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}
        self.assignments = 0
        """How many assignments there have been; 0 while the first is awaited."""

    def on_change(self, changed: Callable[[], None]) -> None:
        self._changed = changed

    # -- the member's thread -------------------------------------------------------------------------------------------

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """The whole assignment. What is new in it has no position yet."""
        with self._lock:
            partitions = set(partitions)
            self._forget(self._owned - partitions)
            self._owned = partitions
            self.assignments += 1
        self._changed()

    def begin_revoke(self, partitions: Iterable[TopicPartition]) -> None:
        """No batch will be planned with these any more."""
        with self._lock:
            self._revoking |= set(partitions)

    def busy(self, partitions: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
        """Those that the batch in flight reads."""
        with self._lock:
            return frozenset(self._in_flight & set(partitions))

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Given up or lost."""
        with self._lock:
            self._forget(set(partitions))
            self._owned -= set(partitions)
        self._changed()

    def _forget(self, partitions: set[TopicPartition]) -> None:
        self._revoking -= partitions
        for tp in partitions:
            self._positions.pop(tp, None)
            self._committed.pop(tp, None)

    # -- Spark's thread ------------------------------------------------------------------------------------------------

    def finish(self, ranges: Ranges) -> None:
        """The batch that ends with `ranges` is durable: positions move to its end."""
        with self._lock:
            for tp, (_, stop) in ranges.items():
                if tp in self._positions and tp in self._in_flight:
                    self._positions[tp] = stop
            self._in_flight.clear()
        self._changed()

    def unresolved(self) -> frozenset[TopicPartition]:
        """Owned, but where to read is not known yet."""
        with self._lock:
            return frozenset(self._owned - self._revoking - self._positions.keys())

    def resolve(self, positions: Mapping[TopicPartition, int], committed: Mapping[TopicPartition, int | None]) -> None:
        with self._lock:
            for tp in self._owned & positions.keys():
                self._positions[tp] = positions[tp]
                offset = committed.get(tp)
                if offset is not None:
                    self._committed[tp] = offset

    def positions(self) -> dict[TopicPartition, int]:
        """Where to read on, for every partition that may be planned."""
        with self._lock:
            return {tp: at for tp, at in self._positions.items() if tp in self._owned and tp not in self._revoking}

    def known(self) -> frozenset[TopicPartition]:
        """Those with a position, also if they are being revoked."""
        with self._lock:
            return frozenset(self._owned & self._positions.keys())

    def move(self, partition: TopicPartition, position: int) -> None:
        """Records before `position` are gone, or the log was created anew; what the group has is no use any more."""
        with self._lock:
            if partition in self._positions:
                self._positions[partition] = position
                self._committed.pop(partition, None)

    def plan(self, ranges: Ranges) -> Ranges:
        """Start a batch with those that are still held; from here on a revocation waits for it."""
        with self._lock:
            kept = {
                tp: span
                for tp, span in ranges.items()
                if tp in self._owned and tp not in self._revoking and self._positions.get(tp) == span[0]
            }
            if any(stop > first for first, stop in kept.values()):
                self._in_flight = {tp for tp, (first, stop) in kept.items() if stop > first}
            return kept

    def replay(self, ranges: Ranges) -> None:
        """A batch planned by an earlier run is in flight again."""
        with self._lock:
            self._in_flight = {tp for tp, (first, stop) in ranges.items() if stop > first}

    # -- commits, by either thread -------------------------------------------------------------------------------------

    def uncommitted(self, among: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        """Positions the group does not have yet. What a batch in flight reads is not in them."""
        with self._lock:
            chosen = self._owned if among is None else self._owned & set(among)
            return {tp: self._positions[tp] for tp in chosen if self._moved(tp)}

    def _moved(self, partition: TopicPartition) -> bool:
        return partition in self._positions and self._positions[partition] != self._committed.get(partition)

    def commit_done(self, offsets: Mapping[TopicPartition, int]) -> None:
        with self._lock:
            for tp, offset in offsets.items():
                if tp in self._owned:
                    self._committed[tp] = offset

    def owned(self) -> frozenset[TopicPartition]:
        with self._lock:
            return frozenset(self._owned)
