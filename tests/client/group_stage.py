"""Members back to back with kohort's coordinator: both sans-IO, one virtual clock, messages through the codec."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

from coordinator.world import World
from kohort.assignors import load_assignors
from kohort.client.compat import downgrade, upgrade
from kohort.client.effects import (
    Assign,
    AutoCommit,
    CommitDone,
    DropCoordinator,
    Fail,
    Left,
    Lose,
    MetadataSnapshot,
    RefreshMetadata,
    Revoke,
    Send,
    TopicSnapshot,
)
from kohort.client.member import Member, MemberConfig
from kohort.client.types import OffsetAndMetadata, TopicPartition
from kohort.protocol.apis import ApiKey
from kohort.protocol.messages import FindCoordinatorResponse


class Application:
    """A member with an application that does what it is asked at once, unless it is `busy`; `dead` sends nothing."""

    def __init__(self, group: GroupStage, name: str, strategy: str, **config: Any) -> None:
        self.group = group
        self.name = name
        config.setdefault("enable_auto_commit", False)
        self.member = Member(MemberConfig("g", **config), load_assignors(strategy), lambda: 0.5)
        self.busy = False
        self.dead = False
        self.reading: set[TopicPartition] = set()
        self.log: list[str] = []
        self.positions: dict[TopicPartition, int] = {}
        self.errors: list[Exception] = []
        self.left = False

    def do(self, effects: list[Any]) -> None:
        for effect in effects:
            if isinstance(effect, Send) and not self.dead:
                self.group.carry(self, effect)
            elif isinstance(effect, RefreshMetadata):
                self.group.refresh.append(self)
            elif isinstance(effect, DropCoordinator):
                self.group.forget(self)
            elif isinstance(effect, Fail) or (isinstance(effect, CommitDone) and effect.error):
                self.errors.append(effect.error)
            elif isinstance(effect, Left):
                self.left = True

    def poll(self) -> None:
        if self.dead or self.busy:
            return
        self.do(self.member.poll(self.group.now_ms))
        while (action := self.member.take(self.group.now_ms)) is not None:
            self.act(action)

    def act(self, action: Any) -> None:
        now_ms = self.group.now_ms
        if isinstance(action, AutoCommit):
            offsets = {tp: OffsetAndMetadata(self.positions.get(tp, 0)) for tp in self.reading}
            self.do(self.member.auto_commit(offsets, now_ms))
        elif isinstance(action, Assign):
            self.log.append(f"assigned {sorted(p for _, p in action.partitions)} in {action.generation_id}")
            self.reading = set(action.partitions)
            self.group.check()
            self.do(self.member.assigned(now_ms))
        else:
            assert isinstance(action, Revoke | Lose)
            self.log.append(f"{type(action).__name__.lower()} {sorted(p for _, p in action.partitions)}")
            self.reading -= action.partitions
            self.do(self.member.revoked(now_ms))

    def crash(self) -> None:
        self.dead = True
        self.reading.clear()
        self.group.forget(self)

    def leave(self) -> None:
        self.do(self.member.leave("closing", self.group.now_ms))
        while not self.left and (action := self.member.take(self.group.now_ms)) is not None:
            self.act(action)


class GroupStage:
    def __init__(self, partitions: int = 6, **config: Any) -> None:
        config.setdefault("group_initial_rebalance_delay_ms", 0)
        self.world = World(**config)
        self.world.topics.add("orders", partitions)
        self.world.after = self.deliver
        self.members: list[Application] = []
        self.parked: dict[int, tuple[Application, Send, int]] = {}
        self.refresh: list[Application] = []
        self.versions: dict[ApiKey, int] = {}  # the newest that the broker has, where it is not the newest of all
        self.delivering = False
        self.token = 0
        self.chance: random.Random | None = None
        self.loss = 0.0
        self.broken: list[tuple[Application, Send]] = []

    @property
    def now_ms(self) -> int:
        return self.world.now_ms

    def join(
        self, name: str, strategy: str = "range", *, topics: Iterable[str] = ("orders",), **config: Any
    ) -> Application:
        application = Application(self, name, strategy, **config)
        self.members.append(application)
        application.do(application.member.subscribe(topics, self.now_ms))
        application.poll()
        return application

    # -- the network

    def carry(self, application: Application, send: Send) -> None:
        api = ApiKey(send.request.API_KEY)
        if api is ApiKey.FIND_COORDINATOR:
            found = FindCoordinatorResponse.Coordinator(key="g", node_id=0, host="h", port=1)
            application.do(
                application.member.received(send.token, FindCoordinatorResponse(coordinators=[found]), self.now_ms)
            )
            return
        lost = self.chance is not None and self.chance.random() < self.loss
        if lost and self.chance.random() < 0.5:  # type: ignore[union-attr]
            self.broken.append((application, send))
            return
        most = self.versions.get(api, send.request.MAX_VERSION)
        version = most if send.max_version is None else send.max_version
        message = api.request.decode(downgrade(send.request, version).encode(version), version)
        self.token += 1
        if lost:
            self.broken.append((application, send))
        else:
            self.parked[self.token] = (application, send, version)
        self.world.send(message, version, token=self.token, client_id=application.name)

    def deliver(self) -> None:
        """Answers that have come, in order; one at a time, as an answer may cause the next request."""
        if self.delivering:
            return
        self.delivering = True
        while ready := [token for token in self.world.replies if token in self.parked]:
            application, send, version = self.parked.pop(ready[0])
            response = self.world.replies.pop(ready[0])
            kind = type(response)
            response = upgrade(send.request, kind.decode(response.encode(version), version), version)
            if not application.dead:
                application.do(application.member.received(send.token, response, self.now_ms))
        self.delivering = False

    def forget(self, application: Application) -> None:
        for token in [token for token, (who, _, _) in self.parked.items() if who is application]:
            del self.parked[token]

    def restart(self) -> None:
        """The coordinator crashes: connections break, parked requests are gone, the log is read again."""
        self.world.restart()
        for application in self.members:
            self.forget(application)
            if not application.dead:
                application.do(application.member.coordinator_disconnected("connection reset", self.now_ms))

    # -- time

    def settle(self) -> None:
        for _ in range(50):
            self.world.advance(0)
            self.deliver()
            while self.refresh:
                self.metadata(self.refresh.pop())
            while self.broken:
                application, send = self.broken.pop(0)
                if not application.dead:
                    application.do(application.member.send_failed(send.token, "connection reset", self.now_ms))
            for application in self.members:
                application.poll()

    def metadata(self, application: Application) -> None:
        topics = {name: TopicSnapshot(count) for name, (_, count) in self.world.topics.topics.items()}
        application.do(application.member.metadata_updated(MetadataSnapshot(topics), self.now_ms))

    def pass_time(self, ms: int) -> None:
        end = self.now_ms + ms
        while self.now_ms < end:
            self.settle()
            deadlines = [a.member.next_deadline() for a in self.members if not a.dead]
            deadlines.append(self.world.coordinator.runtime.next_deadline())
            due = min((d for d in deadlines if d is not None), default=end)
            self.world.advance(max(1, min(due, end) - self.now_ms))
            for application in self.members:
                if not application.dead:
                    application.do(application.member.on_time(self.now_ms))
        self.settle()

    # -- what must hold

    def check(self) -> None:
        """In one generation no partition has two owners. (One that the coordinator has put out may not know it yet.)"""
        group = self.world.coordinator.group("g")
        known = group.members if group is not None else {}
        owners: dict[tuple[int, TopicPartition], str] = {}
        for application in self.members:
            generation = application.member.generation.generation_id
            if application.dead or application.member.member_id not in known:
                continue
            for tp in application.reading:
                other = owners.setdefault((generation, tp), application.name)
                assert other == application.name, f"{tp} is read by {other} and {application.name} in {generation}"

    def owners(self) -> dict[int, str]:
        return {tp.partition: a.name for a in self.members if not a.dead for tp in sorted(a.reading)}
