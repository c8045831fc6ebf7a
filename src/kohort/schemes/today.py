"""Scheme three, today's: the real broker core, coordinator and member code, in the simulator's world of three brokers.

Nothing is modelled here, and nothing goes wrong but what the script does; the members only count what they send, and an
observer tells the meter what they read.
"""

from __future__ import annotations

from typing import Any

from kohort.client.effects import Connect, Transmit
from kohort.client.events import Answered
from kohort.client.links import OF_THE_GROUP
from kohort.client.types import TopicPartition
from kohort.coordinator.events import GroupEvent, RebalanceCompleted
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from kohort.schemes.line import MAX_DELAY_MS
from kohort.schemes.meter import Meter, Tally, View
from kohort.schemes.registry import BROKERS
from kohort.schemes.scheme import GROUP, SESSION_TIMEOUT_MS, TOPIC
from kohort.sim.cluster_world import ClusterWorld
from kohort.sim.member import SimMember
from kohort.sim.options import Options
from kohort.sim.producer import SimProducer
from kohort.sim.trace import Checker

STORE_DELAY_MS = 2
OPTIONS = Options(
    groups=1,
    members=0,
    topics=0,
    producers=0,
    produce_every_ms=1_000,
    assignors=("range",),
    session_timeout_ms=SESSION_TIMEOUT_MS,
    max_poll_interval_ms=300_000,
    max_delay_ms=MAX_DELAY_MS,
    brokers=BROKERS,
    broker_session_timeout_ms=SESSION_TIMEOUT_MS,
    store_delay_ms=STORE_DELAY_MS,
)
COORDINATION = (FindCoordinatorRequest, JoinGroupRequest, SyncGroupRequest, LeaveGroupRequest, OffsetFetchRequest)
FETCH_WAIT_MS = 1_000
"""Shorter than the simulator's: behind a waiting fetch waits whatever else the member asks the same broker."""


class Observer(Checker):
    """Keeps no rule; hears what happens and keeps the meter."""

    world: TodayWorld

    def __init__(self) -> None:
        self._members_of: dict[int, frozenset[str]] = {}
        self._owners: dict[int, str] = {}

    def group_event(self, event: GroupEvent) -> None:
        if isinstance(event, RebalanceCompleted):
            self._members_of[event.generation] = self.world.coordinated_members()

    def assigned(self, member: SimMember, partitions: frozenset[TopicPartition], generation_id: int) -> None:
        mine = {tp.partition for tp in partitions}
        self._owners.update(dict.fromkeys(mine, member.name))
        self.world.meter.reads(member.name, mine, View(self._members_of[generation_id], generation_id))

    def given_up(self, member: SimMember, partitions: frozenset[TopicPartition], lost: bool) -> None:
        self.world.meter.stops(member.name)

    def answered(self, coordinator: Any, call: Any, message: Any, response: Any) -> None:
        tally = self.world.meter.tally
        if isinstance(message, HeartbeatRequest | ConsumerGroupHeartbeatRequest):
            tally.notifications += self._tells_of_a_change(response)
        elif isinstance(message, OffsetCommitRequest):
            for partition in (partition for topic in response.topics for partition in topic.partitions):
                tally.refused_commits += partition.error_code != ErrorCode.NONE
                owner = self._owners.get(partition.partition_index)
                tally.stale_commits += partition.error_code == ErrorCode.NONE and owner != call.client_id

    def _tells_of_a_change(self, response: Any) -> bool:
        return bool(response.error_code == ErrorCode.REBALANCE_IN_PROGRESS)


class TodayWorld(ClusterWorld):
    """The simulator's world, with one topic and members that come when they are called."""

    def __init__(self, seed: int, partitions: int, observer: Observer) -> None:
        super().__init__(seed, OPTIONS, [observer])
        self.meter = Meter(self.scheduler)
        observer.world = self
        self._create_topic(TOPIC, partitions)

    def coordinated_members(self) -> frozenset[str]:
        return frozenset(member.client_id for member in self.group().members.values())

    def group(self) -> Any:
        return self.group_now(GROUP)

    def grow(self, partitions: int) -> None:
        self.administrator.grow(TOPIC, partitions)
        self.topics[TOPIC] = partitions


def to_coordinator(name: str) -> str:
    """The consumer's end of its connection to the coordinator, which can be cut alone."""
    return f"{name} to its coordinator"


class TodayMember(SimMember):
    PROTOCOL = "classic"

    def __init__(self, world: TodayWorld, name: str) -> None:
        self._meter = world.meter
        super().__init__(world, name, GROUP, frozenset((TOPIC,)), "range", None, False, FETCH_WAIT_MS, self.PROTOCOL)

    def _host_of(self, effect: Connect) -> str:
        return to_coordinator(self.name) if effect.role in OF_THE_GROUP else self.name

    def _watch(self, seen: Transmit | Answered) -> None:
        """Heartbeats and commits come with time, not with a change, as do pings and commits of a ZooKeeper client."""
        self._meter.tally.requests += isinstance(seen, Transmit) and self._coordinates(seen.request)
        super()._watch(seen)

    def _coordinates(self, request: Any) -> bool:
        return isinstance(request, COORDINATION)

    def _dawdles(self) -> bool:
        """An application that loses no time in its callbacks: here the coordination is measured."""
        return False


class Today:
    MEMBER: type[TodayMember] = TodayMember
    OBSERVER: type[Observer] = Observer

    def __init__(self, seed: int, partitions: int) -> None:
        self._world = TodayWorld(seed, partitions, self.OBSERVER())
        self.scheduler = self._world.scheduler
        self.meter = self._world.meter
        self.meter.topic_has(partitions)
        self._members: dict[str, TodayMember] = {}
        self._producers: list[SimProducer] = []

    def join(self, name: str) -> None:
        self._members[name] = self.MEMBER(self._world, name)
        self.meter.joined(name)
        self._members[name].start()

    def leave(self, name: str) -> None:
        self.meter.gone(name)
        self._members.pop(name).leave()

    def crash(self, name: str) -> None:
        self.meter.gone(name)
        self._members.pop(name).crash()

    def grow(self, partitions: int) -> None:
        self._world.grow(partitions)
        self.meter.topic_has(partitions)

    def lose_broker(self) -> None:
        self._world.coordinator_of(GROUP).kill()

    def fall_behind(self, lag_ms: int) -> None:
        """There is no second copy of the group that anybody could read."""

    def cut(self, name: str) -> None:
        self._world.network.partition(to_coordinator(name))

    def heal(self, name: str) -> None:
        self._world.network.heal(to_coordinator(name))

    def records_flow(self, flowing: bool) -> None:
        for producer in self._producers:
            producer.stop()
        self._producers = []
        if flowing:
            count = max(1, len(self._members) // 2)
            self._producers = [SimProducer(self._world, f"p{index}") for index in range(count)]
        for producer in self._producers:
            producer.start()

    def tally(self) -> Tally:
        return self.meter.now()

    def longest_wait_us(self) -> int:
        return 0
