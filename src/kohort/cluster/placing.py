"""Who should lead what: rendezvous hashing, so that a broker that comes or goes moves its own share and nothing else.

Pure functions over the state; they return changes, or rows of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b

from kohort.cluster.state import NO_LEADER, Change, ClusterState, PartitionState, Status, TopicState

TOGETHER = {"__consumer_offsets": "groups", "__kohort_group_events": "groups"}
"""Topics whose partitions of one number belong to one broker: who coordinates a group can write its events."""
COORDINATED = frozenset({"__consumer_offsets", "__transaction_state"})
"""Topics in which a name belongs to the partition of its hash, so to another one when there are more of them."""


def is_gathered(topic: TopicState) -> bool:
    """Whether one broker leads all of it: what a name had before the topic grew is found by who leads both places."""
    return bool(topic.grown_from) and topic.name in COORDINATED


def score(key: str, partition: int, node_id: int) -> bytes:
    return blake2b(f"{key}/{partition}/{node_id}".encode(), digest_size=8).digest()


def owner(topic: TopicState, partition: int, live: Sequence[int]) -> int:
    """Who leads a partition by its name alone."""
    key = TOGETHER.get(topic.name, topic.topic_id)
    number = 0 if is_gathered(topic) else partition
    return max(live, key=lambda node_id: score(key, number, node_id), default=NO_LEADER)


def chosen(topic: TopicState, index: int, partition: PartitionState, live: Sequence[int]) -> int:
    """The same, but for an operator's wish."""
    is_free = partition.wanted in live and not is_gathered(topic)
    return partition.wanted if is_free else owner(topic, index, live)


def lead(topic: TopicState, index: int, leader: int, until: int | None = None) -> Change:
    change: Change = {
        "kind": "lead",
        "topic": topic.topic_id,
        "partition": index,
        "leader": leader,
        "epoch": topic.partitions[index].epoch + 1,
    }
    return change if until is None else change | {"until": until}


def lead_new(topic: TopicState, indexes: Iterable[int], live: Sequence[int]) -> list[Change]:
    """Leaders of partitions that are there for the first time."""
    return [
        {"kind": "lead", "topic": topic.topic_id, "partition": i, "leader": owner(topic, i, live), "epoch": 0}
        for i in indexes
    ]


def is_orphan(state: ClusterState, partition: PartitionState) -> bool:
    """Nobody leads it, or a life of a broker that is over."""
    if partition.leader == NO_LEADER:
        return True
    broker = state.brokers[partition.leader]
    return broker.status is not Status.LIVE or not partition.led_by(broker.journal)


def take_over(state: ClusterState, journals: set[str], live: Sequence[int]) -> list[Change]:
    """Other leaders for everything that these lives of brokers lead, and for what nobody leads."""
    changes, live = [], state.eligible(live)
    for topic, index, partition in state.partitions():
        if is_orphan(state, partition) or partition.sources[-1].journal in journals:
            leader = chosen(topic, index, partition, live)
            if leader != partition.leader or leader != NO_LEADER:
                changes.append(lead(topic, index, leader))
    return changes


def moves(state: ClusterState, journal: str, node_id: int, limit: int) -> list[tuple[TopicState, int, int]]:
    """What a broker leads and should not: (topic, partition, to whom)."""
    live = state.eligible(state.live)
    found = []
    for topic, index, partition in state.led_by(journal):
        to = chosen(topic, index, partition, live)
        if to not in (node_id, NO_LEADER):
            found.append((topic, index, to))
            if len(found) >= limit:
                break
    return found
