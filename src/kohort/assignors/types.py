"""The values an assignor works on and the `Assignor` protocol a custom one implements.

Plain data only: how it looks on the wire is in `consumer_protocol`, how partitions are dealt out in the assignors.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple, Protocol

DEFAULT_GENERATION = -1


class RebalanceProtocol(IntEnum):
    """EAGER members give up everything before they rejoin; COOPERATIVE ones keep what they own (KIP-429)."""

    EAGER = 0
    COOPERATIVE = 1


@dataclass(slots=True)
class ClusterMetadata:
    """How many partitions each topic has and, where known, the racks of the replicas of each partition.

    A topic that is missing from `partition_counts` does not exist: nobody is assigned any of it.
    """

    partition_counts: Mapping[str, int]
    replica_racks: Mapping[str, Sequence[Collection[str]]] = field(default_factory=dict)


@dataclass(slots=True)
class Subscription:
    """What one member tells the leader when it joins."""

    topics: Sequence[str]
    user_data: bytes | None = None
    owned_partitions: Mapping[str, Sequence[int]] = field(default_factory=dict)
    generation_id: int = DEFAULT_GENERATION
    rack_id: str | None = None
    group_instance_id: str | None = None


@dataclass(slots=True)
class Assignment:
    """What the leader gives one member: partition numbers by topic."""

    partitions: Mapping[str, Sequence[int]]
    user_data: bytes | None = None


class ConsumerGroupMetadata(NamedTuple):
    """Who a consumer is in its group right now: for `Assignor.on_assignment`, and to fence transactional commits."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None


class Assignor(Protocol):
    """One way of dealing a group's partitions out to its members.

    Subclass it and write `name` and `assign`; the other methods have Kafka's defaults. The object lives as long as its
    consumer, so it may remember its last assignment. All members of a group must know an assignor by the same `name`.
    """

    name: str
    version: int = 0
    supported_protocols: Sequence[RebalanceProtocol] = (RebalanceProtocol.EAGER,)

    def subscription_user_data(self, topics: Sequence[str]) -> bytes | None:
        """Bytes for the leader, sent with this member's subscription at every join."""
        return None

    def assign(self, metadata: ClusterMetadata, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        """Runs on the leader: an assignment for every member id in `subscriptions`."""
        ...

    def on_assignment(self, assignment: Assignment, metadata: ConsumerGroupMetadata) -> None:
        """Called on every member when it has received its assignment."""
        return
