"""Where a consumer is in one partition: its fetch state, position, buffered data. No requests here.

States are Kafka's: a position is looked up (INITIALIZING), reset (AWAIT_RESET), checked against the leader's epochs
after a leader change (AWAIT_VALIDATION), and read from (FETCHING).
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from kohort.client.types import NO_LEADER_EPOCH, TopicPartition

if TYPE_CHECKING:
    from kohort.client.chunks import Chunk

NO_NODE = -1


class FetchState(Enum):
    INITIALIZING = "the committed offset is looked up"
    FETCHING = "has a valid position"
    AWAIT_RESET = "the position is looked up by auto.offset.reset"
    AWAIT_VALIDATION = "the leader changed; is the position still in its log?"


FETCH_TRANSITIONS: dict[FetchState, frozenset[FetchState]] = {
    FetchState.INITIALIZING: frozenset({FetchState.FETCHING, FetchState.AWAIT_RESET, FetchState.AWAIT_VALIDATION}),
    FetchState.FETCHING: frozenset({FetchState.FETCHING, FetchState.AWAIT_RESET, FetchState.AWAIT_VALIDATION}),
    FetchState.AWAIT_RESET: frozenset({FetchState.FETCHING, FetchState.AWAIT_RESET, FetchState.AWAIT_VALIDATION}),
    FetchState.AWAIT_VALIDATION: frozenset(FetchState) - {FetchState.INITIALIZING},
}


class Leader(NamedTuple):
    node_id: int = NO_NODE
    epoch: int = NO_LEADER_EPOCH


class Position(NamedTuple):
    """The next offset to hand out and the leader epoch of the record before it, -1 where not known."""

    offset: int
    epoch: int = NO_LEADER_EPOCH


class PartitionState:
    """One assigned partition."""

    __slots__ = (
        "buffered_bytes",
        "chunks",
        "fetch_ahead",
        "held",
        "high_watermark",
        "last_stable_offset",
        "leader",
        "log_start_offset",
        "paused",
        "position",
        "preferred_replica",
        "preferred_until_ms",
        "reset_to",
        "retry_at_ms",
        "state",
        "tp",
    )

    def __init__(self, tp: TopicPartition, leader: Leader) -> None:
        self.tp = tp
        self.state = FetchState.INITIALIZING
        self.leader = leader
        self.position: Position | None = None
        self.fetch_ahead: int | None = None
        """The offset to fetch next: after everything that is buffered."""
        self.chunks: deque[Chunk] = deque()
        self.buffered_bytes = 0
        self.paused = False
        self.held = False
        self.reset_to: str | None = None
        self.retry_at_ms = 0
        self.high_watermark: int | None = None
        self.last_stable_offset: int | None = None
        self.log_start_offset: int | None = None
        self.preferred_replica: int | None = None
        self.preferred_until_ms = 0

    def transition_to(self, state: FetchState) -> None:
        if state not in FETCH_TRANSITIONS[self.state]:
            raise RuntimeError(f"{self.tp}: {self.state.name} -> {state.name}")
        self.state = state

    def drop_buffered(self) -> None:
        self.chunks.clear()
        self.buffered_bytes = 0
        self.fetch_ahead = self.position.offset if self.position is not None else None

    def seek(self, position: Position) -> None:
        """Read on from here; checked first where the epoch is known and so is the leader's."""
        self.position = position
        self.reset_to = None
        self.retry_at_ms = 0
        self.drop_buffered()
        check = position.epoch >= 0 and self.leader.epoch >= 0
        self.transition_to(FetchState.AWAIT_VALIDATION if check else FetchState.FETCHING)

    def seek_valid(self, position: Position) -> None:
        self.position = position
        self.retry_at_ms = 0
        self.drop_buffered()
        self.transition_to(FetchState.FETCHING)

    def reset(self, strategy: str) -> None:
        self.transition_to(FetchState.AWAIT_RESET)
        self.reset_to = strategy
        self.position = None
        self.retry_at_ms = 0
        self.drop_buffered()

    def leader_changed(self, leader: Leader) -> None:
        """A new leader may have lost records that were read from the old one: have the position checked (KIP-320)."""
        if leader == self.leader or leader.node_id == NO_NODE:
            return
        self.leader = leader
        self.preferred_replica = None
        self.retry_at_ms = 0
        if self.position is None or self.state not in (FetchState.FETCHING, FetchState.AWAIT_VALIDATION):
            return
        if self.position.epoch >= 0 and leader.epoch >= 0:
            self.drop_buffered()
            self.transition_to(FetchState.AWAIT_VALIDATION)

    def node_to_read_from(self, now_ms: int) -> int:
        if self.preferred_replica is not None and now_ms < self.preferred_until_ms:
            return self.preferred_replica
        self.preferred_replica = None
        return self.leader.node_id

    @property
    def readable(self) -> bool:
        return self.state is FetchState.FETCHING and not self.paused and not self.held

    @property
    def lead(self) -> int | None:
        """Records between the beginning of the log and the position; None until the beginning is known."""
        if self.log_start_offset is None or self.position is None:
            return None
        return max(0, self.position.offset - self.log_start_offset)

    def lag(self, read_committed: bool) -> int | None:
        """Records between the position and the end, never negative; None until the end is known."""
        end = self.last_stable_offset if read_committed else self.high_watermark
        if end is None or self.position is None:
            return None
        return max(0, end - self.position.offset)
