"""The states of a member of the consumer protocol, its legal moves, and what a hand-over waits for. Tables only."""

from __future__ import annotations

from enum import Enum

from kohort.client.states import Step


class MemberState(Enum):
    """Kafka's MemberState of the consumer protocol; a refusal leaves a member where it is, until it polls again."""

    UNSUBSCRIBED = "not subscribed"
    """Not part of the group: never joined, or left."""
    JOINING = "joining"
    """A heartbeat with epoch 0 is on its way or due."""
    RECONCILING = "reconciling"
    """What is owned becomes what the coordinator assigned: revoke, then take over."""
    ACKNOWLEDGING = "acknowledging"
    """Done: the next heartbeat, which is due at once, says so."""
    STABLE = "stable"
    """Owns what it was assigned."""
    FENCED = "fenced"
    """Put out of the group: what was owned is lost, then it joins anew."""
    STALE = "stale"
    """Left by itself because the application polled too late; joins anew when it polls."""
    PREPARE_LEAVING = "preparing to leave"
    """Gives up what it owns; heartbeats go on."""
    LEAVING = "leaving"
    """The heartbeat that leaves is on its way."""


_OUT = {MemberState.FENCED, MemberState.STALE, MemberState.PREPARE_LEAVING}

TRANSITIONS: dict[MemberState, frozenset[MemberState]] = {
    MemberState.UNSUBSCRIBED: frozenset({MemberState.JOINING, MemberState.PREPARE_LEAVING}),
    MemberState.JOINING: frozenset({MemberState.RECONCILING, *_OUT}),
    MemberState.RECONCILING: frozenset({MemberState.ACKNOWLEDGING, MemberState.STABLE, *_OUT}),
    MemberState.ACKNOWLEDGING: frozenset({MemberState.RECONCILING, MemberState.STABLE, *_OUT}),
    MemberState.STABLE: frozenset({MemberState.RECONCILING, *_OUT}),
    MemberState.FENCED: frozenset({MemberState.JOINING, MemberState.PREPARE_LEAVING}),
    MemberState.STALE: frozenset({MemberState.JOINING, MemberState.PREPARE_LEAVING}),
    MemberState.PREPARE_LEAVING: frozenset({MemberState.LEAVING, MemberState.UNSUBSCRIBED}),
    MemberState.LEAVING: frozenset({MemberState.UNSUBSCRIBED}),
}

IN_GROUP = frozenset({MemberState.RECONCILING, MemberState.ACKNOWLEDGING, MemberState.STABLE})
MAY_JOIN = frozenset({MemberState.UNSUBSCRIBED, MemberState.FENCED, MemberState.STALE})


STEPS: dict[Step, frozenset[Step]] = {
    Step.IDLE: frozenset({Step.COMMITTING, Step.REVOKING, Step.TAKING_OVER}),
    Step.COMMITTING: frozenset({Step.COMMITTING, Step.REVOKING}),
    Step.REVOKING: frozenset({Step.IDLE, Step.COMMITTING, Step.REVOKING}),
    Step.TAKING_OVER: frozenset({Step.IDLE, Step.COMMITTING, Step.REVOKING}),
}
"""Forward along the hand-over; to COMMITTING or REVOKING also where the member leaves or drops out meanwhile."""
