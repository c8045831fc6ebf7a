"""What a group's generations did to partitions, and what a rebalance cost in partitions without a reader. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from kohort.coordinator.causes import CauseKind
from kohort.insight.generations import StoredGeneration
from kohort.insight.lanes import Lanes, Moves
from kohort.insight.rebalances import Rebalance


class Shift(NamedTuple):
    """A generation beside the one before it. `most` and `least` are partitions of a member; `held` is by member id."""

    at_ms: int
    generation: int
    moves: Moves
    partitions: int
    most: int
    least: int
    held: dict[str, int]


def shifts(generations: Iterable[StoredGeneration]) -> Iterator[Shift]:
    """Of one group, the oldest first. A client that comes back under a new member id has kept what it reads again."""
    lanes = Lanes()
    before: int | None = None
    for one in generations:
        moves = lanes.assign(one.at_ms, {member.who: member.partitions for member in one.members})
        held = {member.who.member_id: len(member.partitions) for member in one.members}
        sizes = held.values()
        if one.generation != before and (before is not None or one.members):
            yield Shift(
                one.at_ms, one.generation, moves, sum(sizes), max(sizes, default=0), min(sizes, default=0), held
            )
        before = one.generation


class Cost(NamedTuple):
    """Milliseconds times partitions without a reader.

    `standing` while the group rebalanced: of an eager one all partitions that it read, of a cooperative one those that
    moved. `unnoticed` before it: what a dead member held until its session was over.
    """

    partitions: int
    standing: int
    unnoticed: int


def costs(rebalances: Iterable[Rebalance], generations: Iterable[StoredGeneration]) -> list[tuple[Rebalance, Cost]]:
    """Of one group, the oldest first."""
    known = list(shifts(generations))
    times = [shift.at_ms for shift in known]
    return [(one, _cost(one, known, times)) for one in rebalances]


def _cost(one: Rebalance, known: Sequence[Shift], times: Sequence[int]) -> Cost:
    place = bisect_right(times, one.started_ms)
    while place and known[place - 1].generation == one.generation:
        place -= 1  # a quick rebalance is stored within the millisecond in which it began
    before = known[place - 1] if place else None
    after = known[place] if place < len(known) and known[place].generation == one.generation else None
    still_ms = one.standstill_ms if one.standstill_ms is not None else one.estimated_standstill_ms or 0
    partitions = before.partitions if before else after.partitions if after and (one.generation or 0) > 1 else 0
    waiting = (after.moves.moved if after else 0) if one.cooperative else partitions
    held = before.held if before else {}
    unnoticed = sum(
        held.get(trigger.who.member_id, 0) * (trigger.cause.timeout_ms or 0)
        for trigger in one.triggers
        if trigger.kind is CauseKind.TIMED_OUT and trigger.who is not None
    )
    return Cost(partitions, waiting * still_ms, unnoticed)
