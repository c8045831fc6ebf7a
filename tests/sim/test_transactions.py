"""Transactional producers and read_committed consumers in one world, under faults; deliberate bugs, each caught."""

from __future__ import annotations

from typing import Any

import pytest

from kohort.sim.mutations import Mutation
from kohort.sim.options import TRANSACTIONS
from kohort.sim.runner import Result, hunt, run_seed
from kohort.sim.txn_mutations import TXN_MUTATIONS

WORLD: dict[str, Any] = {**TRANSACTIONS, "minutes": 1.0}
SHOWS_IN = {"no markers after a load": 11, "reply before append": 5}
"""Of the bugs that need a certain moment: the seed that has it."""


def run(seed: int, **overrides: Any) -> Result:
    result = run_seed(seed, **{**WORLD, **overrides})
    assert result.passed, (result.failure, result.story[-12:])
    return result


@pytest.mark.parametrize("seed", range(4))
def test_transactions_under_faults(seed: int) -> None:
    assert run(seed, minutes=0.5).counts["transaction"] > 100


def test_a_run_can_be_repeated() -> None:
    assert run(3, minutes=0.3).digest == run(3, minutes=0.3).digest


@pytest.mark.parametrize("mutation", TXN_MUTATIONS, ids=lambda mutation: mutation.title)
def test_each_deliberate_bug_is_caught(mutation: Mutation) -> None:
    first = SHOWS_IN.get(mutation.title, 0)
    caught = hunt(mutation, range(first, first + 10), **WORLD)
    assert caught.seed is not None, f"{mutation.title} was not caught"
    assert caught.failure.startswith("Transactions:"), caught.failure
