"""Rebalances from what any Kafka keeps of a classic group: the generations stored in `__consumer_offsets`. Pure.

Who came and went between two of them; how long it took is not stored, nor how somebody went.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kohort.assignors import ConsumerProtocolError, decode_assignment, decode_subscription
from kohort.coordinator.causes import Cause, CauseKind, Who
from kohort.coordinator.records import StoredGroup, StoredMember
from kohort.insight.rebalances import History, Rebalance, Source, Trigger


class GenerationMember(NamedTuple):
    """A member in a stored generation; `topics` and `partitions` of a group of consumers."""

    who: Who
    session_timeout_ms: int
    rebalance_timeout_ms: int
    topics: tuple[str, ...] = ()
    partitions: frozenset[tuple[str, int]] = frozenset()

    @classmethod
    def of(cls, member: StoredMember, protocol_type: str | None) -> GenerationMember:
        who = Who(member.member_id, member.instance_id, member.client_id, member.client_host)
        topics: tuple[str, ...] = ()
        partitions: frozenset[tuple[str, int]] = frozenset()
        if protocol_type == "consumer":
            try:
                topics = tuple(decode_subscription(member.subscription).topics)
                assigned = decode_assignment(member.assignment).partitions
                partitions = frozenset((topic, p) for topic, numbers in assigned.items() for p in numbers)
            except ConsumerProtocolError:
                pass  # a member may say anything
        return cls(who, member.session_timeout_ms, member.rebalance_timeout_ms, topics, partitions)


class StoredGeneration(NamedTuple):
    at_ms: int
    generation: int
    protocol: str
    leader_id: str
    members: tuple[GenerationMember, ...]

    @classmethod
    def of(cls, stored: StoredGroup, written_ms: int) -> StoredGeneration:
        """`written_ms` stands in where an old version did not store the time."""
        members = tuple(GenerationMember.of(member, stored.protocol_type) for member in stored.members)
        at_ms = stored.state_timestamp_ms if stored.state_timestamp_ms > 0 else written_ms
        return cls(at_ms, stored.generation, stored.protocol or "", stored.leader_id or "", members)


def from_generations(generations: Iterable[StoredGeneration]) -> History:
    reader = GenerationReader()
    for generation in generations:
        reader.read(generation)
    return reader.history


class GenerationReader:
    """Stored generations in, oldest first; `history` grows with them."""

    def __init__(self) -> None:
        self.history = History(Source.GENERATIONS)
        self._before: StoredGeneration | None = None

    def read(self, now: StoredGeneration) -> Rebalance | None:
        """The rebalance that led to it; None where it was stored for another reason."""
        history, before = self.history, self._before
        history.first_ms = now.at_ms if history.first_ms is None else history.first_ms
        history.last_ms = now.at_ms
        self._before = now
        if before is not None and now.generation < before.generation:
            before = None  # the group was deleted and began anew
        if before is None and not now.members and now.generation == 0:
            return None  # stored when the group was made
        if before is not None and now.generation == before.generation:
            return None  # stored again within the generation, as for a static member that was replaced
        made = Rebalance(
            now.at_ms,
            [Trigger(now.at_ms, cause) for cause in _changes(before, now)],
            now.at_ms,
            now.generation,
            len(now.members),
            now.protocol,
            rebalance_timeout_ms=max((m.rebalance_timeout_ms for m in now.members), default=None),
        )
        history.rebalances.append(made)
        return made


def _changes(before: StoredGeneration | None, now: StoredGeneration) -> list[Cause]:
    if before is None:
        return [Cause(CauseKind.FIRST_KNOWN if now.generation > 1 else CauseKind.BEGAN)]
    old = {m.who.member_id: m for m in before.members}
    new = {m.who.member_id: m for m in now.members}
    causes = [
        Cause(CauseKind.GONE, (member.who,), timeout_ms=member.session_timeout_ms)
        for member_id, member in old.items()
        if member_id not in new
    ]
    for member_id, member in new.items():
        if member_id not in old:
            causes.append(Cause(CauseKind.JOINED, (member.who,)))
        elif set(member.topics) != set(old[member_id].topics):
            causes.append(Cause(CauseKind.METADATA_CHANGED, (member.who,)))
    return causes or [_quiet_change(before, now)]


def _quiet_change(before: StoredGeneration, now: StoredGeneration) -> Cause:
    """The same members with the same subscriptions: either the topics changed, or partitions were handed over."""
    held = {tp: m.who.member_id for m in before.members for tp in m.partitions}
    holds = {tp: m.who.member_id for m in now.members for tp in m.partitions}
    if new := holds.keys() - held.keys():
        return Cause(CauseKind.PARTITIONS_CAME, size=len(new))
    moved = sum(held[tp] != holds[tp] for tp in held.keys() & holds.keys())
    return Cause(CauseKind.PARTITIONS_MOVED, size=moved)
