"""A consumer without sockets, threads or a clock: events in, effects out. asyncio, Spark and the simulator drive it.

It is made of parts: links and metadata (`cluster_core`), the member of the group with its finding, joining, liveness
and commits (`member`), what is read and where (`fetcher`), commits that somebody waits for (`group_asks`). Here they
meet: effects of one become calls of another, and the application gets its turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from kohort.client import events as ev
from kohort.client.chunks import up_to
from kohort.client.cluster_core import ClusterCore, Owner
from kohort.client.config import Config
from kohort.client.consumer_states import APPLICATION_MOVES, LOOKUP_MOVES, Application, Lookup
from kohort.client.core_config import fetcher_config
from kohort.client.effects import (
    Action,
    Assign,
    AutoCommit,
    Chunks,
    CommitDone,
    Destination,
    Done,
    DropCoordinator,
    Fail,
    Left,
    Lose,
    MemberEffect,
    OffsetsFetched,
    PositionsFound,
    Ready,
    Rebalance,
    Records,
    RefreshMetadata,
    Report,
    Revoke,
    Role,
    Send,
    UseCoordinator,
    WatchTopics,
)
from kohort.client.errors import error_for
from kohort.client.fetcher import Fetcher
from kohort.client.group_asks import GroupAsks
from kohort.client.group_member import GroupMember
from kohort.client.links import OF_THE_GROUP, Flight, Place
from kohort.client.measuring import measure_answer
from kohort.client.members import member_of
from kohort.client.metadata import Metadata
from kohort.client.metrics import Metrics
from kohort.client.position_asks import PositionAsks
from kohort.client.types import OffsetAndMetadata, TopicPartition
from kohort.protocol.apis import ApiKey
from kohort.protocol.errors import KafkaError

INITIAL_POSITIONS = 0
"""The ask id of the core's own question for committed offsets; those of others begin at 1."""
MOST_ROUNDS = 8


