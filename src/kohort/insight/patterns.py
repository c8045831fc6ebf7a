"""Storms and flapping members in any stretch of a group's past, and the limits by which they are told. Pure.

diagnosis.py says of the last hour what to change; here they are found wherever they are, with beginning and end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kohort.coordinator.causes import CauseKind, Who
from kohort.insight.rebalances import Rebalance, Trigger

STORM_COUNT = 5
STORM_WINDOW_MS = 5 * 60_000
FLAPS = 3
FLAP_WINDOW_MS = 10 * 60_000
EXITS = (
    CauseKind.LEFT,
    CauseKind.REMOVED,
    CauseKind.TIMED_OUT,
    CauseKind.TIMED_OUT_IN_FIRST_JOIN,
    CauseKind.DID_NOT_REJOIN,
    CauseKind.DID_NOT_SYNC,
    CauseKind.GONE,
)


class Storm(NamedTuple):
    """`kinds` are those of the causes, the most frequent first."""

    started_ms: int
    ended_ms: int
    rebalances: int
    standstill_ms: int
    kinds: tuple[tuple[CauseKind, int], ...]


class Flapping(NamedTuple):
    """A client that went `times` times; `kind` is how it mostly went."""

    who: Who
    started_ms: int
    ended_ms: int
    times: int
    kind: CauseKind


def counted(rebalances: Iterable[Rebalance]) -> list[Rebalance]:
    """The second half of a cooperative hand-over belongs to the rebalance before it; nobody waits in an empty group."""
    return [r for r in rebalances if r.members != 0 and {t.kind for t in r.triggers} != {CauseKind.HANDED_OVER}]


def exits(rebalances: Iterable[Rebalance]) -> dict[str, list[Trigger]]:
    """How each client went, by its identity."""
    found: dict[str, list[Trigger]] = {}
    for rebalance in rebalances:
        for trigger in rebalance.triggers:
            if trigger.who is not None and trigger.kind in EXITS:
                found.setdefault(trigger.who.identity, []).append(trigger)
    return found


def busiest(times: Sequence[int], window_ms: int) -> tuple[int, int, int]:
    """(count, first, last) of the fullest window."""
    best, start = (0, 0, 0), 0
    for end, at_ms in enumerate(times):
        while at_ms - times[start] > window_ms:
            start += 1
        if end - start + 1 > best[0]:
            best = (end - start + 1, times[start], at_ms)
    return best


def bursts(times: Sequence[int], window_ms: int, count: int) -> list[tuple[int, int]]:
    """(first, last) places of stretches in which `count` or more lie within a window; windows that overlap are one."""
    found: list[tuple[int, int]] = []
    start = 0
    for end, at_ms in enumerate(times):
        while at_ms - times[start] > window_ms:
            start += 1
        if end - start + 1 < count:
            continue
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    return found


def storms(rebalances: Iterable[Rebalance]) -> list[Storm]:
    """Of one group; a standstill that nobody measured counts as estimated."""
    each = sorted(counted(rebalances), key=lambda one: one.started_ms)
    found = []
    for first, last in bursts([one.started_ms for one in each], STORM_WINDOW_MS, STORM_COUNT):
        within = each[first : last + 1]
        kinds = Counter(trigger.kind for one in within for trigger in one.triggers)
        standstill_ms = sum(one.stood_still_ms or 0 for one in within)
        found.append(
            Storm(
                within[0].started_ms, within[-1].started_ms, len(within), standstill_ms,
                tuple(sorted(kinds.items(), key=lambda item: (-item[1], item[0].value))),
            )
        )  # fmt: skip
    return found


def flapping(rebalances: Iterable[Rebalance]) -> list[Flapping]:
    found = []
    for went in exits(rebalances).values():
        went.sort(key=lambda trigger: trigger.at_ms)
        for first, last in bursts([trigger.at_ms for trigger in went], FLAP_WINDOW_MS, FLAPS):
            within = went[first : last + 1]
            kind = Counter(trigger.kind for trigger in within).most_common(1)[0][0]
            who = within[-1].who
            assert who is not None
            found.append(Flapping(who, within[0].at_ms, within[-1].at_ms, len(within), kind))
    return sorted(found, key=lambda one: one.started_ms)
