"""One member of a group of the consumer protocol (KIP-848), sans-IO: events in, effects out, `now_ms` an argument.

    poll -> find coordinator -> heartbeat with epoch 0 -> [commit, revoke] -> assign -> heartbeat that says so

The coordinator assigns; every answer to a heartbeat may bring another assignment and another epoch. What is not given
up is read on meanwhile. The id of the member is made here and stays for the life of the consumer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kohort.client.effects import AutoCommit, MemberEffect, MetadataSnapshot, RefreshMetadata
from kohort.client.modern.liveness import Liveness
from kohort.client.modern.states import IN_GROUP, MAY_JOIN, MemberState
from kohort.client.states import MemberConfig, Step
from kohort.protocol.errors import KafkaError


class ModernMember(Liveness):
    def __init__(self, config: MemberConfig, uniform: Callable[[], float]) -> None:
        super().__init__(config, uniform)
        self._announced = False
        """The coordinator may know of this member."""

    # -- events: the application --------------------------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str], now_ms: int) -> list[MemberEffect]:
        return self._subscribe(now_ms, topics=frozenset(topics))

    def subscribe_pattern(self, matches: Callable[[str], object], now_ms: int) -> list[MemberEffect]:
        self._snapshot = None
        return self._subscribe(now_ms, matches=matches)

    def subscribe_regex(self, regex: str, now_ms: int) -> list[MemberEffect]:
        return self._subscribe(now_ms, regex=regex)

    def _subscribe(
        self,
        now_ms: int,
        topics: frozenset[str] = frozenset(),
        matches: Callable[[str], object] | None = None,
        regex: str = "",
    ) -> list[MemberEffect]:
        self.topics, self._matches, self._regex, self._manual = topics, matches, regex, False
        self._watch()
        if matches is not None:
            self._out.add(RefreshMetadata("a pattern subscription needs the names of all topics"))
        self._heartbeat.hasten(now_ms)
        return self._advance(now_ms)

    def request_rejoin(self, reason: str, now_ms: int) -> list[MemberEffect]:
        """The coordinator alone decides when to assign anew."""
        text = "the consumer protocol has no rebalance on demand, nothing was done"
        self._note(f"{text}; asked for because: {reason}", now_ms, "WARNING")
        return self._advance(now_ms)

    def leave(self, reason: str, now_ms: int, send: bool | None = None) -> list[MemberEffect]:
        """By default a dynamic member leaves with epoch -1, a static one with -2, which keeps its place."""
        self._leaving = reason
        self._leave_forced = send
        self._active = False
        if self._taken is None and self.state is not MemberState.LEAVING:
            self._begin_leave(now_ms)
        return self._advance(now_ms)

    def _dropped_out(self, now_ms: int) -> None:
        self._lose(now_ms)

    # -- events: the world --------------------------------------------------------------------------------------------

    def metadata_updated(self, snapshot: MetadataSnapshot, now_ms: int) -> list[MemberEffect]:
        before = self.topics
        if self._match(snapshot):
            self._snapshot = snapshot
            if self.topics != before:
                self._heartbeat.hasten(now_ms)
            if self._unknown() and self.state is MemberState.RECONCILING:
                self._out.add(RefreshMetadata("topics that were assigned are not known yet"))
        return self._advance(now_ms)

    def received(self, token: int, response: Any, now_ms: int) -> list[MemberEffect]:
        if token == self._finder.in_flight:
            self._coordinator_answer(response, now_ms)
        elif token == self._heartbeat.in_flight:
            self._heartbeat_answer(response, now_ms)
        elif token == self._token:
            self._left(now_ms)
        elif (ask := self._commits.in_flight.pop(token, None)) is not None:
            self._ask_answered(ask, response, now_ms)
        return self._advance(now_ms)

    def send_failed(self, token: int, reason: str, now_ms: int, error: KafkaError | None = None) -> list[MemberEffect]:
        if token == self._finder.in_flight:
            self._finding_failed(error, now_ms)
        elif error is not None and not error.code.retriable:
            self._request_refused(token, error, now_ms)
        elif token in (self._heartbeat.in_flight, self._token) or token in self._commits.in_flight:
            self._coordinator_lost(reason, now_ms)
        return self._advance(now_ms)

    def on_time(self, now_ms: int) -> list[MemberEffect]:
        if self.state in IN_GROUP and now_ms >= self._heartbeat.poll_ends_ms:
            self._polled_too_late(now_ms)
        self._commit_too_late(now_ms)
        if self.state is MemberState.LEAVING and now_ms >= self._give_up_by_ms:
            self._left(now_ms)
        return self._advance(now_ms)

    def next_deadline(self) -> int | None:
        deadlines = []
        if self._wants_coordinator() and self._finder.in_flight is None:
            deadlines.append(self._finder.retry_at_ms or 0)
        if self.state is MemberState.LEAVING or self._commit_awaited():
            deadlines.append(self._give_up_by_ms)
        if self._prepare_ask is not None:
            deadlines.append(self._retry_at_ms)
        if self.state in IN_GROUP:
            deadlines.append(self._heartbeat.poll_ends_ms)
        if self._may_heartbeat():
            deadlines.append(self._heartbeat.next_ms)
        if self._auto_commits():
            deadlines.append(self._next_auto_commit_ms)
        return min(deadlines, default=None)

    # -- the engine ---------------------------------------------------------------------------------------------------

    def _advance(self, now_ms: int) -> list[MemberEffect]:
        """Do whatever can be done now."""
        self._serve_asks(now_ms)
        if self._auto_commits() and now_ms >= self._next_auto_commit_ms:
            self._offer(AutoCommit("auto.commit.interval.ms has passed"))
        if self._may_join():
            self._transition_to(MemberState.JOINING)
            self._heartbeat.hasten(now_ms)
        if self.state is MemberState.RECONCILING and self.step is Step.IDLE and self._no_action():
            self._reconcile(now_ms)
        if self._may_heartbeat() and now_ms >= self._heartbeat.next_ms:
            self._send_heartbeat(now_ms)
        return self._out.drain()

    def _may_join(self) -> bool:
        ready = self.subscribed and (self._matches is None or self._snapshot is not None)
        idle = self.step is Step.IDLE and self._no_action()
        return ready and idle and self._active and self._leaving is None and self.state in MAY_JOIN

    def _may_heartbeat(self) -> bool:
        if not self._finder.known or self._heartbeat.in_flight is not None:
            return False
        if self.state is MemberState.JOINING:
            return self._active
        return self.generation.valid and self.state is not MemberState.LEAVING

    def _wants_coordinator(self) -> bool:
        if self._finder.known or self.fatal is not None:
            return False
        joining = self.subscribed and self._active
        return joining or self.generation.valid or bool(self._commits.waiting)

    def _auto_commits(self) -> bool:
        if not self.config.enable_auto_commit or self.step is not Step.IDLE or self._leaving is not None:
            return False
        owner = self.state in IN_GROUP and bool(self.owned)
        return self._no_action() and (self._manual or owner)
