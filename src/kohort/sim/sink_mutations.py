"""Deliberate bugs in the exactly-once sink, each switched on for a while; see mutations.py. For tests only."""

from __future__ import annotations

from typing import Any

from kohort.sim.mutations import Mutation
from kohort.sim.sink import Run
from kohort.spark import sink_commit as sc
from kohort.spark import sink_decisions as decisions
from kohort.spark.sink_commit import BatchCommit, Step


def _look_at_no_decision(original: Any) -> Any:
    return lambda self, found: self._sweep()


def _take_expired_for_committed(original: Any) -> Any:
    return lambda self, fates: self._drop()


def _write_all_again(original: Any) -> Any:
    def resolved(self: Any, fates: Any) -> Any:
        return self._sweep() if sc.Fate.ABORTED in fates.values() else original(self, fates)

    return resolved


def _take_written_for_decided(original: Any) -> Any:
    """What is in a transaction that is still open is rolled forward as well."""

    def found(self: Any) -> Any:
        self._last.update(self._open.values())
        return original(self)

    return found


def _spare_nobody(original: Any) -> Any:
    return lambda self: self.become(Step.SWEEPING, sc.Sweep(frozenset()))


def _end_before_it_counts(original: Any) -> Any:
    """The driver ends the tasks' transactions first, and its own with the decision afterwards."""

    def carry_out(self: Any, effect: Any) -> Any:
        if isinstance(effect, sc.Write):
            self.decided = effect.decision.transactions
        if isinstance(effect, sc.Settle):
            yield from original(self, sc.End(self.decided, commit=True))
        return (yield from original(self, effect))

    return carry_out


SINK_MUTATIONS: tuple[Mutation, ...] = (
    Mutation("look at no decision", BatchCommit, "_read", _look_at_no_decision),
    Mutation("take expired for committed", BatchCommit, "_resolved", _take_expired_for_committed),
    Mutation("write all again", BatchCommit, "_resolved", _write_all_again),
    Mutation("take written for decided", decisions.Scan, "found", _take_written_for_decided),
    Mutation("spare nobody", BatchCommit, "_sweep", _spare_nobody),
    Mutation("end before the decision counts", Run, "_carry_out", _end_before_it_counts),
)
