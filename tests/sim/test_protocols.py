"""Members of both protocols in one world, each in a group of its own and together in one that moves, under faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kohort.client.modern.reconciling import Reconciling
from kohort.coordinator.modern.group import ModernGroup
from kohort.protocol.errors import ErrorCode
from kohort.sim import checkers
from kohort.sim.checkers import ANY_PROTOCOL, Fenced
from kohort.sim.member import SimMember
from kohort.sim.modern_mutations import MODERN_MUTATIONS
from kohort.sim.mutations import Mutation
from kohort.sim.options import MOVING, Options, protocols_of
from kohort.sim.runner import checkers_for, hunt, run_seed
from kohort.sim.trace import CheckFailed
from kohort.sim.world import World

SHORT: dict[str, Any] = {"minutes": 1.0}
SMALL: dict[str, Any] = {"minutes": 0.7, "members": 6, "groups": 1, "topics": 2, "loners": 0, "static_share": 0.3}
HARD: dict[str, tuple[int, dict[str, Any]]] = {
    "a group that moves back is not stored": (10, {"minutes": 1.0, **MOVING}),
    "a group that moves begins anew": (10, {**SMALL, **MOVING}),
    "accept every epoch": (13, {"minutes": 1.0, "protocols": ("consumer",)}),
    "show members where the group is": (2, {**SMALL, "protocols": ("consumer",)}),
}
"""Those that take more of a world, with the seed to begin with: those before it take time and show nothing."""
EASY: tuple[int, dict[str, Any]] = (0, {**SMALL, "protocols": ("consumer",)})
BUGS = [(name, bug) for name, bugs in MODERN_MUTATIONS.items() for bug in bugs]


def run(seed: int, **overrides: Any) -> World:
    world = World(seed, Options.from_seed(seed, **{**SHORT, **overrides}), [make() for make in ANY_PROTOCOL])
    world.run()
    return world


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("protocols", [("consumer",), ("classic", "consumer")], ids=lambda names: "+".join(names))
def test_groups_of_the_consumer_protocol_under_faults(seed: int, protocols: tuple[str, ...]) -> None:
    run(seed, protocols=protocols, groups=2)


@pytest.mark.parametrize("seed", range(3))
def test_groups_that_move_between_the_protocols_under_faults(seed: int) -> None:
    run(seed, **MOVING)


def test_a_run_can_be_repeated() -> None:
    first, again = run(2, **MOVING), run(2, **MOVING)
    assert first.trace.digest == again.trace.digest


def test_a_third_of_the_seeds_is_mixed_and_the_worlds_of_the_others_stay() -> None:
    mixed = {seed: protocols_of(seed).get("protocols") for seed in range(300)}
    assert 70 <= sum(protocols is not None for protocols in mixed.values()) <= 130
    assert set(mixed.values()) == {None, ("consumer",), ("classic", "consumer"), ("either",)}
    for seed, protocols in list(mixed.items())[:40]:
        made = Options.from_seed(seed, **protocols_of(seed))
        assert (checkers_for(made) is ANY_PROTOCOL) == (protocols is not None)
        assert protocols is not None or made == Options.from_seed(seed)


def test_a_commit_of_who_is_no_member_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ModernGroup, "commit_error", lambda *_: ErrorCode.NONE)
    overrides = {"minutes": 1.0, "loners": 0, "duplicate_every_ms": 0, "members": 6, "groups": 1, "topics": 3}
    often = {"member_leave_every_ms": 5_000, "resubscribe_every_ms": 5_000}
    found = (run_seed(seed, only=Fenced, protocols=("consumer",), **overrides, **often) for seed in range(12))
    assert any("but it is no member" in (result.failure or "") for result in found)


def acknowledges_before_it_has_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    true = Reconciling._owned_by_id

    def early(self: Reconciling) -> Any:
        owned = true(self)
        kept = {one: tuple(n for n in numbers if n in self._target.get(one, ())) for one, numbers in owned.items()}
        return {one: numbers for one, numbers in kept.items() if numbers}

    monkeypatch.setattr(Reconciling, "_owned_by_id", early)


def gives_what_another_still_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ModernGroup, "is_held", lambda self, topic_id, number: False)


@pytest.mark.parametrize("bug", [acknowledges_before_it_has_given_up, gives_what_another_still_holds])
def test_deliberate_bugs_are_found(bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    monkeypatch.setattr(SimMember, "_dawdles", lambda self: True)
    with pytest.raises(CheckFailed, match="has not given up"):
        for seed in range(8, 26):
            run(seed, **{**SMALL, "minutes": 1.0}, protocols=("consumer",), member_leave_every_ms=5_000)


@pytest.mark.parametrize(("checker", "bug"), BUGS, ids=lambda one: one if isinstance(one, str) else one.title)
def test_each_checker_finds_its_bugs_by_itself(checker: str, bug: Mutation) -> None:
    """Of groups of the consumer protocol, and of such as move."""
    first, world = HARD.get(bug.title, EASY)
    caught = hunt(bug, range(first, first + 40), only=getattr(checkers, checker), **world)
    assert caught.failure.startswith(f"{checker}: "), caught.failure
