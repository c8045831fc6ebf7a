"""What Kafka kept in ZooKeeper for a group, by path, and the share of each consumer that follows from it."""

from __future__ import annotations

from kohort.assignors import ClusterMetadata, RangeAssignor, Subscription
from kohort.schemes.scheme import GROUP, TOPIC

BROKERS = 3
BROKER_IDS = "/brokers/ids"
TOPIC_PATH = f"/brokers/topics/{TOPIC}"
IDS = f"/consumers/{GROUP}/ids"  # of the one group, where there is one
OWNERS = f"/consumers/{GROUP}/owners/{TOPIC}"
OFFSETS = f"/consumers/{GROUP}/offsets/{TOPIC}"
LAGGING = 1
"""The ZooKeeper server that can fall behind; the first leads."""


def ids_of(group: str) -> str:
    return f"/consumers/{group}/ids"


def coordinator_of(subset: int) -> str:
    """Who coordinates the groups of a subset."""
    return f"/consumers/coordinators/{subset}"


def epoch_of(subset: int) -> str:
    return f"/consumers/coordinator_epochs/{subset}"


def range_shares(members: list[str], partitions: int) -> dict[str, tuple[int, ...]]:
    shares = RangeAssignor().assign(ClusterMetadata({TOPIC: partitions}), {m: Subscription([TOPIC]) for m in members})
    return {member: tuple(share.partitions.get(TOPIC, ())) for member, share in shares.items()}
