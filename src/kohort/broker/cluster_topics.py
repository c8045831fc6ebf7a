"""The topics of a cluster, as every broker of it knows them: the meta log is the document, a change is one of its sets.

A request that wants to change something is planned first: its handler runs, what it would change is gathered and taken
back. The change is real, here and elsewhere, when it comes in through `applied`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from types import GeneratorType
from typing import TYPE_CHECKING, Any

from kohort.broker.config import BrokerConfig
from kohort.broker.topic_configs import broker_log_config
from kohort.broker.topics import MIN_ISR, Catalog, Partition, Topic, finish
from kohort.cluster.placing import lead_new
from kohort.cluster.state import Change, ClusterState, TopicState
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.uuids import from_base64, to_base64
from kohort.storage.config import LogConfig
from kohort.storage.journal_store import JournalStore

if TYPE_CHECKING:
    from kohort.storage.store import Store

logger = logging.getLogger("kohort.cluster")


class ClusterCatalog(Catalog):
    def __init__(
        self, config: BrokerConfig, store: Store, random_bytes: Callable[[int], bytes], state: ClusterState
    ) -> None:
        super().__init__(config, store, random_bytes)
        self.state = state
        self._node_id: int = config["node.id"]
        self._plan: list[Change] | None = None
        self._planned: list[Topic] = []
        self._doomed: list[Topic] = []
        self._producer_ids: deque[tuple[int, int]] = deque()  # blocks of this broker: next and end
        self.documents_changed: Callable[[], None] = lambda: None
        assert isinstance(store, JournalStore)
        store.documents, store.keep = state.documents, self.keep

    # Planning.

    def plan(self, run: Callable[[], Any]) -> tuple[Any, list[Change]]:
        """What `run` returns, and what it wants changed; nothing is changed yet."""
        self._plan, self._planned, self._doomed = [], [], []
        try:
            done = run()
            if type(done) is GeneratorType:
                done = finish(done)
            return done, self._plan
        finally:
            if any(change["kind"] == "document" for change in self._plan):
                self.documents_changed()
            self._plan = None
            for topic in self._planned:
                if topic not in self._doomed:
                    self._forget(topic)
            for topic in self._doomed:
                if topic not in self._planned:
                    self._add(topic)

    @property
    def is_planning(self) -> bool:
        return self._plan is not None

    def _want(self, *changes: Change) -> None:
        if self._plan is None:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "a change of the cluster outside of a plan")
        self._plan += changes

    def creating(
        self, name: str, partitions: int, overrides: Mapping[str, str] | None = None
    ) -> Generator[None, None, Topic]:
        yield from ()
        self.check_new(name)
        topic = Topic(name, self.new_id(), dict(overrides or {}), 0, partitions)
        topic.config = LogConfig.parse(topic.overrides, self.base_config)
        key = to_base64(topic.topic_id)
        self._want(
            {"kind": "topic", "topic": key, "name": name, "partitions": partitions, "configs": topic.overrides},
            *lead_new(TopicState(name, key, {}), range(partitions), self._leaders()),
        )
        self._add(topic)
        self._planned.append(topic)
        return topic

    def _leaders(self) -> Sequence[int]:
        return self.state.eligible(self.state.live)

    def want_leader(self, topic: Topic, partition: int, node_id: int, *, once: bool = False) -> None:
        key = to_base64(topic.topic_id)
        self._want({"kind": "want", "topic": key, "partition": partition, "leader": node_id, "once": once})

    def keep(self, name: str, data: bytes) -> None:
        """A document of the broker: users, access control entries. Whoever wrote it reads it again."""
        self._want({"kind": "document", "name": name, "text": data.decode()})

    def deleting(self, topic: Topic) -> Generator[None, None, None]:
        yield from ()
        self._want({"kind": "delete_topic", "topic": to_base64(topic.topic_id)})
        self._forget(topic)
        self._doomed.append(topic)

    def growing(self, topic: Topic, count: int) -> Generator[None, None, None]:
        yield from ()
        key = to_base64(topic.topic_id)
        before = len(topic.partitions)
        wider = TopicState(topic.name, key, {}, grown_from=[before])
        self._want(
            {"kind": "grow", "topic": key, "partitions": count},
            *lead_new(wider, range(before, count), self._leaders()),
        )

    def set_overrides(self, topic: Topic, overrides: Mapping[str, str]) -> None:
        LogConfig.parse(overrides, self.base_config)
        self._want({"kind": "topic_configs", "topic": to_base64(topic.topic_id), "configs": dict(overrides)})

    def set_broker_overrides(
        self, *, cluster: Mapping[str, Any] | None = None, dynamic: Mapping[str, Any] | None = None
    ) -> None:
        if cluster is not None:
            self._want({"kind": "broker_configs", "node": None, "configs": self.config.texts(cluster)})
        if dynamic is not None:
            self._want({"kind": "broker_configs", "node": self._node_id, "configs": self.config.texts(dynamic)})

    def set_group_overrides(self, group_id: str, overrides: Mapping[str, str]) -> None:
        self._want({"kind": "group_configs", "group": group_id, "configs": dict(overrides)})

    def save(self) -> None:
        """The meta log is what is saved."""

    # Producer ids.

    def new_producer_id(self) -> int:
        """Blocks are taken ahead of need, each by a change set of its own, so no two brokers give out one id."""
        while self._producer_ids:
            number, end = self._producer_ids[0]
            if number < end:
                self._producer_ids[0] = (number + 1, end)
                return number
            self._producer_ids.popleft()
        raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "producer ids are on their way from the store")

    @property
    def producer_ids_left(self) -> int:
        return sum(end - number for number, end in self._producer_ids)

    def use_producer_ids(self, start: int, count: int) -> None:
        self._producer_ids.append((start, start + count))

    def forget_producer_ids(self) -> None:
        self._producer_ids.clear()

    # What the meta log says.

    def load(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self._use_configs()
        for topic in self.state.topics.values():
            self._appear(topic)

    def _use_configs(self) -> None:
        cluster = self.state.cluster_configs
        if cluster is None:
            cluster = {MIN_ISR: self.config.key(MIN_ISR).format(self.config[MIN_ISR]) or "1"}
        own = self.state.broker_configs.get(self._node_id, {})
        self.config.set_dynamic(self.config.parse(cluster), self.config.parse(own))
        self.group_overrides = self.state.group_configs
        self.base_config = broker_log_config(self.config)

    def _appear(self, state: TopicState) -> Topic:
        topic = Topic(state.name, from_base64(state.topic_id), dict(state.configs), 0, len(state.partitions))
        topic.grown_from = list(state.grown_from)
        topic.config = LogConfig.parse(topic.overrides, self.base_config)
        self._open_partitions(topic, len(state.partitions))
        self._add(topic)
        return topic

    def _open_partitions(self, topic: Topic, count: int) -> None:
        for index in range(len(topic.partitions), count):
            log = self.store.create(topic.name, index, topic.topic_id, topic.config, now_ms=self.now_ms)
            partition = Partition(topic, index, log, -1)
            partition.leads, partition.leader_id = False, -1
            topic.partitions.append(partition)
        topic.count = count

    def applied(self, change: Change) -> Topic | None:
        """A change that is in the log, and in `state`; returns the topic that came, grew or went."""
        kind = change["kind"]
        if kind == "topic":
            topic = self._appear(self.state.topics[change["topic"]]) if change["topic"] in self.state.topics else None
            if topic is not None:
                logger.info("topic %s has come, with %d partitions", topic.name, topic.count)
            return topic
        if kind == "document":
            self.documents_changed()
            return None
        if kind in ("broker_configs", "group_configs"):
            self._use_configs()
            for topic in self.by_name.values():
                self._configure(topic, LogConfig.parse(topic.overrides, self.base_config))
            return None
        topic = self.by_id.get(from_base64(change["topic"])) if kind in _OF_TOPICS else None
        if topic is None:
            return None
        if kind == "delete_topic":
            self._vanish(topic)
        elif kind == "grow":
            topic.grown_from = [*topic.grown_from, topic.count]
            self._open_partitions(topic, change["partitions"])
        elif kind == "homed" and topic.count == change["partitions"]:
            topic.grown_from = []
        elif kind == "topic_configs":
            topic.overrides = dict(change["configs"])
            self._configure(topic, LogConfig.parse(topic.overrides, self.base_config))
        return topic

    def _vanish(self, topic: Topic) -> None:
        self._forget(topic)
        for partition in topic.partitions:
            partition.leads = False
            self._delete_log(partition)
        logger.info("topic %s is deleted", topic.name)


_OF_TOPICS = frozenset({"delete_topic", "grow", "homed", "topic_configs"})
