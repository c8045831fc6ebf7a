"""The states of a transaction, by Kafka's names and numbers, and the moves between them. Nothing else may know these.

    Empty -> Ongoing -> PrepareCommit -> CompleteCommit -> Ongoing, Empty
                     -> PrepareAbort  -> CompleteAbort

Prepare is the point of no return: from there on only markers are missing. With TV2 (KIP-890) an abort of nothing passes
through PrepareAbort too, for the sake of the epoch that it raises. PrepareEpochFence and Dead are never stored.
"""

from __future__ import annotations

from enum import Enum


class TransactionState(Enum):
    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"

    __hash__ = object.__hash__  # members are singletons; Enum's own hash runs in Python


EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
PREPARE_COMMIT, PREPARE_ABORT = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
COMPLETE_COMMIT, COMPLETE_ABORT = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT

AT_REST = frozenset({EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT})
PREPARED = frozenset({PREPARE_COMMIT, PREPARE_ABORT})

MOVES: dict[TransactionState, frozenset[TransactionState]] = {
    EMPTY: frozenset({EMPTY, ONGOING, PREPARE_ABORT}),
    ONGOING: frozenset({ONGOING, PREPARE_COMMIT, PREPARE_ABORT}),
    PREPARE_COMMIT: frozenset({COMPLETE_COMMIT}),
    PREPARE_ABORT: frozenset({COMPLETE_ABORT}),
    COMPLETE_COMMIT: frozenset({EMPTY, ONGOING, PREPARE_ABORT}),
    COMPLETE_ABORT: frozenset({EMPTY, ONGOING, PREPARE_ABORT}),
}

STORED_AS = dict(enumerate(TransactionState))
"""The number in the log -> the state."""
NUMBERS = {state: number for number, state in STORED_AS.items()}
