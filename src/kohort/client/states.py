"""The states of a member, its legal moves, and what a rebalance is waiting for. Tables only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class MemberState(Enum):
    """Kafka's AbstractCoordinator.MemberState."""

    UNJOINED = "unjoined"
    """Not part of the group: never joined, left, or evicted."""
    PREPARING_REBALANCE = "preparing rebalance"
    """JoinGroup is on its way or parked at the coordinator."""
    COMPLETING_REBALANCE = "completing rebalance"
    """In the new generation, the assignment is not known yet."""
    STABLE = "stable"
    """Has an assignment and sends heartbeats; a rejoin is prepared (commits, revocation) in this state too."""


TRANSITIONS: dict[MemberState, frozenset[MemberState]] = {
    MemberState.UNJOINED: frozenset({MemberState.PREPARING_REBALANCE}),
    MemberState.PREPARING_REBALANCE: frozenset({MemberState.COMPLETING_REBALANCE, MemberState.UNJOINED}),
    MemberState.COMPLETING_REBALANCE: frozenset(
        {MemberState.STABLE, MemberState.PREPARING_REBALANCE, MemberState.UNJOINED}
    ),
    MemberState.STABLE: frozenset({MemberState.PREPARING_REBALANCE, MemberState.UNJOINED}),
}

HEARTBEATING = frozenset({MemberState.COMPLETING_REBALANCE, MemberState.STABLE})


class Step(Enum):
    """Where a member is on its way through a rebalance, or out of the group. The consumer protocol knows four."""

    IDLE = "nothing is under way"
    COMMITTING = "an automatic commit comes before partitions are given up"
    REVOKING = "the application finishes with partitions"
    WAITING = "a backoff, or the coordinator is not known"
    JOINING = "JoinGroup is in flight"
    ASSIGNING = "the leader waits for metadata"
    SYNCING = "SyncGroup is in flight"
    TAKING_OVER = "the application takes over its partitions"
    LEAVING = "LeaveGroup is in flight"


STEPS: dict[Step, frozenset[Step]] = {
    Step.IDLE: frozenset({Step.IDLE, Step.COMMITTING, Step.REVOKING}),
    Step.COMMITTING: frozenset({Step.REVOKING, Step.COMMITTING, Step.IDLE}),
    Step.REVOKING: frozenset({Step.WAITING, Step.TAKING_OVER, Step.LEAVING, Step.IDLE, Step.COMMITTING, Step.REVOKING}),
    Step.WAITING: frozenset({Step.JOINING, Step.IDLE, Step.COMMITTING, Step.REVOKING, Step.WAITING}),
    Step.JOINING: frozenset({Step.WAITING, Step.ASSIGNING, Step.SYNCING, Step.IDLE, Step.REVOKING}),
    Step.ASSIGNING: frozenset({Step.SYNCING, Step.WAITING, Step.IDLE, Step.REVOKING}),
    Step.SYNCING: frozenset({Step.WAITING, Step.COMMITTING, Step.REVOKING, Step.TAKING_OVER, Step.IDLE}),
    Step.TAKING_OVER: frozenset({Step.IDLE, Step.COMMITTING, Step.REVOKING}),
    Step.LEAVING: frozenset({Step.IDLE, Step.COMMITTING, Step.REVOKING}),
}
"""Forward along the rebalance; to IDLE where the member dropped out; to COMMITTING or REVOKING where it leaves."""


class Purpose(Enum):
    """Why partitions are given up: decides what follows COMMITTING and REVOKING."""

    REJOIN = "before joining again"
    HAND_OVER = "the new assignment gives them to others"
    RECONCILE = "the group gives them to others"
    """The consumer protocol's."""
    LOSE = "out of the group"
    """The consumer protocol's."""
    LEAVE = "leaving the group"


@dataclass(frozen=True, slots=True)
class MemberConfig:
    group_id: str
    group_instance_id: str | None = None
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    enable_auto_commit: bool = True
    auto_commit_interval_ms: int = 5_000
    request_timeout_ms: int = 30_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    client_rack: str = ""
    exclude_internal_topics: bool = True
    group_remote_assignor: str | None = None

    @property
    def rebalance_timeout_ms(self) -> int:
        """The time members have to rejoin: as long as the application may take between polls (KIP-62)."""
        return self.max_poll_interval_ms
