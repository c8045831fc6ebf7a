"""Requests that wait for data or for time: each is kept with a deadline, and found again by what it waits for.

Kafka's DelayedFetch purgatory. A waiter is completed once, by data or by its deadline, whichever is first.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Protocol

from kohort.broker.connection import Connection
from kohort.broker.topics import Partition


class Waiter(Protocol):
    """A parked request."""

    done: bool
    connection: Connection

    def partitions(self) -> Iterable[Partition]: ...

    def try_complete(self, now_ms: int, expired: bool) -> bool: ...


class Purgatory:
    def __init__(self) -> None:
        self._deadlines: list[tuple[int, int, Waiter]] = []
        self._sequence = 0
        self._alive = 0

    def __len__(self) -> int:
        return self._alive

    def park(self, waiter: Waiter, deadline_ms: int) -> None:
        self._sequence += 1
        self._alive += 1
        heapq.heappush(self._deadlines, (deadline_ms, self._sequence, waiter))
        waiter.connection.waiters[waiter] = None
        for partition in waiter.partitions():
            partition.waiters[waiter] = None

    def check(self, partitions: Iterable[Partition], now_ms: int) -> None:
        """Something changed on these partitions: complete whoever has waited for that."""
        waiting: dict[Waiter, None] = {}
        for partition in partitions:
            waiting |= partition.waiters
        for waiter in waiting:
            if not waiter.done and waiter.try_complete(now_ms, expired=False):
                self._remove(waiter)

    def expire(self, now_ms: int) -> None:
        while self._deadlines and (self._deadlines[0][0] <= now_ms or self._deadlines[0][2].done):
            _, _, waiter = heapq.heappop(self._deadlines)
            if not waiter.done:
                waiter.try_complete(now_ms, expired=True)
                self._remove(waiter)

    def take_out(self, waiter: Waiter) -> None:
        """It may be parked again."""
        self._remove(waiter)
        waiter.done = False

    def forget(self, connection: Connection) -> None:
        """The client is gone."""
        for waiter in list(connection.waiters):
            self._remove(waiter)

    def next_deadline(self) -> int | None:
        while self._deadlines and self._deadlines[0][2].done:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def _remove(self, waiter: Waiter) -> None:
        waiter.done = True
        self._alive -= 1
        waiter.connection.waiters.pop(waiter, None)
        for partition in waiter.partitions():
            partition.waiters.pop(waiter, None)
        # Most waiters are completed by data long before their deadline: keep the heap in proportion to the living.
        if len(self._deadlines) > 64 and len(self._deadlines) > 4 * self._alive:
            self._deadlines = [item for item in self._deadlines if not item[2].done]
            heapq.heapify(self._deadlines)
