"""Racks of members and of partition replicas, and when they are worth matching (KIP-881)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from kohort.assignors.types import ClusterMetadata, Subscription

NO_RACKS: frozenset[str] = frozenset()


def member_racks(subscriptions: Mapping[str, Subscription]) -> dict[str, str]:
    """The members that say in which rack they are."""
    return {member: s.rack_id for member, s in subscriptions.items() if s.rack_id}


def partition_racks(metadata: ClusterMetadata, topic: str) -> list[frozenset[str]]:
    """The racks of the replicas of each partition of a topic, in partition order; empty where they are not known."""
    racks = [frozenset(rack for rack in known if rack is not None) for known in metadata.replica_racks.get(topic, ())]
    count = metadata.partition_counts[topic]
    return racks[:count] + [NO_RACKS] * (count - len(racks))


def racks_matter(of_members: Collection[str], of_partitions: Iterable[frozenset[str]]) -> bool:
    """False where every partition has a replica in every rack, or no member is in a rack with any replica."""
    distinct = set(of_partitions)
    everywhere = frozenset().union(*distinct)
    return not everywhere.isdisjoint(of_members) and distinct != {everywhere}
