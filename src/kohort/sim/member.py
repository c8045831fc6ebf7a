"""A consumer in the simulated world: the core that ships, and an application that polls, processes and commits.

The application is simple and honest: it processes what it is handed, in order, and commits only what it has processed.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from kohort.client import effects as fx
from kohort.client import events as ev
from kohort.client.config import Config
from kohort.client.consumer_core import ConsumerCore
from kohort.client.group_member import GroupMember
from kohort.client.types import ConsumerRecord
from kohort.protocol.messages import OffsetCommitRequest
from kohort.sim.driver import SimDriver
from kohort.sim.scheduler import Event
from kohort.sim.trace import CommitAttempt

if TYPE_CHECKING:
    from kohort.sim.world import World

COMMIT_TIMEOUT_MS = 60_000
METADATA_MAX_AGE_MS = 20_000
FETCH_WAIT_MS = 5_000
MAX_POLL_RECORDS = 50
IDLE_POLL_MS = 2_000


class SimMember:
    def __init__(
        self,
        world: World,
        name: str,
        group_id: str,
        topics: frozenset[str],
        assignors: str,
        instance_id: str | None,
        manual_commit: bool,
        fetch_wait_ms: int = FETCH_WAIT_MS,
        protocol: str = "classic",
    ) -> None:
        self.name = name
        self.group_id = group_id
        self.topics = topics
        self.assignors = assignors
        self.protocol = protocol
        self.instance_id = instance_id
        self.manual_commit = manual_commit
        self.alive = False
        self.leaving = False
        self.fatal: Exception | None = None
        self._world = world
        self._scheduler = world.scheduler
        self._random: Random = world.random_for(name)
        self.core = ConsumerCore(self._config(fetch_wait_ms), self._random.random)
        assert self.core.member is not None
        self.member: GroupMember = self.core.member
        self._driver = SimDriver(world, self.core, self._take, self._watch, self._host_of)
        self._next_poll: Event | None = None
        self._last_ask = 0
        self._committing: int | None = None
        self._attempts: dict[int, CommitAttempt] = {}
        self._no_poll_until_ms = 0

    def _config(self, fetch_wait_ms: int) -> Config:
        options = self._world.options
        return Config(
            {
                "bootstrap.servers": self._world.bootstrap_servers,
                "client.id": self.name,
                "group.id": self.group_id,
                "group.instance.id": self.instance_id,
                "max.poll.interval.ms": options.max_poll_interval_ms,
                "enable.auto.commit": not self.manual_commit,
                "metadata.max.age.ms": METADATA_MAX_AGE_MS,
                "auto.offset.reset": "earliest",
                "fetch.max.wait.ms": fetch_wait_ms,
                "allow.auto.create.topics": False,
                **self._of_the_protocol(),
            }
        )

    def _of_the_protocol(self) -> dict[str, Any]:
        """A group of the consumer protocol takes its times and its assignor from the broker."""
        if self.protocol == "consumer":
            return {"group.protocol": "consumer"}
        options = self._world.options
        return {
            "session.timeout.ms": options.session_timeout_ms,
            "heartbeat.interval.ms": options.heartbeat_interval_ms,
            "partition.assignment.strategy": self.assignors,
        }

    @property
    def now_ms(self) -> int:
        return self._scheduler.now_ms

    def _host_of(self, effect: fx.Connect) -> str:
        """This consumer's end of a connection."""
        return self.name

    # Life.

    def start(self) -> None:
        self.alive = True
        self._driver.tell(ev.Subscribe(self.topics))
        self._poll_soon(0)

    def crash(self) -> None:
        self._end("crashed")

    def _end(self, how: str) -> None:
        if self.alive:
            self.alive = False
            self._driver.vanish()
            self._world.trace.member_gone(self, how)

    def leave(self) -> None:
        if self.alive and not self.leaving:
            self.leaving = True
            self._driver.tell(ev.Leave("the application stops"))

    def stall(self, duration_ms: int) -> None:
        """The whole process stands still: no polls, no heartbeats, nothing read from the network."""
        self._driver.stall.lasts(duration_ms)

    def poll_late(self, duration_ms: int) -> None:
        """The application is busy; heartbeats go on."""
        self._no_poll_until_ms = self.now_ms + duration_ms
        if self.alive:
            self._driver.tell(ev.StopPoll())

    def resubscribe(self, topics: frozenset[str]) -> None:
        if self.alive and not self.leaving:
            self.topics = topics
            self._driver.tell(ev.Subscribe(topics))

    def _postponed(self, action: Any, *arguments: Any) -> bool:
        return not self.alive or self._driver.stall.holds(action, *arguments)

    # The application.

    def _poll_soon(self, delay_ms: int) -> None:
        """poll() returns when there is something, or after a while when there is nothing."""
        at_ms = max(self.now_ms + delay_ms, self._no_poll_until_ms)
        if self._next_poll is not None and self._next_poll.action is not None:
            if self._next_poll.at_ms <= at_ms:
                return
            self._next_poll.cancel()
        self._next_poll = self._scheduler.at(at_ms, self._poll)

    def _poll(self) -> None:
        if self._postponed(self._poll):
            return
        self._next_poll = None
        if self.leaving or self.fatal is not None:
            return
        if self.now_ms < self._no_poll_until_ms:
            self._poll_soon(0)
            return
        self._poll_soon(IDLE_POLL_MS)
        self._driver.tell(ev.Poll(0 if self._committing is not None else MAX_POLL_RECORDS, wall_ms=self.now_ms))

    def _take(self, effect: fx.Effect) -> None:
        """What the core has for the application."""
        match effect:
            case fx.Records():
                self._process(effect.records)
            case fx.Revoke() | fx.Lose() | fx.Assign():
                self._begin(effect)
            case fx.PositionsFound():
                for tp, committed in effect.committed.items():
                    self._world.trace.started_at(self, tp, None if committed is None else committed.offset)
            case fx.Ready():
                self._poll_soon(self._random.randint(0, 100))
            case fx.Done():
                if effect.ask_id == self._committing:
                    self._committing = None
                    self._poll_soon(0)
            case fx.Left():
                if self.leaving:
                    self._end("left")
            case fx.Fail():
                if self.member.fatal is not None:
                    self.fatal = effect.error
                    self._scheduler.after(0, self.crash)

    def _process(self, records: list[ConsumerRecord]) -> None:
        for record in records:
            self._world.trace.processed(self, record.topic_partition, record.offset, record.value)
        if self.manual_commit:
            self._last_ask += 1
            self._committing = self._last_ask
            offsets = self.core.consumed()
            self._driver.tell(ev.Commit(self._last_ask, offsets, COMMIT_TIMEOUT_MS, repeated=False))
        self._poll_soon(self._random.randint(10, 300))

    # What the group asks of it.

    def _begin(self, action: fx.Revoke | fx.Lose | fx.Assign) -> None:
        """Sometimes it takes a while."""
        if isinstance(action, fx.Assign):
            self._world.trace.assigned(self, action.partitions, action.generation_id)
        if self._dawdles():
            self._scheduler.after(self._random.randint(10, 3000), self._finish, action)
        else:
            self._finish(action)

    def _dawdles(self) -> bool:
        return self._random.random() < 0.1

    def _finish(self, action: fx.Revoke | fx.Lose | fx.Assign) -> None:
        if self._postponed(self._finish, action):
            return
        if not isinstance(action, fx.Assign):
            self._world.trace.given_up(self, action.partitions, isinstance(action, fx.Lose))
        self._driver.tell(ev.ActionDone())
        self._poll_soon(self._random.randint(0, 50))

    # Commits, seen from outside.

    def _watch(self, seen: fx.Transmit | ev.Answered) -> None:
        if isinstance(seen, fx.Transmit):
            if isinstance(seen.request, OffsetCommitRequest):
                self._attempts[seen.token] = self._world.commit_attempt(self, seen.request)
        elif (attempt := self._attempts.pop(seen.token, None)) is not None:
            self._world.commit_answered(attempt, seen.response)

    def __repr__(self) -> str:
        return self.name
