"""Who of a KIP-848 group waits for which partition, who still holds it, and why: from one look at its members. Pure.

A member gets what its target gives it when whoever had it has said that it gave it up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import NamedTuple

from kohort.coordinator.causes import Who
from kohort.insight.lanes import Partition
from kohort.insight.wording import plural, printable

LEFT_FOR_A_WHILE_EPOCH = -2


class WaitReason(Enum):
    """The value is the name in JSON."""

    NOT_REVOKED = "not_revoked"
    LEFT_FOR_A_WHILE = "left_for_a_while"
    OWN_REVOCATION = "own_revocation"
    NOT_TOLD = "not_told"


_WHY = {
    WaitReason.NOT_REVOKED: "has not said yet that it gave it up",
    WaitReason.LEFT_FOR_A_WHILE: "left for a while: it is kept for its return until its session is over",
    WaitReason.OWN_REVOCATION: "nobody holds it: the member has to give up others first",
    WaitReason.NOT_TOLD: "nobody holds it: it comes with the member's next heartbeat",
}


class Holding(NamedTuple):
    """A member as ConsumerGroupDescribe shows it: what it has, or has not given up, and what it is to have."""

    who: Who
    epoch: int
    held: frozenset[Partition]
    target: frozenset[Partition]


class Wait(NamedTuple):
    partition: Partition
    waiter: Who
    holder: Who | None
    reason: WaitReason

    @property
    def text(self) -> str:
        return _WHY[self.reason]


def waits(members: Sequence[Holding]) -> list[Wait]:
    """In the order of the partitions."""
    holders = {partition: member for member in members for partition in member.held}
    found = [
        _wait(partition, member, holders.get(partition))
        for member in members
        for partition in member.target - member.held
    ]
    return sorted(found, key=lambda one: one.partition)


def _wait(partition: Partition, waiter: Holding, holder: Holding | None) -> Wait:
    if holder is None:
        reason = WaitReason.OWN_REVOCATION if waiter.held - waiter.target else WaitReason.NOT_TOLD
        return Wait(partition, waiter.who, None, reason)
    away = holder.epoch == LEFT_FOR_A_WHILE_EPOCH
    return Wait(partition, waiter.who, holder.who, WaitReason.LEFT_FOR_A_WHILE if away else WaitReason.NOT_REVOKED)


def told(found: Iterable[Wait]) -> list[str]:
    """A sentence for each pair of members: `orders-1 and 2 more wait for a (host), which has not ...`."""
    pairs: dict[tuple[Who, Who | None, WaitReason], list[Partition]] = {}
    for one in found:
        pairs.setdefault((one.waiter, one.holder, one.reason), []).append(one.partition)
    return [_sentence(waiter, holder, reason, partitions) for (waiter, holder, reason), partitions in pairs.items()]


def _sentence(waiter: Who, holder: Who | None, reason: WaitReason, partitions: list[Partition]) -> str:
    topic, number = partitions[0]
    more = f" and {plural(len(partitions) - 1, 'more partition')}" if len(partitions) > 1 else ""
    what = f"{printable(waiter)} waits for {printable(topic)}-{number}{more}"
    if holder is None:
        return f"{what}; {_WHY[reason]}"
    return f"{what}; {printable(holder)} {_WHY[reason]}"
