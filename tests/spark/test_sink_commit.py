"""The exactly-once sink's protocol, without brokers: what each crash leaves, refusals, and bugs put in by hand."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from kohort.client.types import OpenTransaction
from kohort.spark import sink_commit as sc
from kohort.spark.sink_commit import BatchAbort, BatchCommit, Decision, Fate, Refusal, RollForward, Share, Step
from spark.sink_world import World

SEEDS = 600


def share(name: str, rows: int = 2, digest: int = 7) -> Share:
    return Share(rows, digest, OpenTransaction(name, 1, 0, True))


def walked(machine: Any, *answers: Any) -> Any:
    """The effect after these answers."""
    effect = machine.begin()
    for answer in answers:
        effect = machine.answered(answer)
    return effect


def open_(*shares: Share, oldest_ms: int = 0, timeout_ms: int = 60_000, **fates: Fate) -> sc.Looked:
    found = {s.transaction.transactional_id: Fate.OPEN for s in shares if s.transaction}
    return sc.Looked(found | fates, oldest_ms, timeout_ms)


A, B = share("a"), share("b")
LAST = Decision(0, (share("old"),))


def test_a_batch_is_decided_before_the_first_transaction_is_ended() -> None:
    machine = BatchCommit(1, (A, B))
    seen = [type(machine.begin())]
    for answer in (None, LAST, None, None, open_(A, B), None, {"a": Fate.COMMITTED, "b": Fate.COMMITTED}):
        seen.append(type(machine.answered(answer)))
    assert seen == [sc.TakeOver, sc.Read, sc.Sweep, sc.Write, sc.Look, sc.Settle, sc.End, sc.Finish]
    assert machine.step is Step.DONE


def test_what_other_attempts_left_open_is_swept_and_ones_own_is_not() -> None:
    assert walked(BatchCommit(1, (A, B)), None, LAST) == sc.Sweep(frozenset({"a", "b"}))


def test_what_was_decided_is_committed_and_what_was_written_again_is_dropped() -> None:
    before = Decision(1, (share("x"), share("y")))
    machine = BatchCommit(1, (A, B))
    assert walked(machine, None, before) == sc.End(before.transactions, commit=True)
    dropped = machine.answered({"x": Fate.COMMITTED, "y": Fate.COMMITTED})
    assert dropped == sc.End((A.transaction, B.transaction), commit=False)
    assert isinstance(machine.answered({}), sc.Finish)


def test_a_batch_older_than_the_last_decision_is_dropped() -> None:
    assert walked(BatchCommit(0, (A,)), None, Decision(3, ())) == sc.End((A.transaction,), commit=False)


def test_a_decision_whose_transactions_all_expired_is_decided_anew() -> None:
    before = Decision(1, (share("x"),))
    machine = BatchCommit(1, (A, B))
    walked(machine, None, before, {"x": Fate.ABORTED})
    assert machine.answered(None) == sc.Write(Decision(1, (A, B)))


def test_of_a_decision_that_half_expired_only_what_is_missing_is_committed() -> None:
    before = Decision(1, (share("x"), share("y"), Share(0, 0)))
    machine = BatchCommit(1, (A, B, Share(0, 0)))
    walked(machine, None, before, {"x": Fate.COMMITTED, "y": Fate.ABORTED})
    again = Decision(1, (A._replace(transaction=None), B, Share(0, 0)))
    assert machine.answered(None) == sc.Write(again)
    assert machine.answered(None) == sc.Look((B.transaction,))
    machine.answered(open_(B))
    assert machine.answered(None) == sc.End((B.transaction,), commit=True)
    assert machine.answered({"b": Fate.COMMITTED}) == sc.End((A.transaction,), commit=False)
    # And where that one expires as well, the first is still known as committed.
    third = BatchCommit(1, (share("e"), share("f"), Share(0, 0)))
    walked(third, None, again, {"b": Fate.ABORTED})
    assert [s.transaction is None for s in third.answered(None).decision.shares] == [True, False, True]


REFUSED = [
    pytest.param(3, [None, None], "another delivery", id="no decision is known"),
    pytest.param(3, [None, Decision(1, ())], "the last batch that is known as decided is 1", id="batches without one"),
    pytest.param(1, [None, LAST, None, None, open_(A, b=Fate.ABORTED)], "raise kafka.transaction", id="expired before"),
    pytest.param(1, [None, LAST, None, None, open_(A, B, oldest_ms=50_001)], "too near to", id="nearly expired"),
    pytest.param(
        1, [None, LAST, None, None, open_(A, B), None, {"a": Fate.COMMITTED, "b": Fate.ABORTED}],
        "start the query again, it writes what is missing", id="expired between decision and end",
    ),
    pytest.param(1, [None, Decision(1, (A,)), {"a": Fate.UNKNOWN}], "cannot be told", id="forgotten"),
    pytest.param(
        1, [None, Decision(1, (A, share("y", digest=8))), {"a": Fate.COMMITTED, "y": Fate.ABORTED}],
        "computes other rows", id="other rows than then",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("batch_id", "answers", "says"), REFUSED)
def test_a_refusal_says_what_to_do(batch_id: int, answers: list[Any], says: str) -> None:
    with pytest.raises(Refusal, match=says):
        walked(BatchCommit(batch_id, (A, B)), *answers)


def test_an_abort_leaves_what_is_decided() -> None:
    machine = BatchAbort(1, (A, B))
    assert walked(machine, None, Decision(1, (A,))) == sc.End((B.transaction,), commit=False)
    assert machine.answered({}) == sc.Sweep(frozenset({"a"}))
    assert "the next run publishes it" in machine.answered(None).words


def test_what_was_decided_is_rolled_forward_by_anybody() -> None:
    machine = RollForward()
    assert machine.begin() == sc.ReadAll()
    assert machine.answered([Decision(1, (A, Share(0, 0), B))]) == sc.End((A.transaction, B.transaction), commit=True)
    assert machine.answered({"a": Fate.COMMITTED, "b": Fate.ABORTED}).words.startswith("1 of 2 transactions")
    machine = RollForward()
    assert walked(machine, []) == sc.End((), commit=True)
    assert isinstance(machine.answered({}), sc.Finish)


@pytest.mark.parametrize("block", range(3))
def test_every_row_once_whatever_crashes(block: int) -> None:
    for seed in range(block * SEEDS, (block + 1) * SEEDS):
        world = World(seed)
        assert world.run() == world.expected(), f"seed {seed}"


# -- bugs, each of which the world must see ------------------------------------------------------------------------


class EndsBeforeItDecides(BatchCommit):
    MOVES: ClassVar = {
        **sc.COMMIT_MOVES,
        Step.LOOKING: frozenset({Step.ENDING}),
        Step.ENDING: frozenset({Step.DECIDING}),
    } | {Step.DECIDING: frozenset({Step.DONE})}

    def _looked(self, looked: Any) -> Any:
        return self.become(Step.ENDING, sc.End(self._decision.transactions, commit=True))

    def _ended(self, fates: Any) -> Any:
        return self.become(Step.DECIDING, sc.Settle(commit=True))

    def _decided(self, _: Any) -> Any:
        return self.become(Step.DONE, sc.Finish(""))


class ReadsNothing(BatchCommit):
    def _read(self, found: Any) -> Any:
        return self._sweep()


class ReadsBeforeItTakesOver(BatchCommit):
    MOVES: ClassVar = {
        **sc.COMMIT_MOVES,
        Step.NEW: frozenset({Step.READING}),
        Step.READING: frozenset({Step.TAKING_OVER}),
        Step.TAKING_OVER: frozenset({Step.RESOLVING, Step.SWEEPING, Step.DROPPING}),
    }

    def begin(self) -> Any:
        return self.become(Step.READING, sc.Read())

    def _read(self, found: Any) -> Any:
        self.found = found
        return self.become(Step.TAKING_OVER, sc.TakeOver())

    def _taken_over(self, _: None) -> Any:
        return super()._read(self.found)


class TakesExpiredForCommitted(BatchCommit):
    def _resolved(self, fates: Any) -> Any:
        return self._drop()


class WritesAllAgain(BatchCommit):
    def _resolved(self, fates: Any) -> Any:
        return self._sweep() if Fate.ABORTED in fates.values() else super()._resolved(fates)


class LooksAtNothing(BatchCommit):
    def _looked(self, looked: Any) -> Any:
        return self.become(Step.DECIDING, sc.Settle(commit=True))

    def _ended(self, fates: Any) -> Any:
        return self.become(Step.DONE, sc.Finish(""))


class CommitsInStepWithTheTasks(BatchCommit):
    """No decision at all: what most sinks do."""

    MOVES: ClassVar = {**sc.COMMIT_MOVES, Step.SWEEPING: frozenset({Step.ENDING})}

    def _swept(self, _: None) -> Any:
        return self.become(Step.ENDING, sc.End(self._decision.transactions, commit=True))

    def _read(self, found: Any) -> Any:
        return self._sweep()


BUGS = [
    EndsBeforeItDecides, ReadsNothing, ReadsBeforeItTakesOver, TakesExpiredForCommitted, WritesAllAgain, LooksAtNothing,
    CommitsInStepWithTheTasks,
]  # fmt: skip


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_is_seen(bug: Any) -> None:
    assert any(_goes_wrong(World(seed, commit=bug)) for seed in range(SEEDS)), f"{bug.__name__} was not seen"


def _goes_wrong(world: World) -> bool:
    try:
        return world.run() != world.expected()
    except AssertionError:
        return True
