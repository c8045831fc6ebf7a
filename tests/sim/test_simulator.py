"""The simulator: seeds pass, runs repeat byte for byte, deliberate bugs are caught, every checker earns its place."""

import json
import os
import subprocess
import sys

import pytest

from kohort.coordinator.coordinator import Coordinator
from kohort.sim import checkers
from kohort.sim.mutations import MUTATIONS
from kohort.sim.options import Options
from kohort.sim.runner import hunt, run_seed, run_seeds, shrink

SEEDS = 60  # `make sim` runs thousands
HUNTED = 200
MINUTES = 0.5
# For each checker a bug that it finds by itself.
CATCHES = {
    "Liveness": "a join waits for ever",
    "Ownership": "keep the last generation's assignments",
    "Processing": "read on after a revocation",
    "RecordDurability": "append duplicates",
    "HandOver": "commit one too far",
    "Legality": "no generation check on commit",
    "Stored": "answer before what it rests on is stored",
    "Kept": "expire behind a commit that waits",
    "Closed": "load what is damaged",
    "Usable": "keep a deleted group",
    "Prompt": "wait for the log for ever",
    "Memory": "forget that fetches are done",
    "CommitDurability": "start without offsets after a restart",
    "Order": "start from generation 0 after a restart",
}
# Seeds before these take time and show nothing of the bug.
FIRST = {"believe a late answer of the log after a reload": 80}
BY_TITLE = {mutation.title: mutation for mutation in MUTATIONS}


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level("CRITICAL")


@pytest.mark.timeout(600)
def test_seeds_pass():
    results = list(run_seeds(range(SEEDS), os.cpu_count() or 1, minutes=MINUTES))
    assert [(r.seed, r.failure) for r in results if not r.passed] == []
    assert len({r.digest for r in results}) == SEEDS
    assert sum(r.counts.get("fault", 0) for r in results) > SEEDS, "a run without faults shows little"


def test_a_seed_repeats_byte_for_byte_in_another_process():
    """Whatever the order of sets and the addresses of objects there."""
    script = "import sys; from kohort.sim.runner import run_seed; print(run_seed(11, minutes=0.5).digest)"
    digests = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2", "3")
    }
    assert digests == {run_seed(11, minutes=0.5).digest + "\n"}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.title)
def test_each_deliberate_bug_is_caught(mutation):
    first = FIRST.get(mutation.title, 0)
    caught = hunt(mutation, range(first, first + HUNTED), minutes=1.0)
    assert caught.seed is not None, f"{mutation.title} was not caught"
    assert "positional argument" not in caught.failure, f"the bug does not fit the code any more: {caught.failure}"


@pytest.mark.conformance
@pytest.mark.timeout(600)
@pytest.mark.parametrize("checker", checkers.ALL, ids=lambda checker: checker.__name__)
def test_each_checker_catches_something_by_itself(checker):
    caught = hunt(BY_TITLE[CATCHES[checker.__name__]], range(HUNTED), only=checker, minutes=1.0)
    assert caught.failure.startswith(checker.__name__), caught.failure


@pytest.mark.timeout(600)
@pytest.mark.parametrize("checker", [checkers.Kept, checkers.Stored], ids=lambda checker: checker.__name__)
def test_commits_lost_to_decisions_that_do_not_see_each_other_are_found(checker):
    """To an expiry behind a commit that waits, and to a delete that does not see it."""
    mutation = BY_TITLE["decide on what is stored"]
    caught = hunt(mutation, range(HUNTED), only=checker, minutes=1.0, grow_offsets_topic_every_ms=0)
    assert caught.failure.startswith(checker.__name__), caught.failure


def test_an_exception_in_a_handler_fails_the_run(monkeypatch):
    """The broker survives it and closes the connection; that must not hide it."""

    def broken(self, request):
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(Coordinator, "_heartbeat", broken)
    assert "a bug" in run_seed(0, minutes=0.5).failure


def test_a_failure_shrinks_to_the_faults_it_takes():
    mutation = BY_TITLE["commit one too far"]
    with mutation.applied():
        result = run_seed(0, minutes=0.5)
        smallest = shrink(result, {"minutes": 0.5})
    assert not smallest.passed
    assert smallest.options.faults() == [], "this bug needs no fault at all"
    assert smallest.story


def test_options_come_from_the_seed():
    assert Options.from_seed(7) == Options.from_seed(7)
    assert len({Options.from_seed(seed) for seed in range(50)}) == 50
    assert Options.from_seed(7, members=2).members == 2


def kohort(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "kohort.cli", "sim", *arguments], capture_output=True, text=True)


def test_the_command_runs_one_seed_and_many():
    one = kohort("--seed", "3", "--minutes", "0.2", "--json")
    assert one.returncode == 0, one.stderr
    assert json.loads(one.stdout)["failure"] is None
    assert json.loads(one.stdout)["passed"] is True
    told = kohort("--seed", "3", "--minutes", "0.2").stdout.splitlines()[-1]
    assert told.startswith("PASS after ") and "CommitDurability" in told
    many = kohort("--seeds", "4", "--minutes", "0.2", "--workers", "2")
    assert many.returncode == 0, many.stderr
    assert "all checkers hold" in many.stdout and "\x1b" not in many.stdout


def test_the_command_refuses_contradictions():
    refused = kohort("--seed", "3", "--seeds", "4")
    assert refused.returncode == 2
    assert "leave out" in refused.stderr
