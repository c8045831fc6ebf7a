"""The cluster as its meta log tells it: brokers and incarnations, topics, configs, who leads what in which epoch.

`apply` is the only writer, on every broker, in the order of the log. Changes are plain values (changes.py); whoever
proposes one has checked it against the state that it follows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from kohort.cluster import names

FORMAT = 1
NO_LEADER = -1
NEWS_KEPT = 50
PRODUCER_ID_BLOCK = 1000
DRAINED = "kohort.cluster.drained.brokers"
"""The config that lists the brokers which are to lead nothing."""

Change = dict[str, Any]


class Status(Enum):
    LIVE = "live"
    FENCED = "fenced"
    """Taken for dead: what it led is led by others."""
    STOPPED = "stopped"
    """Has given up what it led, and gone."""


STATUSES: dict[Status, frozenset[Status]] = {
    Status.LIVE: frozenset({Status.LIVE, Status.FENCED, Status.STOPPED}),
    Status.FENCED: frozenset({Status.LIVE}),
    Status.STOPPED: frozenset({Status.LIVE}),
}
"""A broker that is live again is another incarnation."""


class Source(NamedTuple):
    """Where the records of one leader's epoch were written."""

    epoch: int
    journal: str
    until: int | None = None
    """The slot after which it wrote no more; None where only a seal tells."""


@dataclass(slots=True)
class BrokerState:
    node_id: int
    incarnation: int
    host: str
    port: int
    rack: str | None = None
    status: Status = Status.LIVE

    @property
    def journal(self) -> str:
        return names.journal_id(self.node_id, self.incarnation)

    def become(self, status: Status) -> None:
        assert status in STATUSES[self.status], f"broker {self.node_id}: {self.status} -> {status}"
        self.status = status


@dataclass(slots=True)
class PartitionState:
    leader: int = NO_LEADER
    epoch: int = -1
    sources: list[Source] = field(default_factory=list)
    """Of the epochs that no manifest covers, and the current one; oldest first."""
    wanted: int = NO_LEADER
    """Whom an operator wants to lead it, as long as that broker lives."""
    once: bool = False
    """The wish is over when it has come true."""

    def led_by(self, journal: str) -> bool:
        return self.leader != NO_LEADER and self.sources[-1].journal == journal


@dataclass(slots=True)
class TopicState:
    name: str
    topic_id: str
    configs: dict[str, str]
    partitions: list[PartitionState] = field(default_factory=list)
    grown_from: list[int] = field(default_factory=list)
    """How many partitions it had before, as long as what is in them may belong to others."""


class News(NamedTuple):
    """What became of a broker, and why."""

    version: int
    at_ms: int
    node_id: int
    what: str
    reason: str


