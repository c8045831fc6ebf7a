"""The exactly-once sink on the driver: one commit, or abort, of a batch, step by step. Pure: effects out, answers in.

Each task has written its rows in a transaction of its own and left it open. Two things make all of them one:

- The decision: the list of a batch's transactions, written to a topic in a transaction of the driver's before the first
  of them is ended. What is decided is committed, by this driver or by the next; what is not is aborted.
- The driver's transactional id, the same for every run of a query: whoever takes it over has fenced every driver
  before. So nobody decides after another one has read what was decided.

BatchCommit:  TAKING_OVER -> READING -> SWEEPING -> WRITING -> LOOKING -> DECIDING -> ENDING -> DONE
              READING -> RESOLVING -> DROPPING -> DONE     it was decided before: what was written again is dropped
              RESOLVING -> SWEEPING ... ENDING -> DROPPING -> DONE     some of it had expired: only that is committed
BatchAbort:   TAKING_OVER -> READING -> DROPPING -> SWEEPING -> DONE
RollForward:  READING -> ENDING -> DONE     at a restart, and when partitions of another query are taken over

A crash leaves whatever was done: the next run commits the same batch again, and begins with what it finds
(docs/spark.md has the table). A refusal is an exception; Spark aborts the batch then, which drops what is not decided.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from kohort.client.types import OpenTransaction

SPARE_MS = 10_000
"""A batch is not decided where less than this, or a fifth of transaction.timeout.ms, is left for its ends."""


class Refusal(RuntimeError):
    """The batch cannot be committed; the text says why, and what to do."""


class Fate(Enum):
    """What a coordinator knows of one transaction."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class Share(NamedTuple):
    """What one task wrote, in the order of Spark's tasks. No transaction: no rows, or they were committed before."""

    rows: int
    digest: int
    transaction: OpenTransaction | None = None


class Decision(NamedTuple):
    """Of the last batch that was decided; an older one is of no use, for its transactions have ended."""

    batch_id: int
    shares: tuple[Share, ...]
    members: tuple[tuple[str, int], ...] = ()
    """Groups and generations of the sources whose offsets are committed with it."""

    @property
    def transactions(self) -> tuple[OpenTransaction, ...]:
        return _transactions(self.shares)


def _transactions(shares: tuple[Share, ...]) -> tuple[OpenTransaction, ...]:
    return tuple(share.transaction for share in shares if share.transaction is not None)


# -- effects, and what answers them ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TakeOver:
    """The driver's transactional id, and with it the right to decide: InitProducerId. Answer: None."""


@dataclass(frozen=True, slots=True)
class Read:
    """The last decision that was committed. Answer: Decision or None."""


@dataclass(frozen=True, slots=True)
class ReadAll:
    """The last decisions of the query and of those whose groups it shares, without a right to decide. Answer: a list of
    Decision."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """Abort every open transaction of this query's tasks but these: crashed runs and lost tasks. Answer: None."""

    keep: frozenset[str]


@dataclass(frozen=True, slots=True)
class Write:
    """Write a decision in the driver's transaction, which stays open. Answer: None."""

    decision: Decision


@dataclass(frozen=True, slots=True)
class Look:
    """How these are. Answer: Looked."""

    transactions: tuple[OpenTransaction, ...]


@dataclass(frozen=True, slots=True)
class Settle:
    """End the driver's transaction, with the decision in it. Answer: None."""

    commit: bool


@dataclass(frozen=True, slots=True)
class End:
    """Commit or abort these. Answer: the Fate of each, by transactional id."""

    transactions: tuple[OpenTransaction, ...]
    commit: bool


@dataclass(frozen=True, slots=True)
class Finish:
    """Nothing is left to do."""

    words: str


Effect = TakeOver | Read | ReadAll | Sweep | Write | Look | Settle | End | Finish


class Looked(NamedTuple):
    fates: Mapping[str, Fate]
    oldest_ms: int
    """How long the oldest has been open, by the brokers' clocks."""
    timeout_ms: int


class Step(Enum):
    NEW = "new"
    TAKING_OVER = "taking over"
    READING = "reading"
    RESOLVING = "resolving"
    SWEEPING = "sweeping"
    WRITING = "writing"
    LOOKING = "looking"
    DECIDING = "deciding"
    ENDING = "ending"
    DROPPING = "dropping"
    DONE = "done"


