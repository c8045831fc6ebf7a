"""Keyed deadlines in one queue: set, cancel, due, next. No clock of its own and nothing about groups.

A deadline owns at most one live heap entry. Moving it later only writes a field; the entry finds out when it surfaces
and goes back to where it now belongs. So a heartbeat costs one store, and only a move to earlier leaves a stale entry.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from heapq import heappop, heappush
from typing import Any


class TimerKind(Enum):
    """Kafka's delayed operations, by the names its readers know."""

    DELAYED_HEARTBEAT = "DelayedHeartbeat"  # a member's session, or the time a new member may wait in its join
    INITIAL_DELAYED_JOIN = "InitialDelayedJoin"  # the first rebalance of an empty group
    DELAYED_JOIN = "DelayedJoin"  # a rebalance waiting for its members
    DELAYED_SYNC = "DelayedSync"  # members that joined but have not synced
    MEMBER_SESSION = "MemberSession"  # KIP-848: no heartbeat for consumer.session.timeout.ms
    MEMBER_REBALANCE = "MemberRebalance"  # KIP-848: partitions that a member does not give up
    MEMBER_JOIN = "MemberJoin"  # a classic member of a KIP-848 group, told to join again
    MEMBER_SYNC = "MemberSync"  # the same, which has joined and not synced
    ASSIGNOR = "Assignor"  # KIP-848: the time that an assignor of one's own has for a target
    RESOLVE_REGEX = "ResolveRegex"  # KIP-848: which topics the expressions of a group stand for
    EXPIRE_OFFSETS = "ExpireOffsets"  # the periodic look for expired offsets
    ABORT_TIMED_OUT_TRANSACTIONS = "AbortTimedOutTransactions"  # the periodic look, while one is open
    EXPIRE_TRANSACTIONAL_IDS = "ExpireTransactionalIds"  # the periodic look for ids that nobody uses any more
    RETRY_MARKERS = "RetryMarkers"  # ends of transactions that a partition could not take


class Deadline:
    """What happens to whom, and when. `at_ms` is None while it is not set."""

    __slots__ = ("at_ms", "entry_ms", "group_id", "kind", "member_id")

    def __init__(self, kind: TimerKind, group_id: str, member_id: str = "") -> None:
        self.kind = kind
        self.group_id = group_id
        self.member_id = member_id
        self.at_ms: int | None = None
        self.entry_ms: int | None = None  # the time of the heap entry that counts; any other entry is stale

    def cancel(self) -> None:
        self.at_ms = None

    def __repr__(self) -> str:
        who = f"{self.group_id}/{self.member_id}" if self.member_id else self.group_id
        return f"{self.kind.value}({who} at {self.at_ms})"


class TimerQueue:
    """The deadlines of one owner; `wakes` is told when the first of them becomes earlier."""

    __slots__ = ("_heap", "_sequence", "_wakes", "owner", "wake_ms")

    def __init__(self, owner: Any = None, wakes: Wakes | None = None) -> None:
        self._heap: list[tuple[int, int, Deadline]] = []
        self._sequence = 0
        self.owner = owner
        self._wakes = wakes
        self.wake_ms: int | None = None  # the entry among the wakes that counts

    def close(self) -> None:
        """Nothing of it will ever be due."""
        self._heap.clear()
        self._wakes = self.wake_ms = None

    def __len__(self) -> int:
        return len(self._heap)

    def set(self, deadline: Deadline, at_ms: int) -> None:
        deadline.at_ms = at_ms
        entry_ms = deadline.entry_ms
        if entry_ms is None or at_ms < entry_ms:
            self._push(deadline, at_ms)

    def _push(self, deadline: Deadline, at_ms: int) -> None:
        deadline.entry_ms = at_ms
        self._sequence += 1
        heappush(self._heap, (at_ms, self._sequence, deadline))
        if self._wakes is not None and (self.wake_ms is None or at_ms < self.wake_ms):
            self._wakes.set(self, at_ms)

    def due(self, now_ms: int) -> Iterator[Deadline]:
        """Each deadline that has passed, once, in the order of time, also those set meanwhile."""
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            entry_ms, _, deadline = heappop(heap)
            if deadline.entry_ms != entry_ms:
                continue
            deadline.entry_ms = None
            at_ms = deadline.at_ms
            if at_ms is None:
                continue
            if at_ms > entry_ms:
                self._push(deadline, at_ms)
                continue
            deadline.at_ms = None
            yield deadline

    def next(self) -> int | None:
        """Not later than the next deadline; may be earlier, when that deadline has been moved since."""
        heap = self._heap
        while heap:
            entry_ms, _, deadline = heap[0]
            if deadline.entry_ms == entry_ms and deadline.at_ms is not None:
                return entry_ms
            heappop(heap)
            if deadline.entry_ms == entry_ms:
                deadline.entry_ms = None
        return None


class Wakes:
    """Many queues, each with owner and life of its own: when the first of them has something due."""

    __slots__ = ("_heap", "_sequence")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, TimerQueue]] = []
        self._sequence = 0

    def set(self, queue: TimerQueue, at_ms: int) -> None:
        queue.wake_ms = at_ms
        self._sequence += 1
        heappush(self._heap, (at_ms, self._sequence, queue))

    def due(self, now_ms: int) -> Iterator[TimerQueue]:
        """Each queue with an entry that has passed, once; whoever takes one goes on until nothing in it is due."""
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            wake_ms, _, queue = heappop(heap)
            if queue.wake_ms != wake_ms:
                continue
            queue.wake_ms = None
            yield queue
            at_ms = queue.next()
            if at_ms is not None and (queue.wake_ms is None or at_ms < queue.wake_ms):
                self.set(queue, at_ms)

    def next(self) -> int | None:
        """Not later than the next deadline of any queue."""
        heap = self._heap
        while heap:
            wake_ms, _, queue = heap[0]
            if queue.wake_ms == wake_ms:
                return wake_ms
            heappop(heap)
        return None
