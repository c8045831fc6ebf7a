"""What a broker writes to its journal: gathered over all partitions, a few objects in flight, acknowledged in order.

    writer.add(log)                             a log has something to store
    if writer.may_begin(now_ms): writer.next()  create the object, on any thread; then writer.stored(write, now_ms)
    writer.close(error)                         sealed by another, or given up: nothing of what waits was acknowledged

An idle journal is written to at once. While an object is under way others gather for the next; where a store takes its
time they do not wait for all of it, but for SPACING_MS. Whoever was answered comes again: half as many records as the
last object had are waited for, but not for longer than GATHER_MS. So a fast store gets few and full objects, a slow one
several side by side. No input or output here. An object whose fate is not known is written again, the same bytes to the
same slot.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol

from kohort.cluster import names
from kohort.cluster.journal import Start, encode

MAX_IN_FLIGHT = 3
SPACING_MS = 5
GATHER_MS = 3
MAX_BYTES = 8 * 1024 * 1024


class JournaledLog(Protocol):
    topic_id: str
    partition: int
    epoch: int

    def take_unjournaled(self, max_bytes: int) -> tuple[int, int, list[Any]]:
        """Base offset, next offset and the bytes of what no object has yet; it counts as taken."""

    def take_start(self) -> int | None:
        """The start offset, where no object has it yet."""

    def stored_to(self, offset: int, seq: int) -> None: ...

    def give_up(self, error: Any) -> None: ...


class JournalWrite:
    """One object on its way."""

    __slots__ = (
        "_encoded", "_entries", "_nonce", "_starts", "_stored",
        "done", "logs", "name", "seq", "size", "tries", "trimmed",
    )  # fmt: skip

    def __init__(self, journal: str, seq: int, nonce: str, trimmed: int, stored: int) -> None:
        self.name = names.slot(journal, seq)
        self.seq = seq
        self.trimmed = trimmed
        self.logs: list[tuple[JournaledLog, int]] = []
        self.size = 0
        self.done = False
        self.tries = 0
        self._nonce = nonce
        self._stored = stored
        self._entries: list[tuple[str, int, int, int, int, list[Any]]] = []
        self._starts: list[Start] = []
        self._encoded: bytes | None = None

    def take(self, log: JournaledLog) -> None:
        base_offset, next_offset, parts = log.take_unjournaled(max(MAX_BYTES - self.size, 1))
        if parts:
            self._entries.append((log.topic_id, log.partition, log.epoch, base_offset, next_offset, parts))
            self.size += sum(map(len, parts))
        start = log.take_start()
        if start is not None:
            self._starts.append(Start(log.topic_id, log.partition, log.epoch, start))
        self.logs.append((log, next_offset))

    def encoded(self) -> bytes:
        """On whichever thread writes it."""
        if self._encoded is None:
            self._encoded = encode(
                self.seq,
                self._nonce,
                entries=self._entries,
                starts=self._starts,
                trimmed=self.trimmed,
                stored=self._stored,
            )
        return self._encoded


class JournalWriter:
    def __init__(self, journal: str, max_in_flight: int = MAX_IN_FLIGHT) -> None:
        self.journal = journal
        self.next_seq = 0
        self.trimmed = 0  # what is below may be deleted once an object says so
        self.said_trimmed = 0  # an object that is stored says so
        self.is_open = True
        self.in_flight: deque[JournalWrite] = deque()
        self._max_in_flight = max_in_flight
        self._dirty: dict[JournaledLog, None] = {}
        self._gathered = self._expected = 0  # records that wait, and that are worth an object
        self._spaced_ms = 0
        self._patience_ms = 0

    @property
    def stored_seq(self) -> int:
        """The last slot up to which everything is stored; -1 before the first."""
        return self.in_flight[0].seq - 1 if self.in_flight else self.next_seq - 1

    @property
    def is_idle(self) -> bool:
        return not self.in_flight and not self._dirty

    def add(self, log: JournaledLog, records: int = 0) -> None:
        self._dirty[log] = None
        self._gathered += records

    def may_begin(self, now_ms: int, *, even_empty: bool = False) -> bool:
        """Whether there is something to write, and room in flight."""
        if not self.is_open or not (self._dirty or even_empty):
            return False
        if self.in_flight:
            return len(self.in_flight) < self._max_in_flight and now_ms >= self._spaced_ms
        return even_empty or self._gathered >= self._expected or now_ms >= self._patience_ms

    def next_deadline(self) -> int | None:
        """When what waits may be begun at the latest, where that is a matter of time."""
        if not self.is_open or not self._dirty or len(self.in_flight) >= self._max_in_flight:
            return None
        if self.in_flight:
            return self._spaced_ms
        return None if self._gathered >= self._expected else self._patience_ms

    def next(self, nonce: str, now_ms: int) -> JournalWrite:
        """The next object, of all that waits; where it `may_begin`."""
        self._spaced_ms = now_ms + SPACING_MS
        self._expected, self._gathered = self._gathered // 2, 0
        write = JournalWrite(self.journal, self.next_seq, nonce, self.trimmed, self.stored_seq)
        while self._dirty and write.size < MAX_BYTES:
            log = next(iter(self._dirty))
            del self._dirty[log]
            write.take(log)
        self.next_seq += 1
        self.in_flight.append(write)
        return write

    def stored(self, write: JournalWrite, now_ms: int) -> None:
        """The object is in the store; logs are told in the order of the slots."""
        if not self.is_open:
            return
        write.done = True
        self._patience_ms = now_ms + GATHER_MS
        while self.in_flight and self.in_flight[0].done:
            first = self.in_flight.popleft()
            self.said_trimmed = max(self.said_trimmed, first.trimmed)
            for log, offset in first.logs:
                log.stored_to(offset, first.seq)

    def close(self, error: Any) -> None:
        """Whoever waits for something that is not known to be stored is told."""
        self.is_open = False
        waiting = [log for write in self.in_flight for log, _ in write.logs] + list(self._dirty)
        self.in_flight.clear()
        self._dirty.clear()
        for log in dict.fromkeys(waiting):
            log.give_up(error)
