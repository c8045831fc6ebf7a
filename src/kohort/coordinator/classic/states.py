"""The five states of a classic group, the legal moves between them, and the answer per state and request.

            +------------------------------------------------------+
            v                                                      |
        EMPTY -> PREPARING_REBALANCE <-> COMPLETING_REBALANCE -> STABLE
                   ^  |  ^___________________________________________|
                   |__| (all members left: back to EMPTY)              any state -> DEAD

The tables say what a request gets once it has named a group, a member and a generation that fit. NONE means that the
handler goes on; anything else is the refusal. A dead group is gone before a request can meet it, so its row is what a
request gets that finds no group of that name.
"""

from enum import Enum

from kohort.protocol.errors import ErrorCode

NONE = ErrorCode.NONE


class GroupState(Enum):
    EMPTY = "Empty"  # no members; lingers while it has offsets, or is about to be expired
    PREPARING_REBALANCE = "PreparingRebalance"  # joins are parked until everybody is in or time is up
    COMPLETING_REBALANCE = (
        "CompletingRebalance"  # syncs are parked until the leader's assignment is stored; once AwaitingSync
    )
    STABLE = "Stable"
    DEAD = "Dead"  # removed or moved away; final

    __hash__ = (
        object.__hash__
    )  # members are singletons; Enum's own hash runs in Python and would show in every heartbeat


EMPTY = GroupState.EMPTY
PREPARING_REBALANCE = GroupState.PREPARING_REBALANCE
COMPLETING_REBALANCE = GroupState.COMPLETING_REBALANCE
STABLE = GroupState.STABLE
DEAD = GroupState.DEAD

TRANSITIONS: dict[GroupState, frozenset[GroupState]] = {
    EMPTY: frozenset({PREPARING_REBALANCE, DEAD}),
    PREPARING_REBALANCE: frozenset({COMPLETING_REBALANCE, EMPTY, DEAD}),
    COMPLETING_REBALANCE: frozenset({STABLE, PREPARING_REBALANCE, DEAD}),
    STABLE: frozenset({PREPARING_REBALANCE, DEAD}),
    DEAD: frozenset({DEAD}),
}

# An existing member's join. In COMPLETING_REBALANCE and STABLE the handler may answer at once, see join.py.
JOIN = {
    EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
    PREPARING_REBALANCE: NONE,
    COMPLETING_REBALANCE: NONE,
    STABLE: NONE,
    DEAD: ErrorCode.UNKNOWN_MEMBER_ID,
}

# A join without a member id.
JOIN_NEW = {
    EMPTY: NONE,
    PREPARING_REBALANCE: NONE,
    COMPLETING_REBALANCE: NONE,
    STABLE: NONE,
    DEAD: NONE,
}

SYNC = {
    EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
    PREPARING_REBALANCE: ErrorCode.REBALANCE_IN_PROGRESS,
    COMPLETING_REBALANCE: NONE,
    STABLE: NONE,
    DEAD: ErrorCode.UNKNOWN_MEMBER_ID,
}

# A heartbeat counts for the session even where the answer is to rejoin.
HEARTBEAT = {
    EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
    PREPARING_REBALANCE: ErrorCode.REBALANCE_IN_PROGRESS,
    COMPLETING_REBALANCE: NONE,
    STABLE: NONE,
    DEAD: ErrorCode.UNKNOWN_MEMBER_ID,
}

LEAVE = {
    EMPTY: NONE,
    PREPARING_REBALANCE: NONE,
    COMPLETING_REBALANCE: NONE,
    STABLE: NONE,
    DEAD: ErrorCode.UNKNOWN_MEMBER_ID,
}

# A commit by a member of the current generation. Before v9 clients do not know GROUP_ID_NOT_FOUND: ILLEGAL_GENERATION.
COMMIT = {
    EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
    PREPARING_REBALANCE: NONE,
    COMPLETING_REBALANCE: ErrorCode.REBALANCE_IN_PROGRESS,
    STABLE: NONE,
    DEAD: ErrorCode.GROUP_ID_NOT_FOUND,
}

# A commit without member and generation: an admin, or a consumer that assigns its partitions itself.
COMMIT_SIMPLE = {
    EMPTY: NONE,
    PREPARING_REBALANCE: ErrorCode.UNKNOWN_MEMBER_ID,
    COMPLETING_REBALANCE: ErrorCode.UNKNOWN_MEMBER_ID,
    STABLE: ErrorCode.UNKNOWN_MEMBER_ID,
    DEAD: NONE,
}

# Where this refuses, a group of consumers is still allowed to lose the offsets of topics it does not subscribe to.
OFFSET_DELETE = {
    EMPTY: NONE,
    PREPARING_REBALANCE: ErrorCode.NON_EMPTY_GROUP,
    COMPLETING_REBALANCE: ErrorCode.NON_EMPTY_GROUP,
    STABLE: ErrorCode.NON_EMPTY_GROUP,
    DEAD: ErrorCode.GROUP_ID_NOT_FOUND,
}

DELETE_GROUP = {
    EMPTY: NONE,
    PREPARING_REBALANCE: ErrorCode.NON_EMPTY_GROUP,
    COMPLETING_REBALANCE: ErrorCode.NON_EMPTY_GROUP,
    STABLE: ErrorCode.NON_EMPTY_GROUP,
    DEAD: ErrorCode.GROUP_ID_NOT_FOUND,
}


class IllegalTransition(AssertionError):
    """A move that the table does not know: a bug in the coordinator, never the fault of a client."""
