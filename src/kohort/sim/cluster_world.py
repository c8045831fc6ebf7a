"""A world with several brokers: any of them leads, coordinates, dies, stands still, is cut off, comes or goes."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, cast

from kohort.client.types import TopicPartition
from kohort.cluster.memory_engine import MemoryStore
from kohort.coordinator.group import Group
from kohort.coordinator.records import OFFSETS_TOPIC, partition_for
from kohort.coordinator.transactions.records import TRANSACTIONS_TOPIC
from kohort.protocol.uuids import to_base64
from kohort.sim.broker import SimBroker
from kohort.sim.cluster_nemesis import ClusterNemesis
from kohort.sim.cluster_node import SimNode
from kohort.sim.journal import Journal
from kohort.sim.nemesis import Nemesis
from kohort.sim.options import OFFSETS_PARTITIONS
from kohort.sim.routes import OneRoute, Routes
from kohort.sim.trace import CheckFailed
from kohort.sim.world import TRANSACTIONS_PARTITIONS, World
from kohort.storage.cold_segment import NotInMemory
from kohort.storage.log import Buffer, Log
from kohort.storage.store import Store

START_LIMIT_MS = 60_000
LATE_EVERY_MS = 300


class ClusterWorld(World):
    nodes: list[SimNode]

    def _make_brokers(self) -> None:
        self.objects = MemoryStore()
        self.is_calm = True
        self._chance: Random = self.random_for("store")
        self.nodes = []
        for _ in range(self.options.brokers):
            self._add_node()
        self.broker = cast(SimBroker, AllBrokers(self))
        self.newest = NewestLogs(self)
        self.journal = Journal(cast(Store, self.newest), self.trace)
        self.scheduler.after(LATE_EVERY_MS, self._arrive_late)

    def _add_node(self) -> SimNode:
        node = SimNode(self, self._broker_config(), len(self.nodes) + 1)
        self.nodes.append(node)
        self.network.acceptors[node.name] = node
        return node

    def _broker_config(self) -> dict[str, Any]:
        session_ms = self.options.broker_session_timeout_ms
        config = super()._broker_config() | {
            "broker.session.timeout.ms": session_ms,
            "broker.heartbeat.interval.ms": session_ms // 5,
            "kohort.cluster.balance.delay.ms": session_ms // 2,
            "kohort.cluster.journal.objects": self.options.journal_objects,
        }
        del config["log.flush.interval.messages"]
        return config

    def routes_for(self, name: str, random: Random) -> OneRoute:
        return Routes(self, name, random, self.nodes)

    def _make_nemesis(self) -> Nemesis:
        self.is_calm = False
        return ClusterNemesis(self)

    def join(self) -> None:
        """Another broker."""
        if len(self.nodes) < self.options.brokers + 2:
            self._add_node().start()

    def _create_topic(self, name: str, partitions: int, among: dict[str, int] | None = None) -> None:
        membership = self.nodes[0].membership
        assert membership is not None
        membership.ensure_topic(name, partitions, self.scheduler.now_ms)
        (self.topics if among is None else among)[name] = partitions
        until_ms = self.scheduler.now_ms + START_LIMIT_MS
        while not all(self.leaders(TopicPartition(name, index)) for index in range(partitions)):
            assert self.scheduler.now_ms < until_ms, f"nobody leads {name}"
            self.scheduler.run(self.scheduler.now_ms + 100)

    def partitions_there(self) -> list[TopicPartition]:
        return self.partitions()

    def partitions_led(self) -> list[TopicPartition]:
        """Each is to have a leader."""
        of_groups = [TopicPartition(OFFSETS_TOPIC, index) for index in range(OFFSETS_PARTITIONS)]
        of_transactions = [TopicPartition(TRANSACTIONS_TOPIC, index) for index in range(TRANSACTIONS_PARTITIONS)]
        theirs = [*self.transactional_partitions(), *of_transactions] if self.transactors else []
        return [*self.partitions(), *of_groups, *theirs]

    def leaders(self, tp: TopicPartition) -> list[SimNode]:
        return [node for node in self.nodes if node.led(tp.topic, tp.partition) is not None]

    def leader(self, tp: TopicPartition) -> SimNode:
        """Who serves it, now that all is quiet."""
        leaders = self.leaders(tp)
        if len(leaders) != 1:
            raise CheckFailed("Leaders", f"{tp} has {len(leaders)} leaders: {', '.join(n.name for n in leaders)}")
        return leaders[0]

    def group_now(self, group_id: str) -> Group | None:
        """As its newest coordinator has it."""
        index = partition_for(group_id, OFFSETS_PARTITIONS)
        found = [(node.led(OFFSETS_TOPIC, index), node.core) for node in self.nodes]
        led = [(partition.leader_epoch, core) for partition, core in found if partition is not None]
        core = max(led, key=lambda one: one[0])[1] if led else None
        return None if core is None else core.coordinator.group(group_id)

    def coordinator_of(self, group_id: str) -> SimNode:
        return self.leader(TopicPartition(OFFSETS_TOPIC, partition_for(group_id, OFFSETS_PARTITIONS)))

    def move_a_partition(self, random: Random) -> None:
        """As an operator wishes."""
        node = random.choice(self.nodes)
        membership = node.membership
        if membership is None or node.core is None:
            return
        topic = random.choice(sorted(node.core.topics.by_name))
        key = to_base64(node.core.topics.by_name[topic].topic_id)
        partition = random.randrange(node.core.topics.by_name[topic].count)
        node.wish({"kind": "want", "topic": key, "partition": partition, "leader": random.randint(1, len(self.nodes))})

    def _arrive_late(self) -> None:
        if self.objects.late:
            self.objects.arrive(self._chance.randrange(len(self.objects.late)))
        self.scheduler.after(self._chance.randint(1, 2 * LATE_EVERY_MS), self._arrive_late)

    def _heal(self) -> None:
        self.is_calm = True
        for node in self.nodes:
            node.cut_off(False)
        super()._heal()

    def _occupied(self) -> bool:
        groups = (
            group for node in self.nodes if node.core is not None for group in node.core.coordinator.groups.values()
        )
        return any(not group.is_empty or getattr(group, "pending_members", ()) for group in groups)


class AllBrokers:
    """The brokers as one, for checkers: whatever is asked of it, the leader of that partition is asked."""

    has_failed_logs = False
    stalled_until_ms = 0

    def __init__(self, world: ClusterWorld) -> None:
        self._world = world
        self.core = self
        self.coordinator = self
        self.store = self
        self.logs = LedLogs(world)
        self.damaged: dict[int, tuple[int, int]] = {}

    @property
    def topic_ids(self) -> dict[str, bytes]:
        return {name: key for key, name in self.names_ever.items()}

    @property
    def names_ever(self) -> dict[bytes, str]:
        cores = [node.core for node in self._world.nodes if node.core is not None]
        return {key: topic.name for core in cores for key, topic in core.topics.by_id.items()}

    def start(self) -> None:
        for node in self._world.nodes:
            node.start()

    def crash(self, *, power_loss: bool) -> None:
        for node in self._world.nodes:
            node.kill()

    def disk_recovers(self) -> None:
        """There is none."""

    def mend(self) -> None:
        """Nothing is damaged."""

    def group(self, group_id: str) -> Group | None:
        core = self._world.coordinator_of(group_id).core
        assert core is not None
        return core.coordinator.group(group_id)


class LedLogs:
    """The logs of all partitions, each as its leader has it."""

    def __init__(self, world: ClusterWorld) -> None:
        self._world = world

    def __getitem__(self, place: tuple[str, int]) -> Log:
        partition = self._world.leader(TopicPartition(*place)).led(*place)
        assert partition is not None
        return partition.log

    def __contains__(self, place: tuple[str, int]) -> bool:
        return place[0] in self._world.topics

    def items(self) -> Iterator[tuple[TopicPartition, Log]]:
        offsets = [TopicPartition(OFFSETS_TOPIC, index) for index in range(OFFSETS_PARTITIONS)]
        for tp in self._world.partitions() + offsets:
            yield tp, self[tp]


class NewestLogs:
    """The partitions of the groups, each as the newest of its leaders has it; where none leads, as the last one had it:
    whatever was acknowledged is there, whoever has acknowledged it."""

    def __init__(self, world: ClusterWorld) -> None:
        self._world = world
        self._known: dict[tuple[str, int], tuple[int, ReadCalmly]] = {}

    def get(self, topic: str, index: int) -> Log | None:
        for node in self._world.nodes:
            partition = node.led(topic, index)
            if partition is not None and partition.leader_epoch > self.epoch(topic, index):
                self._known[topic, index] = (partition.leader_epoch, ReadCalmly(partition.log, node))
        if index >= OFFSETS_PARTITIONS:
            return None
        known = self._known.get((topic, index))
        return cast(Log, known[1] if known is not None else NOT_LED_YET)

    def epoch(self, topic: str, index: int) -> int:
        return self._known[topic, index][0] if (topic, index) in self._known else -1


class NothingYet:
    high_watermark = 0


NOT_LED_YET = NothingYet()


class ReadCalmly:
    """A log for whoever only looks: no fault comes between, and nothing of the run depends on it."""

    def __init__(self, log: Log, node: SimNode) -> None:
        self._log = log
        self._engine = node.engine

    @property
    def high_watermark(self) -> int:
        return self._log.high_watermark

    def read(self, start: int, max_bytes: int, *, max_offset: int) -> list[Buffer]:
        assert self._engine is not None
        before = self._engine.chance, self._engine.cut_off
        self._engine.chance, self._engine.cut_off = None, False
        try:
            while True:
                try:
                    return list(self._log.read(start, max_bytes, max_offset=max_offset))
                except NotInMemory as missing:
                    missing.load()
        finally:
            self._engine.chance, self._engine.cut_off = before
