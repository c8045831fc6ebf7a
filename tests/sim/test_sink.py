"""Spark queries that write exactly once, in one world with a failing broker; deliberate bugs, each caught."""

from __future__ import annotations

from typing import Any

import pytest

from kohort.sim.mutations import Mutation
from kohort.sim.options import SINK
from kohort.sim.runner import Result, hunt, run_seed
from kohort.sim.sink_mutations import SINK_MUTATIONS

WORLD: dict[str, Any] = {**SINK, "minutes": 1.0}
SHOWS_IN: dict[str, int] = {}
"""Of the bugs that need a certain moment: the seed that has it."""


def run(seed: int, **overrides: Any) -> Result:
    result = run_seed(seed, **{**WORLD, **overrides})
    assert result.passed, (result.failure, result.story[-12:])
    return result


@pytest.mark.parametrize("seed", range(3))
def test_every_row_once_under_faults(seed: int) -> None:
    assert run(seed).counts["sink"] > 20


def test_a_run_can_be_repeated() -> None:
    assert run(4, minutes=0.3).digest == run(4, minutes=0.3).digest


@pytest.mark.parametrize("mutation", SINK_MUTATIONS, ids=lambda mutation: mutation.title)
def test_each_deliberate_bug_is_caught(mutation: Mutation) -> None:
    first = SHOWS_IN.get(mutation.title, 0)
    caught = hunt(mutation, range(first, first + 4), **WORLD)
    assert caught.seed is not None, f"{mutation.title} was not caught"
    assert caught.failure.startswith("SinkOutput:"), caught.failure
