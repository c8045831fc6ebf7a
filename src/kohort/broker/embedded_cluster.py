"""Several brokers inside this process over one store in memory, for tests: they can be killed, paused, cut off."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from kohort.broker.boot import RunningBroker, make_config, start_broker
from kohort.broker.cluster_boot import ClusterPlace
from kohort.broker.embedded import Broker
from kohort.broker.inside import GroupSnapshot, StoredRecord
from kohort.broker.proposals import Wish
from kohort.cluster.memory_engine import MemoryEngine, MemoryStore
from kohort.coordinator.records import OFFSETS_TOPIC, partition_for
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages import FindCoordinatorRequest
from kohort.protocol.uuids import to_base64

_T = TypeVar("_T")
_QUICK = {
    "broker.session.timeout.ms": 2000,
    "broker.heartbeat.interval.ms": 300,
    "kohort.cluster.balance.delay.ms": 300,
    "offsets.topic.num.partitions": 12,
}
_STEP_S = 0.15
_WAIT_S = 30.0
_LOOK_EVERY_S = 0.005


class ClusterBroker(Broker):
    """One broker of a Cluster; what can be asked of a Broker can be asked of it, about what it leads."""

    def __init__(
        self, node_id: int, store: MemoryStore, config: Mapping[str, Any], clock: str, port: int, host: str
    ) -> None:
        super().__init__(None, port, host, {**config, "node.id": node_id}, clock)
        self.node_id = node_id
        self._objects = store
        self._engine: MemoryEngine | None = None
        self._paused: threading.Event | None = None

    async def _start(self) -> RunningBroker:
        self._engine = self._objects.engine()
        return await start_broker(
            make_config(self.config), None, self.host, self.port, self._clock, self.faults.rules, None,
            self._request_log, ClusterPlace(self._engine),
        )  # fmt: skip

    @property
    def engine(self) -> MemoryEngine:
        assert self._engine is not None
        return self._engine

    def kill(self) -> None:
        """As kill -9: nobody is told, nothing is stored that was not."""
        self.resume()
        running, self._running = self._running, None
        if running is None:
            return
        self.engine.cut_off = True
        try:
            self._await(_fall(running))
        finally:
            self._end_thread()
            self.engine.close()

    def pause(self) -> None:
        """The process stands still, and knows nothing of it when it goes on."""
        if self._paused is None and self._running is not None:
            self._paused = threading.Event()
            assert self._loop is not None
            self._loop.call_soon_threadsafe(self._paused.wait)

    def resume(self) -> None:
        if self._paused is not None:
            self._paused.set()
            self._paused = None

    @property
    def is_paused(self) -> bool:
        return self._paused is not None

    def stop(self) -> None:
        self.resume()
        super().stop()


async def _fall(running: RunningBroker) -> None:
    running.server.fall()


class ClusterClock:
    """The time of all brokers of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def now_ms(self) -> int:
        return next(iter(self._cluster.brokers.values())).clock.now_ms()

    def advance(self, seconds: float) -> None:
        """Let time pass for all brokers, in steps short enough that those that live give their signs of life."""
        left = seconds
        while left > 0:
            step = min(left, _STEP_S)
            for broker in self._cluster.brokers.values():
                if broker.running and not broker.is_paused:
                    broker.clock.advance(step)
            left -= step


