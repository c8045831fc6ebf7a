"""Rebalances from looks at a group with DescribeGroups, where its past cannot be read. Pure.

A standstill is known to the interval between two looks, and how somebody went is not known at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kohort.coordinator.causes import Cause, CauseKind, Who
from kohort.insight.rebalances import DEAD, EMPTY, STABLE, History, Rebalance, Source, Trigger


class Sample(NamedTuple):
    """One look at a group."""

    at_ms: int
    state: str
    members: tuple[Who, ...]
    assignment: Mapping[str, frozenset[tuple[str, int]]]
    protocol: str = ""


def from_samples(samples: Iterable[Sample]) -> History:
    history = History(Source.SAMPLES)
    before: Sample | None = None
    unsettled: Rebalance | None = None
    for now in samples:
        history.first_ms = now.at_ms if history.first_ms is None else history.first_ms
        history.last_ms = now.at_ms
        busy = now.state not in (STABLE, EMPTY, DEAD)
        if (busy or _changed(before, now)) and unsettled is None:
            unsettled = Rebalance(now.at_ms)
            history.rebalances.append(unsettled)
        if unsettled is not None:
            if before is not None:
                unsettled.triggers += _differences(before, now)
            if not busy:
                _settle(unsettled, now)
                unsettled = None
        before = now
    return history


def _changed(before: Sample | None, now: Sample) -> bool:
    if before is None:
        return False
    if {who.member_id for who in before.members} != {who.member_id for who in now.members}:
        return True
    return before.state == now.state == STABLE and before.assignment != now.assignment


def _settle(rebalance: Rebalance, now: Sample) -> None:
    rebalance.completed_ms, rebalance.members, rebalance.protocol = now.at_ms, len(now.members), now.protocol
    rebalance.standstill_ms = now.at_ms - rebalance.started_ms or None
    rebalance.triggers = rebalance.triggers or [Trigger(now.at_ms, Cause(CauseKind.MEMBERS_REJOINED))]


def _differences(before: Sample, now: Sample) -> list[Trigger]:
    old, new = ({who.member_id: who for who in sample.members} for sample in (before, now))
    gone = [Cause(CauseKind.GONE, (who,)) for member_id, who in old.items() if member_id not in new]
    came = [Cause(CauseKind.JOINED, (who,)) for member_id, who in new.items() if member_id not in old]
    return [Trigger(now.at_ms, cause) for cause in gone + came]
