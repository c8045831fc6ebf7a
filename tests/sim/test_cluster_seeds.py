"""The simulator with several brokers: seeds pass, runs repeat, and deliberate bugs of a cluster show in groups."""

import pytest

from cluster import test_world as bugs
from kohort.sim.runner import run_seed

SEEDS = 12
MINUTES = 0.5


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level("CRITICAL")


@pytest.mark.timeout(600)
def test_seeds_of_three_brokers_pass():
    results = [run_seed(seed, minutes=MINUTES, brokers=3) for seed in range(SEEDS)]
    assert [(r.seed, r.failure) for r in results if not r.passed] == []
    assert sum(r.counts.get("acked", 0) for r in results) > 10 * SEEDS, "a run without commits shows little"


def test_a_seed_of_three_brokers_repeats():
    assert run_seed(3, minutes=MINUTES, brokers=3).digest == run_seed(3, minutes=MINUTES, brokers=3).digest


@pytest.mark.timeout(600)
@pytest.mark.parametrize("bug", [bugs.forget_the_seal, bugs.skip_the_nonce, bugs.load_without_the_tail])
def test_a_deliberate_bug_of_a_cluster_is_caught(bug, monkeypatch):
    bug(monkeypatch)
    assert any(not run_seed(seed, minutes=1, brokers=3).passed for seed in range(80))