class Cluster:
    """Kafka brokers of one cluster, for tests of what happens when coordinators and leaders move.

        with kohort.Cluster(3) as cluster:
            consumer = my_application.consumer(cluster.bootstrap_servers, group="orders")
            cluster.kill(cluster.coordinator_of("orders"))

    They share a store in memory, and all that was acknowledged is in it. `kill` is kill -9, `stop` hands over first,
    `pause` makes a zombie of a broker, `partition` cuts it off. `config` takes Kafka's broker configs by name; brokers
    are taken for dead after two seconds here, and partitions move back soon. Where `port` is not 0 the first broker
    listens there, and each other one on the port after the one before.
    """

    def __init__(
        self,
        brokers: int = 3,
        config: Mapping[str, Any] | None = None,
        clock: str = "running",
        port: int = 0,
        host: str = "127.0.0.1",
    ) -> None:
        if brokers < 1:
            raise ValueError("a cluster has at least one broker")
        self._config = _QUICK | dict(config or {})
        self._clock_kind = clock
        self._port, self._host = port, host
        self.store = MemoryStore()
        self.brokers: dict[int, ClusterBroker] = {}
        """By node id, those that were killed or stopped included."""
        self.clock = ClusterClock(self)
        for node_id in range(1, brokers + 1):
            self.brokers[node_id] = self._make(node_id)

    # ---- brokers

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(broker.bootstrap_servers for broker in self.brokers.values() if broker.running)

    def start(self, node_id: int | None = None) -> Cluster:
        """All brokers, or one that was killed or stopped, on the port it had."""
        for broker in self.brokers.values() if node_id is None else [self._broker(node_id)]:
            if not broker.running:
                broker.start()
        return self

    def add(self) -> int:
        """Another broker; partitions move to it one after the other."""
        node_id = max(self.brokers) + 1
        made = self._make(node_id)
        made.start()
        self.brokers[node_id] = made
        return node_id

    def _make(self, node_id: int) -> ClusterBroker:
        port = self._port + node_id - 1 if self._port else 0
        return ClusterBroker(node_id, self.store, self._config, self._clock_kind, port, self._host)

    def stop(self, node_id: int) -> None:
        """Cleanly: what it leads is handed over, groups keep their members and their generation."""
        self._broker(node_id).stop()

    def kill(self, node_id: int) -> None:
        """As kill -9; the others notice after broker.session.timeout.ms."""
        self._broker(node_id).kill()

    def pause(self, node_id: int) -> None:
        """It stands still, with all its connections, until `resume`; by then it may have lost its place."""
        self._broker(node_id).pause()

    def resume(self, node_id: int) -> None:
        self._broker(node_id).resume()

    def partition(self, node_id: int, store: bool = True, clients: bool = False) -> None:
        """Cut a broker off from the store, from its clients, or from both; `heal` ends it."""
        broker = self._broker(node_id)
        broker.engine.cut_off = store
        broker._call(lambda running: running.server.shut(clients))

    def heal(self, node_id: int) -> None:
        self.partition(node_id, store=False, clients=False)

    def _broker(self, node_id: int) -> ClusterBroker:
        if node_id not in self.brokers:
            raise ValueError(f"there is no broker {node_id}: {', '.join(map(str, self.brokers))}")
        return self.brokers[node_id]

    # ---- who leads what

    def coordinator_of(self, group: str) -> int:
        """The node id of the broker that coordinates a group now; waits until there is one that serves it."""
        return self._until(partial(self._coordinator_of, group), f"nobody coordinates group {group}")

    def leader_of(self, topic: str, partition: int) -> int:
        """The node id of the broker that leads a partition now; waits until there is one that serves it."""
        return self._until(partial(self._leader_of, topic, partition), f"nobody leads {topic}-{partition}")

    def _coordinator_of(self, group: str) -> int | None:
        for broker in self._awake():
            topic = broker._call(lambda running: running.core.topics.by_name.get(OFFSETS_TOPIC))
            if topic is not None:
                return self._leader_of(OFFSETS_TOPIC, partition_for(group, len(topic.partitions)))
            broker._call_async(partial(_find_coordinator, group))
        return None

    def _leader_of(self, topic: str, partition: int) -> int | None:
        for broker in self._awake():
            if broker._call(partial(_serves, topic, partition)):
                return broker.node_id
        return None

    def move(self, topic: str, partition: int, to: int) -> None:
        """Have another broker lead a partition, cleanly; returns when it does."""
        self._broker(to)
        self._any()._call(partial(_want, topic, partition, to))
        self._until(
            lambda: self._leader_of(topic, partition) == to or None, f"{topic}-{partition} did not move to {to}"
        )

    def _awake(self) -> list[ClusterBroker]:
        return [broker for broker in self.brokers.values() if broker.running and not broker.is_paused]

    def _any(self) -> ClusterBroker:
        if not (awake := self._awake()):
            raise RuntimeError("no broker of the cluster runs: start one, or resume it")
        return awake[0]

    def _until(self, look: Callable[[], _T | None], otherwise: str) -> _T:
        deadline = time.monotonic() + _WAIT_S
        while (found := look()) is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{otherwise}, after {_WAIT_S:.0f} s")
            time.sleep(_LOOK_EVERY_S)
        return found

    # ---- what is in it

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        """A topic, ready to use when this returns; KafkaError where that is refused."""
        self._any()._call_async(lambda running: running.inside.create_topic(name, partitions, dict(configs or {})))
        for index in range(partitions):
            self.leader_of(name, index)

    def partitions_of(self, topic: str) -> int:
        """How many partitions a topic has; 0 where it is not there."""
        found = self._any()._call(lambda running: running.core.topics.by_name.get(topic))
        return 0 if found is None else found.count

    def records(self, topic: str, partition: int) -> list[StoredRecord]:
        """What is stored in a partition."""
        return self._served(
            lambda: self.brokers[self.leader_of(topic, partition)].records(topic, partition),
            f"{topic}-{partition} does not stay where it is",
        )

    def _served(self, ask: Callable[[], _T], otherwise: str) -> _T:
        """Of whoever serves it; asked again where another one does since it was looked for."""

        def look() -> _T | None:
            try:
                return ask()
            except KafkaError as error:
                if error.code not in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR):
                    raise
                return None

        return self._until(look, otherwise)

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        """What a group has committed."""
        return self._served(
            lambda: self.brokers[self.coordinator_of(group)].committed(group), f"{group} does not stay where it is"
        )

    def group(self, group: str) -> GroupSnapshot:
        """A group as its coordinator has it."""
        return self._served(
            lambda: self.brokers[self.coordinator_of(group)].group(group), f"{group} does not stay where it is"
        )

    # ---- its end

    def close(self) -> None:
        """Stop all brokers, without handing anything over, and forget everything."""
        failed: list[BaseException] = []
        for broker in self.brokers.values():
            broker.kill()
            try:
                broker.faults.raise_errors()
            except Exception as error:
                failed.append(error)
        if failed:
            raise failed[0]

    def __enter__(self) -> Cluster:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *exc: object) -> None:
        self.close()

    async def __aenter__(self) -> Cluster:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(self, *exc: object) -> None:
        await asyncio.to_thread(self.close)


async def _find_coordinator(group: str, running: RunningBroker) -> None:
    """The topic of groups is made for whoever asks first."""
    await running.inside.ask(FindCoordinatorRequest(coordinator_keys=[group]))


def _serves(topic: str, partition: int, running: RunningBroker) -> bool:
    """Whether the broker leads the partition; one of a coordinator's once its groups are loaded."""
    core = running.core
    found = core.topics.partition(topic, partition)
    if found is None or not found.leads:
        return False
    return topic != OFFSETS_TOPIC or running.groups.coordinator.is_loaded(partition)


def _want(topic: str, partition: int, to: int, running: RunningBroker) -> None:
    found = running.core.topics.partition(topic, partition)
    if found is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic}-{partition}")
    change = {"kind": "want", "topic": to_base64(found.topic.topic_id), "partition": partition, "leader": to}
    membership = running.core.membership
    assert membership is not None
    membership.propose(Wish([change]), running.clock.now_ms())