class ConsumerCore(ClusterCore):
    """One consumer. Without a group.id it has no member; with `fetching=False` others read what is assigned to it."""

    def __init__(self, config: Config, uniform: Callable[[], float], fetching: bool = True) -> None:
        super().__init__(config, uniform)
        self.fetcher = Fetcher(fetcher_config(config)) if fetching else None
        self.member: GroupMember | None = None
        self._asks: GroupAsks | None = None
        if config["group.id"] is not None:
            self.member = member_of(config, uniform)
            self._asks = GroupAsks(config, self.member, uniform, self.servers)
        self.application = Application.AWAY
        self.lookup = Lookup.IDLE
        self._leaving = False
        self._action: Revoke | Lose | Assign | None = None
        self._told = False
        self._errors: deque[Exception] = deque()
        self._unread: Mapping[TopicPartition, OffsetAndMetadata] = {}
        self._wall_ahead_ms = 0
        self._coordinator: UseCoordinator | None = None
        self._positions = PositionAsks(self.fetcher) if self.fetcher is not None else None
        self.metrics = Metrics()
        self._action_began_ms = 0
        self._again = False

    def _enter(self, application: Application) -> None:
        if application is not self.application and application not in APPLICATION_MOVES[self.application]:
            raise RuntimeError(f"{self.application.name} -> {application.name}")
        self.application = application

    def _look(self, lookup: Lookup) -> None:
        if lookup not in LOOKUP_MOVES[self.lookup]:
            raise RuntimeError(f"{self.lookup.name} -> {lookup.name}")
        self.lookup = lookup

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Positions, without what the application has not looked at yet."""
        if self.fetcher is None:
            return {}
        consumed = self.fetcher.consumed()
        consumed.update((tp, position) for tp, position in self._unread.items() if tp in consumed)
        return consumed

    def measured(self, now_ms: int) -> dict[str, dict[str, float]]:
        """The metrics, by Kafka's groups and names."""
        owned = len(self.member.owned) if self.member is not None else 0
        standings = self.fetcher.standings() if self.fetcher is not None else {}
        return self.metrics.as_dict(max(owned, len(standings)), standings, now_ms)

    # -- the engine ---------------------------------------------------------------------------------------------------

    def _deadlines(self) -> list[int | None]:
        due = super()._deadlines()
        if self.member is not None and self._asks is not None:
            due += [self.member.next_deadline(), self._asks.next_deadline()]
        if self.fetcher is not None:
            due.append(self.fetcher.next_retry(self._now_ms))
        if self._positions is not None:
            due.append(self._positions.next_deadline())
        return due

    def _settle(self, now_ms: int) -> None:
        for _ in range(MOST_ROUNDS):
            self._again = False
            self._act(now_ms)
            self._pump(now_ms)
            self._finish_asks(now_ms)
            super()._settle(now_ms)
            if not self._again:
                break
        if self.application is Application.POLLING and not self._told and self._has_news():
            self._told = True
            self._out.add(Ready())

    def _has_news(self) -> bool:
        assert self.application is Application.POLLING
        if self._errors or (self.member is not None and self.member.pending is not None):
            return True
        return self.fetcher is not None and (self.fetcher.has_data or self.fetcher.has_error)

    def _deliver(self, owner: Owner, number: int, response: Any, error: Exception | None, now_ms: int) -> None:
        self._again = True
        if owner is Owner.FETCHER:
            assert self.fetcher is not None
            if error is None:
                self.fetcher.received(number, response, now_ms)
            else:
                self.fetcher.failed(number, now_ms, error if isinstance(error, KafkaError) else None)
        elif owner is Owner.MEMBER:
            assert self.member is not None
            if error is None:
                self._apply(self.member.received(number, response, now_ms), now_ms)
            else:
                failure = error if isinstance(error, KafkaError) else None
                self._apply(self.member.send_failed(number, str(error), now_ms, failure), now_ms)
        else:
            super()._deliver(owner, number, response, error, now_ms)

    def _measure(self, flight: Flight, response: Any, now_ms: int) -> None:
        took_ms = now_ms - (flight.deadline_ms - flight.timeout_ms)
        measure_answer(self.metrics, flight.request.API_KEY, response, took_ms, now_ms)

    def _link_lost(self, place: Place, error: Exception, now_ms: int) -> None:
        if place.role is Role.COORDINATOR and self._coordinator is not None and self.member is not None:
            self._apply(self.member.coordinator_disconnected(str(error), now_ms), now_ms)

    def _metadata_arrived(self, metadata: Metadata, now_ms: int) -> None:
        super()._metadata_arrived(metadata, now_ms)
        for topic, code in metadata.refused.items():
            refusal = error_for(code, f"topic {topic!r}: {code.message}")
            if str(refusal) not in map(str, self._errors):
                self._errors.append(refusal)
        if self.fetcher is not None:
            self.fetcher.metadata_updated(metadata.leaders(), metadata.topic_ids())
        if self.member is not None:
            self._apply(self.member.metadata_updated(metadata.snapshot(), now_ms), now_ms)

    # -- the member's effects -----------------------------------------------------------------------------------------

    def _apply(self, effects: list[MemberEffect], now_ms: int) -> None:
        for effect in effects:
            self._carry_out(effect, now_ms)

    def _carry_out(self, effect: MemberEffect, now_ms: int) -> None:
        match effect:
            case Send():
                self._send_for_member(effect, now_ms)
            case UseCoordinator():
                self._coordinator = effect
                self._links.open(self._coordinator_place(Role.COORDINATOR), now_ms)
            case DropCoordinator():
                self._coordinator = None
                for flight in self._links.drop(OF_THE_GROUP, effect.reason):
                    self._owners.pop(flight.token, None)
            case WatchTopics():
                self._keeper.watch(effect.topics, effect.ids)
            case RefreshMetadata():
                self._keeper.want()
            case CommitDone():
                self._answer(effect.commit_id, None, effect.error, now_ms)
            case OffsetsFetched():
                self._answer(effect.fetch_id, effect.offsets, effect.error, now_ms)
            case Left():
                self._left(effect)
            case Fail():
                self._errors.append(effect.error)
            case Report():
                self._out.add(effect)
            case Rebalance():
                self.metrics.reconciles(effect.phase, now_ms)
            case AutoCommit() | Revoke() | Lose() | Assign():
                pass  # it waits in the member until the application has its turn

    def _coordinator_place(self, role: Role) -> Place:
        assert self._coordinator is not None
        return Place(role, self._coordinator.node_id, self._coordinator.host, self._coordinator.port)

    def _send_for_member(self, send: Send, now_ms: int) -> None:
        place: Place | None = None
        if send.to is not Destination.LEAST_LOADED:
            role = Role.COORDINATOR if send.to is Destination.COORDINATOR else Role.COORDINATOR_ASIDE
            place = self._coordinator_place(role)
        if send.request.API_KEY == ApiKey.JOIN_GROUP:
            self.metrics.rebalance_began(now_ms)
        limits = send.timeout_ms, send.min_version, send.max_version
        self._send(Owner.MEMBER, send.token, send.request, place, now_ms, *limits)

    def _answer(self, attempt: int, value: Any, error: Exception | None, now_ms: int) -> None:
        assert self._asks is not None
        self._asks.answered(attempt, value, error, now_ms)

    def _left(self, left: Left) -> None:
        self._leaving = False
        if self.application is Application.LEAVING:
            self._enter(Application.AWAY)
        self._out.add(left)

    # -- the application's turn ---------------------------------------------------------------------------------------

    def _act(self, now_ms: int) -> None:
        """Give it what the member asks of it; automatic commits need nothing but that it is done with its records."""
        while self.member is not None and self.member.pending is not None:
            automatic = isinstance(self.member.pending, AutoCommit)
            if self.application is not Application.LEAVING and not (
                automatic and self.application is Application.POLLING
            ):
                return
            self._take_action(self.member, now_ms)

    def _take_action(self, member: GroupMember, now_ms: int) -> None:
        action: Action | None = member.take(now_ms)
        if isinstance(action, AutoCommit):
            self._apply(member.auto_commit(self.consumed(), now_ms), now_ms)
        elif action is not None:
            if isinstance(action, Assign) and self.fetcher is not None:
                self.fetcher.assign(action.partitions)
            self._action, self._action_began_ms = action, now_ms
            self._enter(Application.ACTING)
            self._out.add(action)

    def _poll(self, event: ev.Poll, now_ms: int) -> None:
        """What the application gets: something to do, an error, or records; else it waits."""
        self._unread = event.unread
        self._wall_ahead_ms = event.wall_ms - now_ms if event.wall_ms else 0
        self._told = False
        if self.application is Application.AWAY:
            self.metrics.polled(now_ms)
        if self.member is not None:
            self._apply(self.member.poll(now_ms), now_ms)
        if self.lookup is Lookup.FAILED:
            self._look(Lookup.IDLE)
        if self.application is Application.ACTING:
            return
        self._enter(Application.POLLING)
        while self.application is Application.POLLING and self.member is not None and self.member.pending is not None:
            self._take_action(self.member, now_ms)
        if self.application is Application.POLLING and self._hand_out(event):
            self._enter(Application.AWAY)
            self.metrics.poll_ended(now_ms)
            if self.fetcher is not None:
                self.metrics.handed_out(self.fetcher.take_counts(), now_ms)

    def _hand_out(self, event: ev.Poll) -> bool:
        error = self._next_error()
        if error is not None:
            self._out.add(Fail(error))
            return True
        fetcher = self.fetcher
        if fetcher is None:
            return False
        if self.member is not None:
            fetcher.hold_back(self.member.held_back)
        if event.max_bytes:
            chunks = fetcher.take_chunks(up_to(event.max_bytes))
            if chunks:
                self._out.add(Chunks(chunks))
            return bool(chunks)
        if event.max_records:
            try:
                records = fetcher.take(event.max_records)
            except KafkaError as failure:
                self._out.add(Fail(failure))
                return True
            if records:
                self._out.add(Records(records))
            return bool(records)
        return False

    def _next_error(self) -> Exception | None:
        if self._errors:
            return self._errors.popleft()
        if self.member is not None and self.member.fatal is not None:
            return self.member.fatal
        return self.fetcher.take_error() if self.fetcher is not None else None

    def _stop_poll(self, event: ev.StopPoll, now_ms: int) -> None:
        if self.application is Application.POLLING:
            self._enter(Application.AWAY)
            self.metrics.poll_ended(now_ms)
        if self.member is not None:
            self._apply(self.member.poll(now_ms), now_ms)

    def _action_done(self, event: ev.ActionDone, now_ms: int) -> None:
        assert self.member is not None and self._action is not None
        action, self._action = self._action, None
        self._enter(Application.LEAVING if self._leaving else Application.AWAY)
        self.metrics.acted(action, now_ms - self._action_began_ms, now_ms)
        if isinstance(action, Assign):
            self._apply(self.member.assigned(now_ms), now_ms)
        else:
            if self.fetcher is not None:
                self.fetcher.unassign(action.partitions)
            self._apply(self.member.revoked(now_ms), now_ms)

    def _leave(self, event: ev.Leave, now_ms: int) -> None:
        assert self.member is not None
        self._unread = event.unread
        self._leaving = True
        if self.application is not Application.ACTING:
            self._enter(Application.LEAVING)
        self._apply(self.member.leave(event.reason, now_ms, event.send), now_ms)

    # -- reading ------------------------------------------------------------------------------------------------------

    def _pump(self, now_ms: int) -> None:
        """Send what the fetcher can ask for now."""
        fetcher = self.fetcher
        if fetcher is None:
            return
        for planned in fetcher.plan(now_ms, now_ms + self._wall_ahead_ms):
            try:
                place = self._place(planned.node_id, Role.DATA)
            except KafkaError as error:
                fetcher.failed(planned.token, now_ms, error)
                continue
            limits = None, planned.min_version, planned.max_version
            self._send(Owner.FETCHER, planned.token, planned.request, place, now_ms, *limits)
        if fetcher.metadata_wanted:
            fetcher.metadata_wanted = False
            self._keeper.want()
        if self.lookup is Lookup.IDLE and (partitions := fetcher.initializing()):
            self._find_initial_positions(fetcher, partitions, now_ms)

    def _find_initial_positions(self, fetcher: Fetcher, partitions: frozenset[TopicPartition], now_ms: int) -> None:
        """The group's commit where there is one; where there is none, `fetcher.committed` decides."""
        self._again = True
        if self._asks is None:
            fetcher.committed(dict.fromkeys(sorted(partitions)))
            return
        self._look(Lookup.ASKING)
        patience_ms = self.config["default.api.timeout.ms"]
        self._apply(self._asks.fetch(INITIAL_POSITIONS, partitions, patience_ms, True, now_ms), now_ms)

    def _initial_positions_found(self, offsets: Any, error: Exception | None) -> None:
        assert self.fetcher is not None
        self._again = True
        if error is not None:
            self._look(Lookup.FAILED)
            self._errors.append(error)
            return
        self._look(Lookup.IDLE)
        missing = self.fetcher.initializing()
        self._out.add(PositionsFound({tp: offsets[tp] for tp in sorted(offsets) if tp in missing}))
        self.fetcher.committed(offsets)

    # -- those who wait -----------------------------------------------------------------------------------------------

    def _finish_asks(self, now_ms: int) -> None:
        if self._asks is not None and self._asks.finished:
            finished, self._asks.finished = self._asks.finished, []
            for ask_id, value, error in finished:
                if ask_id == INITIAL_POSITIONS:
                    self._initial_positions_found(value, error)
                else:
                    self._out.add(Done(ask_id, value, error))
        if self._positions is not None:
            failure = self._errors[0] if self.lookup is Lookup.FAILED and self._errors else None
            for done in self._positions.take_finished(failure, now_ms):
                self._out.add(done)

    # -- events -------------------------------------------------------------------------------------------------------

    def _tick(self, event: ev.Tick, now_ms: int) -> None:
        super()._tick(event, now_ms)
        if self.member is None or self._asks is None:
            return
        if self.application is Application.POLLING:
            self._apply(self.member.poll(now_ms), now_ms)
        self._apply(self.member.on_time(now_ms), now_ms)
        self._apply(self._asks.on_time(now_ms), now_ms)

    def _subscribe(self, event: ev.Subscribe, now_ms: int) -> None:
        assert self.member is not None
        if event.regex:
            self._apply(self.member.subscribe_regex(event.regex, now_ms), now_ms)
        elif event.pattern is not None:
            matches = event.pattern.search if event.anywhere else event.pattern.fullmatch
            self._apply(self.member.subscribe_pattern(matches, now_ms), now_ms)
        else:
            self._apply(self.member.subscribe(event.topics, now_ms), now_ms)

    def _assign_manually(self, event: ev.AssignManually, now_ms: int) -> None:
        assert self.fetcher is not None
        if self.member is not None:
            self._apply(self.member.assign_manually(now_ms), now_ms)
        self._keeper.watch({tp.topic for tp in event.partitions})
        self.fetcher.assign(event.partitions)

    def _unassign(self, event: ev.Unassign, now_ms: int) -> None:
        self._unread = {}
        self._keeper.watch(())
        if self.fetcher is not None:
            self.fetcher.assign(())

    def _rejoin(self, event: ev.Rejoin, now_ms: int) -> None:
        assert self.member is not None
        self._apply(self.member.request_rejoin(event.reason, now_ms), now_ms)

    def _seek(self, event: ev.Seek, now_ms: int) -> None:
        assert self.fetcher is not None
        self.fetcher.seek(event.partition, event.target.offset, event.target.leader_epoch)

    def _seek_to(self, event: ev.SeekTo, now_ms: int) -> None:
        assert self.fetcher is not None
        self.fetcher.seek_to(sorted(event.partitions), event.where)

    def _pause(self, event: ev.Pause, now_ms: int) -> None:
        assert self.fetcher is not None
        self.fetcher.pause(event.partitions)

    def _resume(self, event: ev.Resume, now_ms: int) -> None:
        assert self.fetcher is not None
        self.fetcher.resume(event.partitions)

    def _commit(self, event: ev.Commit, now_ms: int) -> None:
        assert self._asks is not None
        effects = self._asks.commit(event.ask_id, event.offsets, event.timeout_ms, event.repeated, now_ms)
        self._apply(effects, now_ms)

    def _fetch_committed(self, event: ev.FetchCommitted, now_ms: int) -> None:
        assert self._asks is not None
        effects = self._asks.fetch(event.ask_id, event.partitions, event.timeout_ms, event.repeated, now_ms)
        self._apply(effects, now_ms)

    def _find_position(self, event: ev.FindPosition, now_ms: int) -> None:
        assert self._positions is not None
        self._positions.begin(event.ask_id, event.partition, event.timeout_ms, now_ms)
        if self.lookup is Lookup.FAILED:
            self._look(Lookup.IDLE)

    def _forget(self, event: ev.Forget, now_ms: int) -> None:
        if self._positions is not None:
            self._positions.forget(event.ask_id)
        if self._asks is not None:
            self._asks.forget(event.ask_id)

    HANDLERS: ClassVar[dict[type, Callable[[Any, Any, int], None]]] = {
        **ClusterCore.HANDLERS,
        ev.Tick: _tick,
        ev.Subscribe: _subscribe,
        ev.AssignManually: _assign_manually,
        ev.Poll: _poll,
        ev.StopPoll: _stop_poll,
        ev.ActionDone: _action_done,
        ev.Leave: _leave,
        ev.Unassign: _unassign,
        ev.Rejoin: _rejoin,
        ev.Seek: _seek,
        ev.SeekTo: _seek_to,
        ev.Pause: _pause,
        ev.Resume: _resume,
        ev.Commit: _commit,
        ev.FetchCommitted: _fetch_committed,
        ev.FindPosition: _find_position,
        ev.Forget: _forget,
    }
