"""A consumer in the simulated world: the real Member and Fetcher, and an application that polls, processes and commits.

The application is simple and honest: it processes what it is handed, in order, and commits only what it has processed.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from kohort.assignors import load_assignors
from kohort.client.assigned import FetcherConfig
from kohort.client.effects import (
    Assign,
    AutoCommit,
    CommitDone,
    Destination,
    DropCoordinator,
    Fail,
    Left,
    Lose,
    MemberEffect,
    OffsetsFetched,
    RefreshMetadata,
    Revoke,
    Send,
    WatchTopics,
)
from kohort.client.fetcher import Fetcher, NodeRequest
from kohort.client.member import Member, MemberConfig
from kohort.client.metadata import parse_metadata
from kohort.protocol.messages import MetadataRequest, OffsetCommitRequest
from kohort.sim.client import Channel
from kohort.sim.scheduler import Event, Stall
from kohort.sim.trace import CommitAttempt

if TYPE_CHECKING:
    from kohort.sim.world import World

REQUEST_TIMEOUT_MS = 30_000
METADATA_MAX_AGE_MS = 20_000
BACKOFF_MS = 100
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
    ) -> None:
        self.name = name
        self.group_id = group_id
        self.topics = topics
        self.assignors = assignors
        self.instance_id = instance_id
        self.manual_commit = manual_commit
        self.alive = False
        self.leaving = False
        self.fatal: Exception | None = None
        self._world = world
        self._scheduler = world.scheduler
        self._random: Random = world.random_for(name)
        self._coordinator = Channel(world, name, name)
        self._data = Channel(world, name, name)
        options = world.options
        self.member = Member(
            MemberConfig(
                group_id=group_id,
                group_instance_id=instance_id,
                session_timeout_ms=options.session_timeout_ms,
                heartbeat_interval_ms=min(3000, options.session_timeout_ms // 3),
                max_poll_interval_ms=options.max_poll_interval_ms,
                enable_auto_commit=not manual_commit,
                request_timeout_ms=REQUEST_TIMEOUT_MS,
            ),
            load_assignors(assignors),
            self._random.random,
        )
        self.fetcher = Fetcher(FetcherConfig(auto_offset_reset="earliest", max_wait_ms=FETCH_WAIT_MS))
        self._timer: Event | None = None
        self._next_poll: Event | None = None
        self._ask_id = 0
        self._committing: int | None = None
        self._asking: int | None = None
        self._attempts: dict[int, CommitAttempt] = {}
        self._watched: frozenset[str] | None = frozenset()
        self._metadata_in_flight = False
        self._metadata_stale = False
        self._metadata_at_ms = -BACKOFF_MS
        self._metadata_timer: Event | None = None
        self._stall = Stall(self._scheduler)
        self._no_poll_until_ms = 0

    @property
    def now_ms(self) -> int:
        return self._scheduler.now_ms

    # Life.

    def start(self) -> None:
        self.alive = True
        self._apply(self.member.subscribe(self.topics, self.now_ms))
        self._refresh_metadata()
        self._poll_soon(0)

    def crash(self) -> None:
        if self.alive:
            self.alive = False
            self._coordinator.vanish()
            self._data.vanish()
            if self._timer is not None:
                self._timer.cancel()
            self._world.trace.member_gone(self, "crashed")

    def leave(self) -> None:
        if self.alive and not self.leaving:
            self.leaving = True
            self._apply(self.member.leave("the application stops", self.now_ms))
            self._act()

    def stall(self, duration_ms: int) -> None:
        """The whole process stands still: no polls, no heartbeats, nothing read from the network."""
        self._stall.lasts(duration_ms)

    def poll_late(self, duration_ms: int) -> None:
        """The application is busy; heartbeats go on."""
        self._no_poll_until_ms = self.now_ms + duration_ms

    def resubscribe(self, topics: frozenset[str]) -> None:
        if self.alive and not self.leaving:
            self.topics = topics
            self._apply(self.member.subscribe(topics, self.now_ms))

    def _postponed(self, action: Any, *arguments: Any) -> bool:
        return not self.alive or self._stall.holds(action, *arguments)

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
        self._apply(self.member.poll(self.now_ms))
        self._act()
        records = []
        if self._committing is None and self.member.taken is None:
            self.fetcher.hold_back(self.member.held_back)
            records = self.fetcher.take(MAX_POLL_RECORDS)
            for record in records:
                self._world.trace.processed(self, record.topic_partition, record.offset, record.value)
            if records and self.manual_commit:
                self._commit()
        self._pump()
        self._poll_soon(self._random.randint(10, 300) if records else IDLE_POLL_MS)

    def _commit(self) -> None:
        self._ask_id += 1
        self._committing = self._ask_id
        self._apply(self.member.commit(self._ask_id, self.fetcher.consumed(), self.now_ms))

    def _act(self) -> None:
        """Carry out what the member asks of the application; sometimes it takes a while."""
        while self.alive and (action := self.member.take(self.now_ms)) is not None:
            if isinstance(action, AutoCommit):
                self._apply(self.member.auto_commit(self.fetcher.consumed(), self.now_ms))
            elif self._random.random() < 0.1:
                self._scheduler.after(self._random.randint(10, 3000), self._finish, action)
                return
            else:
                self._finish(action)

    def _finish(self, action: Revoke | Lose | Assign) -> None:
        if self._postponed(self._finish, action):
            return
        if isinstance(action, Assign):
            self.fetcher.assign(action.partitions)
            self._world.trace.assigned(self, action.partitions, action.generation_id)
            self._apply(self.member.assigned(self.now_ms))
        else:
            self.fetcher.unassign(action.partitions)
            self._world.trace.given_up(self, action.partitions, isinstance(action, Lose))
            self._apply(self.member.revoked(self.now_ms))
        self._pump()
        self._act()

    # The member's effects.

    def _apply(self, effects: list[MemberEffect]) -> None:
        for effect in effects:
            self._carry_out(effect)
        self._arm()

    def _carry_out(self, effect: MemberEffect) -> None:
        match effect:
            case Send():
                self._send(effect)
            case DropCoordinator():
                self._coordinator.close(effect.reason)
            case WatchTopics():
                self._watched = effect.topics
                self._refresh_metadata()
            case RefreshMetadata():
                self._refresh_metadata()
            case AutoCommit() | Revoke() | Lose() | Assign():
                self._poll_soon(self._random.randint(0, 50))
            case CommitDone():
                if effect.commit_id == self._committing:
                    self._committing = None
                    self._poll_soon(0)
            case OffsetsFetched():
                self._offsets_fetched(effect)
            case Left():
                self._left()
            case Fail():
                if effect.fatal:
                    self.fatal = effect.error
                    self._scheduler.after(0, self._give_up)

    def _give_up(self) -> None:
        """Fenced by another with the same instance id: a real application ends here."""
        self.crash()

    def _left(self) -> None:
        if self.leaving:
            self.alive = False
            self._coordinator.vanish()
            self._data.vanish()
            if self._timer is not None:
                self._timer.cancel()
            self._world.trace.member_gone(self, "left")

    def _send(self, send: Send) -> None:
        channel = self._coordinator if send.to is Destination.COORDINATOR else self._data
        if isinstance(send.request, OffsetCommitRequest):
            self._attempts[send.token] = self._world.commit_attempt(self, send.request)

        def answered(response: Any) -> None:
            if self._postponed(answered, response):
                return
            if (attempt := self._attempts.pop(send.token, None)) is not None:
                self._world.commit_answered(attempt, response)
            self._apply(self.member.received(send.token, response, self.now_ms))
            self._after_answer()

        def failed(reason: str) -> None:
            if self._postponed(failed, reason):
                return
            self._attempts.pop(send.token, None)
            self._apply(self.member.send_failed(send.token, reason, self.now_ms))
            self._after_answer()

        channel.request(send.request, answered, failed, send.timeout_ms, send.max_version)

    def _after_answer(self) -> None:
        if self.leaving:
            self._act()
        if self._asking is None and self.fetcher.initializing():
            self._pump()

    def _arm(self) -> None:
        due = self.member.next_deadline()
        if self._timer is not None:
            if due is not None and self._timer.action is not None and self._timer.at_ms == max(due, self.now_ms + 1):
                return
            self._timer.cancel()
            self._timer = None
        if due is not None and self.alive:
            self._timer = self._scheduler.at(max(due, self.now_ms + 1), self._on_time)

    def _on_time(self) -> None:
        if self._postponed(self._on_time):
            return
        self._timer = None
        self._apply(self.member.on_time(self.now_ms))
        if self.leaving:
            self._act()

    # Fetching.

    def _pump(self) -> None:
        if not self.alive:
            return
        for planned in self.fetcher.plan(self.now_ms):
            self._fetch(planned)
        if self.fetcher.metadata_wanted:
            self.fetcher.metadata_wanted = False
            self._refresh_metadata()
        if self._asking is None and (partitions := self.fetcher.initializing()):
            self._ask_id += 1
            self._asking = self._ask_id
            self._apply(self.member.fetch_offsets(self._ask_id, partitions, self.now_ms))

    def _offsets_fetched(self, effect: OffsetsFetched) -> None:
        if effect.fetch_id != self._asking:
            return
        if effect.error is not None or effect.offsets is None:
            self._scheduler.after(BACKOFF_MS, self._ask_again, effect.fetch_id)
            return
        self._asking = None
        for tp, committed in sorted(effect.offsets.items()):
            if tp in self.fetcher.initializing():
                self._world.trace.started_at(self, tp, None if committed is None else committed.offset)
        self.fetcher.committed(effect.offsets)
        self._scheduler.after(0, self._pump)

    def _ask_again(self, fetch_id: int) -> None:
        if fetch_id == self._asking and not self._postponed(self._ask_again, fetch_id):
            self._asking = None
            self._pump()

    def _fetch(self, planned: NodeRequest) -> None:
        def answered(response: Any) -> None:
            if self._postponed(answered, response):
                return
            self.fetcher.received(planned.token, response, self.now_ms)
            self._pump()
            if self.fetcher.has_data:
                self._poll_soon(self._random.randint(0, 100))

        def failed(reason: str) -> None:
            if self._postponed(failed, reason):
                return
            self.fetcher.failed(planned.token, self.now_ms)
            self._scheduler.after(BACKOFF_MS + 1, self._pump)

        self._data.request(planned.request, answered, failed, REQUEST_TIMEOUT_MS, planned.max_version)

    # Metadata.

    def _refresh_metadata(self, delay_ms: int = 0) -> None:
        """Ask soon, but not more often than a client's backoff allows; again when it has grown old."""
        if self._metadata_in_flight:
            self._metadata_stale = True
            return
        if self._metadata_timer is not None:
            self._metadata_timer.cancel()
        at_ms = max(self.now_ms + delay_ms, self._metadata_at_ms + BACKOFF_MS)
        self._metadata_timer = self._scheduler.at(at_ms, self._ask_metadata)

    def _ask_metadata(self) -> None:
        if self._postponed(self._ask_metadata):
            return
        self._metadata_in_flight, self._metadata_stale = True, False
        self._metadata_at_ms = self.now_ms
        watched = self._watched
        names = None if watched is None else sorted(watched)
        topics = None if names is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in names]

        def answered(response: Any) -> None:
            if self._postponed(answered, response):
                return
            self._metadata_in_flight = False
            metadata = parse_metadata(response, watched)
            self.fetcher.metadata_updated(metadata.leaders(), metadata.topic_ids())
            self._refresh_metadata(0 if self._metadata_stale else METADATA_MAX_AGE_MS)
            self._apply(self.member.metadata_updated(metadata.snapshot(), self.now_ms))
            self._pump()

        def failed(reason: str) -> None:
            if not self._postponed(failed, reason):
                self._metadata_in_flight = False
                self._refresh_metadata(BACKOFF_MS)

        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        self._data.request(request, answered, failed, REQUEST_TIMEOUT_MS)

    def __repr__(self) -> str:
        return self.name