COMMIT_MOVES: dict[Step, frozenset[Step]] = {
    Step.NEW: frozenset({Step.TAKING_OVER}),
    Step.TAKING_OVER: frozenset({Step.READING}),
    Step.READING: frozenset({Step.RESOLVING, Step.SWEEPING, Step.DROPPING}),
    Step.RESOLVING: frozenset({Step.SWEEPING, Step.DROPPING}),
    Step.SWEEPING: frozenset({Step.WRITING}),
    Step.WRITING: frozenset({Step.LOOKING}),
    Step.LOOKING: frozenset({Step.DECIDING}),
    Step.DECIDING: frozenset({Step.ENDING}),
    Step.ENDING: frozenset({Step.DROPPING, Step.DONE}),
    Step.DROPPING: frozenset({Step.DONE}),
    Step.DONE: frozenset(),
}
ABORT_MOVES: dict[Step, frozenset[Step]] = {
    Step.NEW: frozenset({Step.TAKING_OVER}),
    Step.TAKING_OVER: frozenset({Step.READING}),
    Step.READING: frozenset({Step.DROPPING}),
    Step.DROPPING: frozenset({Step.SWEEPING}),
    Step.SWEEPING: frozenset({Step.DONE}),
    Step.DONE: frozenset(),
}
ROLL_FORWARD_MOVES: dict[Step, frozenset[Step]] = {
    Step.NEW: frozenset({Step.READING}),
    Step.READING: frozenset({Step.ENDING}),
    Step.ENDING: frozenset({Step.DONE}),
    Step.DONE: frozenset(),
}


class _Machine:
    """One effect is under way at a time; `answered` gives the next."""

    MOVES: Mapping[Step, frozenset[Step]]

    def __init__(self, batch_id: int, shares: tuple[Share, ...]) -> None:
        self.batch_id = batch_id
        self.shares = shares
        self.step = Step.NEW

    def become(self, step: Step, effect: Effect) -> Effect:
        """The only writer of `step`."""
        if step not in self.MOVES[self.step]:
            raise AssertionError(f"batch {self.batch_id}: {self.step.value} -> {step.value}")
        self.step = step
        return effect

    def begin(self) -> Effect:
        return self.become(Step.TAKING_OVER, TakeOver())

    def answered(self, answer: Any) -> Effect:
        handlers: dict[Step, Callable[[Any], Effect]] = self._handlers()
        return handlers[self.step](answer)

    def _handlers(self) -> dict[Step, Callable[[Any], Effect]]:
        raise NotImplementedError

    def _taken_over(self, _: None) -> Effect:
        return self.become(Step.READING, Read())


