"""The simulator with several brokers, for groups of both protocols and for transactions: seeds pass, runs repeat, and
deliberate bugs show.
"""

import pytest

from cluster import test_world as bugs
from kohort.sim.checkers import CLUSTER_ANY_PROTOCOL, CLUSTER_TRANSACTIONAL, Kept, StoredAnywhere
from kohort.sim.cluster_mutations import CLUSTER_MUTATIONS
from kohort.sim.modern_mutations import MODERN_MUTATIONS
from kohort.sim.mutations import MUTATIONS, Mutation
from kohort.sim.options import MOVING, TRANSACTIONS
from kohort.sim.runner import checkers_for, hunt, run_seed
from kohort.sim.txn_mutations import TXN_MUTATIONS

SEEDS = 8
MINUTES = 0.5
CONSUMER = {"protocols": ("consumer",)}
RARE = ("offsets count whatever the end", "no markers after a load", "reply before append")
"""Caught too, but that takes longer than a test should: `kohort sim --brokers 3 --mutations`, and `--transactions`."""


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level("CRITICAL")


@pytest.mark.timeout(600)
def test_seeds_of_three_brokers_pass():
    results = [run_seed(seed, minutes=MINUTES, brokers=3) for seed in range(SEEDS)]
    assert [(r.seed, r.failure) for r in results if not r.passed] == []
    assert sum(r.counts.get("acked", 0) for r in results) > 10 * SEEDS, "a run without commits shows little"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("world", [CONSUMER, MOVING], ids=["consumer", "either"])
def test_groups_of_the_consumer_protocol_on_three_brokers(world):
    results = [run_seed(seed, minutes=MINUTES, brokers=3, **world) for seed in range(4)]
    assert [(r.seed, r.failure) for r in results if not r.passed] == []
    assert {checkers_for(r.options) for r in results} == {CLUSTER_ANY_PROTOCOL}


@pytest.mark.timeout(600)
def test_transactions_over_three_brokers():
    """Coordinators, leaders of what is written and of the groups are different brokers, which ask each other."""
    results = [run_seed(seed, minutes=MINUTES, brokers=3, **TRANSACTIONS) for seed in range(5)]
    assert [(r.seed, r.failure) for r in results if not r.passed] == []
    assert {checkers_for(r.options) for r in results} == {CLUSTER_TRANSACTIONAL}
    assert sum(r.counts["transaction"] for r in results) > 300


@pytest.mark.parametrize("world", [{}, TRANSACTIONS], ids=["groups", "transactions"])
def test_a_seed_of_three_brokers_repeats(world):
    assert len({run_seed(3, minutes=MINUTES, brokers=3, **world).digest for _ in range(2)}) == 1


@pytest.mark.timeout(600)
@pytest.mark.parametrize("bug", [bugs.forget_the_seal, bugs.skip_the_nonce, bugs.load_without_the_tail])
def test_a_deliberate_bug_of_a_cluster_is_caught(bug, monkeypatch):
    bug(monkeypatch)
    assert any(not run_seed(seed, minutes=1, brokers=3).passed for seed in range(80))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("bug", [bug for bug in TXN_MUTATIONS if bug.title not in RARE], ids=lambda bug: bug.title)
def test_a_deliberate_bug_in_transactions_is_caught_on_three_brokers(bug: Mutation):
    caught = hunt(bug, range(40), minutes=1, brokers=3, **TRANSACTIONS)
    assert caught.failure.startswith("Transactions:"), caught.failure


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("bug", "world"),
    [*((bug, {}) for bug in CLUSTER_MUTATIONS[2:] if bug.title not in RARE), (MODERN_MUTATIONS["Order"][0], CONSUMER)],
    ids=lambda one: getattr(one, "title", ""),
)
def test_a_deliberate_bug_of_a_load_is_caught(bug: Mutation, world):
    assert hunt(bug, range(40), minutes=1, brokers=3, **world).seed is not None


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("checker", "title", "options"),
    [(StoredAnywhere, "reply before append", {}), (Kept, "expire at once", {"retention_ms": 120_000})],
    ids=["StoredAnywhere", "Kept"],
)
def test_what_checks_the_offsets_log_of_several_brokers_catches_a_bug(checker, title, options):
    (bug,) = (bug for bug in MUTATIONS if bug.title == title)
    caught = hunt(bug, range(10), checker, minutes=MINUTES, brokers=3, **options)
    assert caught.failure.startswith(f"{checker.__name__}:"), caught.failure
