"""Who owned what before: the claims of a sticky group's members, and how claims on the same partition are settled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import filterfalse

from kohort.assignors.partition_space import PartitionSpace
from kohort.assignors.types import DEFAULT_GENERATION, Subscription


@dataclass(slots=True)
class Claim:
    """What one member says it owned, and as of which generation (None: it did not say)."""

    partitions: Mapping[str, Sequence[int]]
    generation: int | None = None


@dataclass(slots=True)
class Ownership:
    """The settled claims, in the order of the members.

    `free` holds, in order, the partitions nobody owned. `disputed` ones were claimed by several members of one
    generation: nobody can be trusted to be the only owner.
    """

    owned: dict[str, list[int]]
    free: Sequence[int]
    disputed: set[int] = field(default_factory=set)
    max_generation: int = DEFAULT_GENERATION


def settle(
    space: PartitionSpace,
    members: Sequence[str],
    claims: Mapping[str, Claim],
    subscriptions: Mapping[str, Subscription],
) -> Ownership:
    """Each partition to the claimant of the highest generation."""
    owned = {member: space.ids(claims[member].partitions) for member in members}
    claimed = set().union(*owned.values())
    ownership = Ownership(owned, range(space.total))
    if len(claimed) < sum(map(len, owned.values())):
        _settle_conflicts(ownership, claims, subscriptions)
        claimed = set().union(*ownership.owned.values())
    if claimed:
        ownership.free = list(filterfalse(claimed.__contains__, range(space.total)))
    generations = [claim.generation for claim in claims.values() if claim.generation is not None]
    ownership.max_generation = max(generations, default=DEFAULT_GENERATION)
    return ownership


def _settle_conflicts(
    ownership: Ownership, claims: Mapping[str, Claim], subscriptions: Mapping[str, Subscription]
) -> None:
    claimant: dict[int, str] = {}
    settled: dict[str, dict[int, None]] = {}
    for member, ids in ownership.owned.items():
        generation = claims[member].generation
        generation = DEFAULT_GENERATION if generation is None else generation
        mine = settled[member] = {}
        for partition in ids:
            other = claimant.get(partition)
            if other is None:
                mine[partition] = None
                claimant[partition] = member
                continue
            # Kafka takes the earlier claimant's generation from its subscription, never from its user data.
            other_generation = max(subscriptions[other].generation_id, DEFAULT_GENERATION)
            if generation < other_generation:
                continue
            claimant[partition] = member
            settled[other].pop(partition, None)
            if generation > other_generation:
                mine[partition] = None
            else:
                ownership.disputed.add(partition)
    ownership.owned = {member: list(ids) for member, ids in settled.items()}
