"""The `sticky` and `cooperative-sticky` assignors: balanced first, then as few moved partitions as possible.

Here: what members tell each other (user data, KIP-54 and KIP-429) and what cooperative members must give up first.
How partitions are dealt out is in `sticky_constrained` (equal subscriptions) and `sticky_general`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from struct import error, pack, unpack_from

from kohort.assignors.ordering import java_sorted
from kohort.assignors.ownership import Claim, settle
from kohort.assignors.partition_space import PartitionSpace
from kohort.assignors.sticky_constrained import ConstrainedAssignment
from kohort.assignors.sticky_general import GeneralAssignment
from kohort.assignors.sticky_racks import StickyRacks
from kohort.assignors.subscribers import topic_sets
from kohort.assignors.topic_partitions import (
    ConsumerProtocolError,
    Decoder,
    TopicPartitions,
    encode_topic_partitions,
)
from kohort.assignors.types import (
    DEFAULT_GENERATION,
    Assignment,
    Assignor,
    ClusterMetadata,
    ConsumerGroupMetadata,
    RebalanceProtocol,
    Subscription,
)

NO_CLAIM = Claim({})


def encode_sticky_user_data(partitions: Mapping[str, Sequence[int]], generation: int | None) -> bytes:
    """Version 1, or version 0 where there is no generation to tell."""
    return encode_topic_partitions(partitions) + (b"" if generation is None else pack(">i", generation))


def decode_sticky_user_data(data: bytes | None, decoder: Decoder) -> Claim:
    """Version 1, then version 0; nothing that cannot be read is believed."""
    if not data:
        return NO_CLAIM
    try:
        partitions, pos = decoder.decode(data, 0)
    except (ConsumerProtocolError, UnicodeDecodeError, error):
        return Claim({}, DEFAULT_GENERATION)
    return Claim(partitions, unpack_from(">i", data, pos)[0] if len(data) - pos >= 4 else None)


def decode_cooperative_claim(subscription: Subscription) -> Claim:
    """What a member owns is in its subscription; from version 2 on the generation too, before that in its user data."""
    if subscription.generation_id >= 0:
        return Claim(subscription.owned_partitions, subscription.generation_id)
    data = subscription.user_data
    if data is None:
        return Claim(subscription.owned_partitions)
    generation = unpack_from(">i", data)[0] if len(data) >= 4 else DEFAULT_GENERATION
    return Claim(subscription.owned_partitions, generation)


class _StickyBase(Assignor):
    def _claims(self, subscriptions: Mapping[str, Subscription]) -> dict[str, Claim]:
        raise NotImplementedError

    def assign(self, metadata: ClusterMetadata, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        if not subscriptions:
            return {}
        wanted = topic_sets(subscriptions)
        space = PartitionSpace(metadata, frozenset().union(*wanted))
        claims = self._claims(subscriptions)
        ownership = settle(space, java_sorted(subscriptions), claims, subscriptions)
        racks = StickyRacks(space, metadata, subscriptions)
        if len(wanted) > 1:
            assigned = GeneralAssignment(space, ownership, racks, claims, subscriptions).build()
            self._hold_back(assigned, lambda: _changing_owner(space, assigned, subscriptions))
            return {member: Assignment(space.by_topic(ids)) for member, ids in assigned.items()}
        constrained = ConstrainedAssignment(space, ownership, racks)
        assigned = constrained.build()
        self._hold_back(assigned, lambda: constrained.transferring)
        assignments = {}
        for member, ids in assigned.items():
            partitions = claims[member].partitions
            if member in constrained.grown or not _same_size(partitions, ids):
                partitions = space.by_topic(ids)
            assignments[member] = Assignment(partitions)
        return assignments

    def _hold_back(self, assigned: dict[str, Sequence[int]], transferring: Callable[[], dict[int, str]]) -> None:
        """Eager members have given up everything: nothing needs to wait for its owner."""


def _same_size(partitions: Mapping[str, Sequence[int]], ids: Sequence[int]) -> bool:
    return isinstance(partitions, TopicPartitions) and partitions.shape.total == len(ids)


class StickyAssignor(_StickyBase):
    """Eager: members give everything up before they rejoin, so what they had is carried in their user data."""

    name = "sticky"

    def __init__(self) -> None:
        self._assigned: Mapping[str, Sequence[int]] | None = None
        self._generation_id = DEFAULT_GENERATION

    def subscription_user_data(self, topics: Sequence[str]) -> bytes | None:
        return None if self._assigned is None else encode_sticky_user_data(self._assigned, self._generation_id)

    def on_assignment(self, assignment: Assignment, metadata: ConsumerGroupMetadata) -> None:
        self._assigned = assignment.partitions
        self._generation_id = metadata.generation_id

    def _claims(self, subscriptions: Mapping[str, Subscription]) -> dict[str, Claim]:
        decoder = Decoder()
        return {member: decode_sticky_user_data(s.user_data, decoder) for member, s in subscriptions.items()}


class CooperativeStickyAssignor(_StickyBase):
    """Members keep consuming what they keep. A partition that moves is first taken from its owner, then given away."""

    name = "cooperative-sticky"
    supported_protocols = (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)

    def __init__(self) -> None:
        self._generation_id = DEFAULT_GENERATION

    def subscription_user_data(self, topics: Sequence[str]) -> bytes | None:
        return pack(">i", self._generation_id)

    def on_assignment(self, assignment: Assignment, metadata: ConsumerGroupMetadata) -> None:
        self._generation_id = metadata.generation_id

    def _claims(self, subscriptions: Mapping[str, Subscription]) -> dict[str, Claim]:
        return {member: decode_cooperative_claim(subscription) for member, subscription in subscriptions.items()}

    def _hold_back(self, assigned: dict[str, Sequence[int]], transferring: Callable[[], dict[int, str]]) -> None:
        held = transferring()
        for member in set(held.values()):
            assigned[member] = [partition for partition in assigned[member] if held.get(partition) != member]


def _changing_owner(
    space: PartitionSpace, assigned: Mapping[str, Sequence[int]], subscriptions: Mapping[str, Subscription]
) -> dict[int, str]:
    """Partitions that a member gets while another one still owns them."""
    added: dict[int, str] = {}
    revoked: set[int] = set()
    for member, ids in assigned.items():
        owned = set(space.ids(subscriptions[member].owned_partitions))
        added.update(dict.fromkeys(set(ids) - owned, member))
        revoked.update(owned.difference(ids))
    return {partition: member for partition, member in added.items() if partition in revoked}
