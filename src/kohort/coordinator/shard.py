"""A shard: one partition of a coordinator's topic, its life, its epoch and what of it is on the way to the log.

        LOADING -> ACTIVE -> CLOSED            what is read, served, given up
           ^  |       |
           |  v       |                        FAILED: the log cannot be read whole; nobody is served from half of it
           |  FAILED  |
           +----------+                        an append failed: what was decided is dropped and the log read again

Nothing here knows what the state is about; runtime.py moves shards through their lives.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar

from kohort.coordinator.effects import Answer, Decision
from kohort.coordinator.timers import Deadline, TimerQueue
from kohort.protocol.errors import ErrorCode


class Life(Enum):
    LOADING = "Loading"
    ACTIVE = "Active"
    FAILED = "Failed"
    CLOSED = "Closed"

    __hash__ = object.__hash__  # members are singletons; Enum's own hash runs in Python


LIVES: dict[Life, frozenset[Life]] = {
    Life.LOADING: frozenset({Life.ACTIVE, Life.FAILED, Life.CLOSED}),
    Life.ACTIVE: frozenset({Life.LOADING, Life.CLOSED}),
    Life.FAILED: frozenset({Life.CLOSED}),
    Life.CLOSED: frozenset(),
}

# What a request gets from a shard that is not active; Kafka 4.3 answers likewise where a load has failed.
UNAVAILABLE = {
    Life.LOADING: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    Life.ACTIVE: ErrorCode.NONE,
    Life.FAILED: ErrorCode.NOT_COORDINATOR,
    Life.CLOSED: ErrorCode.NOT_COORDINATOR,
}


class Damage(Exception):
    """A partition that cannot be read whole: from which offset on, and why."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(f"at offset {offset}: {reason}")
        self.offset = offset
        self.reason = reason


class State(Protocol):
    """What a shard is about. `apply` and `read` are the only writers of what the log holds."""

    now_ms: int
    answers: list[Answer]  # of the decision under way
    timers: TimerQueue

    def apply(self, changes: Any, offset: int) -> None:
        """A decision takes effect; `offset` is that of its first record."""

    def stored(self, then: Any, error: ErrorCode) -> Decision | None:
        """The records of a decision with a `then` are stored, or have failed."""

    def due(self, deadline: Deadline) -> Decision | None:
        """A deadline has passed."""

    def read(self, key: bytes, value: bytes | None, offset: int, producer_id: int) -> None:
        """A record of the log, while it loads; here and in `settle` Damage where one cannot be understood."""

    def read_all(self, offsets: list[int], keys: list[bytes], values: list[bytes | None]) -> None:
        """The same for many at once, of no transaction."""

    def read_marker(self, producer_id: int, committed: bool) -> None:
        """The end of a transaction in the log, while it loads."""

    def settle(self, limit: int) -> bool:
        """Another slice of the work between the last record and `loaded`; True when nothing is left."""

    def loaded(self, max_append_bytes: int) -> list[Decision]:
        """Requests are served from here on; no decision that cannot be divided may be larger than that."""

    def close(self, error: ErrorCode, *, moved: bool) -> None:
        """It is over, the partition has moved or could not be written: whoever waits gets the error."""


S = TypeVar("S", bound=State)


class Write(Generic[S]):
    """What the decisions of one turn want stored in one shard, and who waits for it."""

    __slots__ = ("answers", "applied", "decisions", "error", "incarnation", "parts", "sent_ms", "shard", "thens")

    def __init__(self, shard: Shard[S]) -> None:
        self.shard = shard
        self.incarnation = shard.incarnation
        self.decisions: list[Decision] = []
        self.answers: list[Answer] = []
        self.thens: list[Any] = []
        self.applied = False  # whether others may have seen changes of it
        self.sent_ms = 0
        self.parts = 1  # appends that it was divided into and that are not done
        self.error = 0


class Shard(Generic[S]):
    __slots__ = (
        "epoch",
        "failure",
        "in_flight",
        "incarnation",
        "life",
        "next_offset",
        "open",
        "partition",
        "records_read",
        "resting",
        "state",
    )

    def __init__(self, partition: int, epoch: int, incarnation: int, life: Life, state: S) -> None:
        self.partition = partition
        self.epoch = epoch  # of the leader; a load or a resignation of another one does nothing
        self.incarnation = incarnation  # of the state: what the log says about an earlier one does nothing
        self.life = life
        self.state = state
        self.failure = ""
        self.open: Write[S] | None = None  # of this turn
        self.in_flight: deque[Write[S]] = deque()
        self.resting: Write[S] | None = None  # the last that changed the state: what an answer of now rests on
        self.next_offset = 0
        self.records_read = 0

    def become(self, life: Life) -> None:
        """The only writer of `life`."""
        if life not in LIVES[self.life]:
            raise AssertionError(f"shard {self.partition}: {self.life.value} -> {life.value}")
        self.life = life

    def __repr__(self) -> str:
        return f"Shard({self.partition}, {self.life.value}, epoch={self.epoch}, incarnation={self.incarnation})"