class BatchCommit(_Machine):
    """`commit(messages, batchId)`."""

    MOVES = COMMIT_MOVES

    def __init__(self, batch_id: int, shares: tuple[Share, ...]) -> None:
        super().__init__(batch_id, shares)
        self._before: Decision | None = None
        self._decision = Decision(batch_id, shares)

    def _handlers(self) -> dict[Step, Callable[[Any], Effect]]:
        return {
            Step.TAKING_OVER: self._taken_over,
            Step.READING: self._read,
            Step.RESOLVING: self._resolved,
            Step.SWEEPING: self._swept,
            Step.WRITING: self._written,
            Step.LOOKING: self._looked,
            Step.DECIDING: self._decided,
            Step.ENDING: self._ended,
            Step.DROPPING: self._dropped,
        }

    def _read(self, found: Decision | None) -> Effect:
        self._before = found
        last = -1 if found is None else found.batch_id
        if last < self.batch_id - 1:
            raise Refusal(other_delivery(last, self.batch_id))
        if last > self.batch_id:
            return self._drop()
        if found is not None and last == self.batch_id:
            return self.become(Step.RESOLVING, End(found.transactions, commit=True))
        return self._sweep()

    def _resolved(self, fates: Mapping[str, Fate]) -> Effect:
        """The batch was decided before: by a run that crashed, or that could not end everything."""
        assert self._before is not None
        found = [_fate(share, fates) for share in self._before.shares]
        unknown = [t for t in self._before.transactions if fates[t.transactional_id] in (Fate.UNKNOWN, Fate.OPEN)]
        if unknown:
            raise Refusal(not_known(self.batch_id, unknown))
        if Fate.ABORTED not in found:
            return self._drop()
        if Fate.COMMITTED in found:
            self._decision = Decision(self.batch_id, self._missing(self._before.shares, found))
        return self._sweep()

    def _missing(self, decided: tuple[Share, ...], fates: list[Fate | None]) -> tuple[Share, ...]:
        """What Spark has computed again, less what is published already: only where the two are the same."""
        same = [(share.rows, share.digest) for share in decided] == [(s.rows, s.digest) for s in self.shares]
        if not same:
            raise Refusal(half_published(self.batch_id, fates))
        return tuple(
            share._replace(transaction=None) if fate is Fate.COMMITTED else share
            for share, fate in zip(self.shares, fates, strict=True)
        )

    def _sweep(self) -> Effect:
        keep = frozenset(transaction.transactional_id for transaction in _transactions(self.shares))
        return self.become(Step.SWEEPING, Sweep(keep))

    def _swept(self, _: None) -> Effect:
        return self.become(Step.WRITING, Write(self._decision))

    def _written(self, _: None) -> Effect:
        return self.become(Step.LOOKING, Look(self._decision.transactions))

    def _looked(self, looked: Looked) -> Effect:
        lost = [t for t in self._decision.transactions if looked.fates[t.transactional_id] is not Fate.OPEN]
        if lost:
            raise Refusal(not_open(self.batch_id, lost, looked))
        if looked.timeout_ms - looked.oldest_ms < min(SPARE_MS, looked.timeout_ms // 5):
            raise Refusal(too_long(self.batch_id, looked))
        return self.become(Step.DECIDING, Settle(commit=True))

    def _decided(self, _: None) -> Effect:
        return self.become(Step.ENDING, End(self._decision.transactions, commit=True))

    def _ended(self, fates: Mapping[str, Fate]) -> Effect:
        lost = [t for t in self._decision.transactions if fates[t.transactional_id] is not Fate.COMMITTED]
        if lost:
            raise Refusal(ended_otherwise(self.batch_id, lost))
        again = frozenset(_transactions(self.shares)) - frozenset(self._decision.transactions)
        if again:
            return self.become(Step.DROPPING, End(tuple(sorted(again)), commit=False))
        return self.become(Step.DONE, self._finish())

    def _drop(self) -> Effect:
        return self.become(Step.DROPPING, End(_transactions(self.shares), commit=False))

    def _dropped(self, _: Mapping[str, Fate]) -> Effect:
        return self.become(Step.DONE, self._finish())

    def _finish(self) -> Finish:
        rows = sum(share.rows for share in self.shares)
        if self._before is not None and self._before.batch_id >= self.batch_id:
            return Finish(f"batch {self.batch_id} had been decided before a crash: its {rows} rows are there once")
        return Finish(f"batch {self.batch_id}: {rows} rows")


class BatchAbort(_Machine):
    """`abort(messages, batchId)`, which Spark calls when a task has failed, and when the commit has: maybe after the
    decision. What is decided stays, the next run commits it."""

    MOVES = ABORT_MOVES

    def __init__(self, batch_id: int, shares: tuple[Share, ...]) -> None:
        super().__init__(batch_id, shares)
        self._decided: tuple[OpenTransaction, ...] = ()

    def _handlers(self) -> dict[Step, Callable[[Any], Effect]]:
        return {
            Step.TAKING_OVER: self._taken_over,
            Step.READING: self._read,
            Step.DROPPING: self._dropped,
            Step.SWEEPING: self._swept,
        }

    def _read(self, found: Decision | None) -> Effect:
        if found is not None and found.batch_id == self.batch_id:
            self._decided = found.transactions
        undecided = tuple(t for t in _transactions(self.shares) if t not in self._decided)
        return self.become(Step.DROPPING, End(undecided, commit=False))

    def _dropped(self, _: Mapping[str, Fate]) -> Effect:
        return self.become(Step.SWEEPING, Sweep(frozenset(t.transactional_id for t in self._decided)))

    def _swept(self, _: None) -> Effect:
        if self._decided:
            return self.become(Step.DONE, Finish(f"batch {self.batch_id} is decided: the next run publishes it"))
        return self.become(Step.DONE, Finish(f"batch {self.batch_id} failed: nothing of it is published"))


class RollForward(_Machine):
    """What a run that died has decided is committed by whoever comes next, before Spark has run the batch again.

    Nobody is fenced for that: to commit what is decided is right at any time, and by anybody. What has expired is left
    to the next commit of its batch.
    """

    MOVES = ROLL_FORWARD_MOVES

    def __init__(self) -> None:
        super().__init__(-1, ())

    def begin(self) -> Effect:
        return self.become(Step.READING, ReadAll())

    def _handlers(self) -> dict[Step, Callable[[Any], Effect]]:
        return {Step.READING: self._read, Step.ENDING: self._ended}

    def _read(self, found: list[Decision]) -> Effect:
        decided = tuple(dict.fromkeys(t for decision in found for t in decision.transactions))
        return self.become(Step.ENDING, End(decided, commit=True))

    def _ended(self, fates: Mapping[str, Fate]) -> Effect:
        done = sum(fate is Fate.COMMITTED for fate in fates.values())
        words = f"{done} of {len(fates)} transactions that a run before this one has decided are committed"
        return self.become(Step.DONE, Finish(words))


def _fate(share: Share, fates: Mapping[str, Fate]) -> Fate | None:
    """None where the task had no rows."""
    if share.transaction is not None:
        return fates[share.transaction.transactional_id]
    return Fate.COMMITTED if share.rows else None


# -- what is said ----------------------------------------------------------------------------------------------------

OPTION = "kafka.transaction.timeout.ms"


def _names(transactions: list[OpenTransaction]) -> str:
    shown = ", ".join(transaction.transactional_id for transaction in transactions[:3])
    return shown + (f" and {len(transactions) - 3} more" if len(transactions) > 3 else "")


def other_delivery(last: int, batch_id: int) -> str:
    known = "no batch of it is known as decided" if last < 0 else f"the last batch that is known as decided is {last}"
    return (
        f"batch {batch_id} cannot be written exactly once: {known}, so the checkpoint is of a query that wrote with "
        "another delivery, or the decisions topic was deleted. Whether the batches before were written twice cannot be "
        "told: start with a new checkpoint, or leave out delivery=exactly-once"
    )


def not_open(batch_id: int, lost: list[OpenTransaction], looked: Looked) -> str:
    return (
        f"batch {batch_id} is not published, and nothing of it is lost: the brokers have aborted {_names(lost)}. The "
        f"batch was open for longer than {OPTION} ({looked.timeout_ms}), or somebody has taken the transactional id "
        f"over. Make batches smaller, or raise {OPTION} (at most transaction.max.timeout.ms of the brokers), and start "
        "the query again"
    )


def too_long(batch_id: int, looked: Looked) -> str:
    return (
        f"batch {batch_id} is not published, and nothing of it is lost: its first transaction has been open for "
        f"{looked.oldest_ms} ms, too near to {OPTION} ({looked.timeout_ms}) to end all of them in time. Make batches "
        f"smaller, or raise {OPTION} (at most transaction.max.timeout.ms of the brokers), and start the query again"
    )


def ended_otherwise(batch_id: int, lost: list[OpenTransaction]) -> str:
    return (
        f"batch {batch_id} is decided, but the brokers have aborted {_names(lost)} before they could be committed: "
        "start the query again, it writes what is missing"
    )


def not_known(batch_id: int, unknown: list[OpenTransaction]) -> str:
    return (
        f"batch {batch_id} was decided before the query stopped, and the brokers no longer know how {_names(unknown)} "
        "ended (transactional.id.expiration.ms has passed, or somebody has taken the id over): whether these rows are "
        "published cannot be told. Look into the topics, and start with a new checkpoint behind or before this batch"
    )


def half_published(batch_id: int, fates: list[Fate | None]) -> str:
    gone = [str(number) for number, fate in enumerate(fates) if fate is Fate.ABORTED]
    return (
        f"batch {batch_id} was decided, but the query was down for longer than {OPTION}, so that the brokers have "
        f"aborted the transactions of its tasks {', '.join(gone)} and committed the others; and now Spark computes "
        "other rows for this batch than then, so what is missing cannot be told. Nothing more is written. Compare the "
        "topics with the source, and start with a new checkpoint behind or before this batch"
    )