class ClusterState:
    """After change set `version`; -1 is before the first."""

    def __init__(self) -> None:
        self.version = -1
        self.cluster_id = ""
        self.brokers: dict[int, BrokerState] = {}
        self.topics: dict[str, TopicState] = {}
        """By id."""
        self.names: dict[str, str] = {}
        self.broker_configs: dict[int, dict[str, str]] = {}
        self.cluster_configs: dict[str, str] | None = None
        self.group_configs: dict[str, dict[str, str]] = {}
        self.documents: dict[str, str] = {}
        """Users of SCRAM and access control entries, as brokers write them."""
        self.next_producer_id = 0
        self.news: deque[News] = deque(maxlen=NEWS_KEPT)

    # ---- to look at

    @property
    def live(self) -> list[int]:
        return sorted(node for node, broker in self.brokers.items() if broker.status is Status.LIVE)

    @property
    def drained(self) -> frozenset[int]:
        """Brokers that are to lead nothing."""
        named = (self.cluster_configs or {}).get(DRAINED, "").split(",")
        return frozenset(int(node) for node in named if node.strip().isdigit())

    def eligible(self, live: Sequence[int]) -> Sequence[int]:
        """Those of them that may be given partitions: all, where all are drained."""
        drained = self.drained
        return ([node_id for node_id in live if node_id not in drained] or live) if drained else live

    def partitions(self) -> Iterator[tuple[TopicState, int, PartitionState]]:
        for topic in self.topics.values():
            for index, partition in enumerate(topic.partitions):
                yield topic, index, partition

    def led_by(self, journal: str) -> Iterator[tuple[TopicState, int, PartitionState]]:
        return (row for row in self.partitions() if row[2].led_by(journal))

    def is_current(self, node_id: int, incarnation: int) -> bool:
        """Whether this life of a broker may lead."""
        broker = self.brokers.get(node_id)
        return broker is not None and broker.incarnation == incarnation and broker.status is Status.LIVE

    # ---- the only writer

    def apply(self, version: int, changes: list[Change]) -> None:
        assert version == self.version + 1, f"change set {version} does not follow {self.version}"
        self.version = version
        for change in changes:
            _APPLY[change["kind"]](self, change)

    def _format(self, change: Change) -> None:
        self.cluster_id = change["cluster_id"]

    def _register(self, change: Change) -> None:
        node_id, incarnation = change["node"], change["incarnation"]
        known = self.brokers.get(node_id)
        if known is not None:
            known.become(Status.LIVE)
        self.brokers[node_id] = BrokerState(
            node_id, incarnation, change["host"], change["port"], change.get("rack"), Status.LIVE
        )
        self._tell(change, "registered")

    def _fence(self, change: Change) -> None:
        self.brokers[change["node"]].become(Status.FENCED)
        self._tell(change, "fenced")

    def _stopped(self, change: Change) -> None:
        self.brokers[change["node"]].become(Status.STOPPED)
        self._tell(change, "stopped")

    def _tell(self, change: Change, what: str) -> None:
        self.news.append(News(self.version, change.get("at_ms", 0), change["node"], what, change.get("reason", "")))

    def _lead(self, change: Change) -> None:
        partition = self.topics[change["topic"]].partitions[change["partition"]]
        if partition.sources and change.get("until") is not None:
            partition.sources[-1] = partition.sources[-1]._replace(until=change["until"])
        partition.leader, partition.epoch = change["leader"], change["epoch"]
        if partition.leader != NO_LEADER:
            partition.sources.append(Source(partition.epoch, self.brokers[partition.leader].journal))
        if partition.once and partition.wanted == partition.leader:
            partition.wanted, partition.once = NO_LEADER, False

    def _want(self, change: Change) -> None:
        partition = self.topics[change["topic"]].partitions[change["partition"]]
        partition.wanted, partition.once = change["leader"], change.get("once", False)

    def _settled(self, change: Change) -> None:
        topic = self.topics.get(change["topic"])
        if topic is not None:
            partition = topic.partitions[change["partition"]]
            partition.sources = [source for source in partition.sources if source.epoch >= change["epoch"]]

    def _topic(self, change: Change) -> None:
        topic = TopicState(change["name"], change["topic"], dict(change["configs"]))
        topic.partitions = [PartitionState() for _ in range(change["partitions"])]
        self.topics[topic.topic_id] = topic
        self.names[topic.name] = topic.topic_id

    def _delete_topic(self, change: Change) -> None:
        topic = self.topics.pop(change["topic"])
        del self.names[topic.name]

    def _grow(self, change: Change) -> None:
        topic = self.topics[change["topic"]]
        topic.grown_from.append(len(topic.partitions))
        topic.partitions += [PartitionState() for _ in range(change["partitions"] - len(topic.partitions))]

    def _homed(self, change: Change) -> None:
        topic = self.topics[change["topic"]]
        if len(topic.partitions) == change["partitions"]:  # else it has grown once more
            topic.grown_from.clear()

    def _topic_configs(self, change: Change) -> None:
        self.topics[change["topic"]].configs = dict(change["configs"])

    def _broker_configs(self, change: Change) -> None:
        if change["node"] is None:
            self.cluster_configs = dict(change["configs"])
        else:
            self.broker_configs[change["node"]] = dict(change["configs"])

    def _group_configs(self, change: Change) -> None:
        self.group_configs.pop(change["group"], None)
        if change["configs"]:
            self.group_configs[change["group"]] = dict(change["configs"])

    def _document(self, change: Change) -> None:
        self.documents[change["name"]] = change["text"]

    def _producer_ids(self, change: Change) -> None:
        self.next_producer_id = change["start"] + change["count"]


_APPLY: dict[str, Callable[[ClusterState, Change], None]] = {
    "format": ClusterState._format,
    "register": ClusterState._register,
    "fence": ClusterState._fence,
    "stopped": ClusterState._stopped,
    "lead": ClusterState._lead,
    "want": ClusterState._want,
    "settled": ClusterState._settled,
    "topic": ClusterState._topic,
    "delete_topic": ClusterState._delete_topic,
    "grow": ClusterState._grow,
    "homed": ClusterState._homed,
    "topic_configs": ClusterState._topic_configs,
    "broker_configs": ClusterState._broker_configs,
    "group_configs": ClusterState._group_configs,
    "document": ClusterState._document,
    "producer_ids": ClusterState._producer_ids,
}
KINDS = frozenset(_APPLY)
