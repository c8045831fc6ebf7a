"""Watches one group as any tool would: its events from `__kohort_group_events`, its members and lag with Admin.

Two threads read; `Watch.view()` is a consistent copy for whoever draws, `wait_for` is how the script goes on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import kohort
from kohort.client.types import TopicPartition
from kohort.coordinator.event_json import from_json
from kohort.coordinator.events import (
    EVENTS_TOPIC,
    GenerationStarted,
    GroupEvent,
    MemberEvent,
    RebalanceCompleted,
    StateChanged,
)
from kohort.coordinator.records import OFFSETS_TOPIC, partition_for
from kohort.demo.words import Line, line_for, name_of
from kohort.insight.rebalances import Rebalance, from_events
from kohort.protocol.errors import KafkaError

LOOK_EVERY_S = 0.2


@dataclass(frozen=True, slots=True)
class MemberView:
    name: str
    member_id: str
    partitions: tuple[int, ...]
    lag: int
    leader: bool


@dataclass(slots=True)
class View:
    """One moment of a group. `seen` is when each state was last entered, on the clock of this process."""

    group_id: str
    state: str = "Empty"
    generation: int = 0
    protocol: str = ""
    members: list[MemberView] = field(default_factory=list)
    unowned: tuple[int, ...] = ()
    lag: int = 0
    end: int = 0
    committed: dict[int, int] = field(default_factory=dict)
    seen: dict[str, float] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)
    rebalances: list[Rebalance] = field(default_factory=list)

    @property
    def names(self) -> set[str]:
        return {member.name for member in self.members}

    def has_committed(self, ends: Mapping[int, int]) -> bool:
        return all(self.committed.get(partition, 0) >= end for partition, end in ends.items())


class WatchFailed(Exception):
    """Something that was waited for did not happen."""


class Watch:
    def __init__(self, servers: str, group_id: str, topic: str, partitions: int) -> None:
        self.group_id, self._servers = group_id, servers
        self._partitions = [TopicPartition(topic, number) for number in range(partitions)]
        self._admin = kohort.Admin(bootstrap_servers=servers, client_id="demo")
        self._changed = threading.Condition()
        self._events: list[GroupEvent] = []
        self._view = View(group_id)
        self._names: dict[str, str] = {}
        self._leader = ""
        self._closing = threading.Event()
        self._failure: BaseException | None = None
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), name=f"watch {group_id}", daemon=True)
            for work in (self._follow_events, self._look_around)
        ]
        self.on_line: Callable[[Line], None] = lambda line: None

    def start(self) -> Watch:
        for thread in self._threads:
            thread.start()
        return self

    def close(self) -> None:
        self._closing.set()
        for thread in self._threads:
            thread.join()
        self._admin.close()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            with self._changed:
                self._failure = error
                self._changed.notify_all()

    # -- events --------------------------------------------------------------------------------------------------------

    def _follow_events(self) -> None:
        settings = {"bootstrap.servers": self._servers, "client.id": "demo", "fetch.max.wait.ms": 100}
        with kohort.Consumer(settings, auto_offset_reset="earliest", allow_auto_create_topics=False) as consumer:
            while not consumer.partitions_for(EVENTS_TOPIC):
                if self._closing.wait(0.02):
                    return
            consumer.assign([TopicPartition(EVENTS_TOPIC, 0)])
            while not self._closing.is_set():
                for record in consumer.poll(0.1):
                    event = from_json(record.value)
                    if event.group_id == self.group_id:
                        self._take(event)

    def _take(self, event: GroupEvent) -> None:
        with self._changed:
            self._events.append(event)
            view = self._view
            view.generation = event.generation
            if isinstance(event, MemberEvent) and event.client_id:
                self._names[event.member_id] = name_of(event)
            if isinstance(event, StateChanged):
                view.state = event.to_state
                view.seen[view.state] = time.monotonic()
            if isinstance(event, GenerationStarted | RebalanceCompleted):
                self._leader = event.leader_id
            line = line_for(event, self._names)
            if line is not None:
                view.lines.append(line)
            view.rebalances = from_events(self._events).rebalances
            self._changed.notify_all()
        if line is not None:
            self.on_line(line)

    # -- members and lag -----------------------------------------------------------------------------------------------

    def _look_around(self) -> None:
        while not self._closing.wait(LOOK_EVERY_S):
            try:
                self._look()
            except KafkaError:
                continue  # such as a coordinator that is just being made

    def _look(self) -> None:
        admin = self._admin
        described = admin.describe_groups([self.group_id])[self.group_id]
        committed = admin.group_offsets(self.group_id) if described.state != "Dead" else {}
        ends = self._ends()
        done = {tp: at.offset for tp, at in committed.items() if at is not None and at.offset >= 0}
        lags = {tp: max(0, end - done.get(tp, 0)) for tp, end in ends.items()}
        members = [
            MemberView(
                member.client_id,
                member.member_id,
                tuple(sorted(tp.partition for tp in member.assignment)),
                sum(lags.get(tp, 0) for tp in member.assignment),
                member.member_id == self._leader,
            )
            for member in described.members
        ]
        owned = {number for member in members for number in member.partitions}
        with self._changed:
            view = self._view
            view.members = sorted(members, key=lambda member: member.name)
            view.protocol = described.assignor
            view.unowned = tuple(tp.partition for tp in self._partitions if tp.partition not in owned)
            view.lag, view.end = sum(lags.values()), sum(ends.values())
            view.committed = {tp.partition: offset for tp, offset in done.items()}
            self._changed.notify_all()

    # -- for others ----------------------------------------------------------------------------------------------------

    def view(self) -> View:
        with self._changed:
            view = self._view
            return View(
                view.group_id, view.state, view.generation, view.protocol, list(view.members), view.unowned,
                view.lag, view.end, dict(view.committed), dict(view.seen), list(view.lines), list(view.rebalances),
            )  # fmt: skip

    def events(self) -> list[GroupEvent]:
        with self._changed:
            return list(self._events)

    def committed_now(self) -> dict[int, int]:
        """Asked at this moment, not what was last seen."""
        found = self._admin.group_offsets(self.group_id)
        return {tp.partition: at.offset for tp, at in found.items() if at is not None and at.offset >= 0}

    def ends_now(self) -> dict[int, int]:
        return {tp.partition: offset for tp, offset in self._ends().items()}

    def _ends(self) -> dict[TopicPartition, int]:
        found = self._admin.list_offsets(dict.fromkeys(self._partitions, "latest"))
        return {tp: place.offset for tp, place in found.items() if place is not None}

    def coordinator(self) -> tuple[int, str, int]:
        """Node id and address of the broker that coordinates the group, and the partition that says so."""
        admin = self._admin
        node = admin.describe_groups([self.group_id])[self.group_id].coordinator
        host, port, _ = admin.describe_cluster().nodes[node]
        partitions = len(admin.describe_topics([OFFSETS_TOPIC])[OFFSETS_TOPIC].partitions)
        return node, f"{host}:{port}", partition_for(self.group_id, partitions)

    def wait_for(self, condition: Callable[[View], Any], what: str, seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while True:
            if condition(self.view()):
                return
            with self._changed:
                if self._failure is not None:
                    raise self._failure
                left = deadline - time.monotonic()
                if left <= 0:
                    raise WatchFailed(f"{what}: not within {seconds:g} s (the group is {self._view.state})")
                self._changed.wait(min(left, 0.5))
