"""One member of a classic consumer group, sans-IO: events in, effects out, `now_ms` an argument.

    poll -> find coordinator -> [commit, revoke] -> JoinGroup -> (assign) -> SyncGroup -> [commit, revoke] -> assign

A shell carries out the effects and feeds back what happened. What the application must take part in is an action:
`take()` hands it out when the shell is ready, the shell answers with `auto_commit`, `revoked` or `assigned`, however
long it takes; heartbeats go on meanwhile. Two differences from Kafka's consumer: a rejoin that needs nothing of the
application goes on between polls, and a cooperative member commits right before it gives partitions up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kohort.client import snapshots
from kohort.client.effects import (
    AutoCommit,
    MemberEffect,
    MetadataSnapshot,
    RefreshMetadata,
)
from kohort.client.errors import ConfigError
from kohort.client.group_member import IllegalTransition
from kohort.client.liveness import Liveness
from kohort.client.states import HEARTBEATING, STEPS, TRANSITIONS, MemberConfig, MemberState, Step
from kohort.protocol.errors import ErrorCode, KafkaError

__all__ = ["STEPS", "TRANSITIONS", "IllegalTransition", "Member", "MemberConfig", "MemberState", "Step"]


class Member(Liveness):
    """Membership of one consumer in one group. Every event returns the effects to carry out, in order."""

    # -- events: the application --------------------------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str], now_ms: int) -> list[MemberEffect]:
        self._matches = None
        return self._subscription_changed(frozenset(topics), now_ms)

    def subscribe_pattern(self, matches: Callable[[str], object], now_ms: int) -> list[MemberEffect]:
        self._matches = matches
        self._snapshot = None
        return self._subscription_changed(frozenset(), now_ms)

    def subscribe_regex(self, regex: str, now_ms: int) -> list[MemberEffect]:
        raise ConfigError(
            f"the classic protocol has no patterns of the broker: give group.protocol=consumer, "
            f"or re.compile({regex!r}), which is matched here"
        )

    def _subscription_changed(self, topics: frozenset[str], now_ms: int) -> list[MemberEffect]:
        self._manual = False
        self.topics = topics
        if self._joined_topics is None:
            self._request_rejoin("first join", now_ms)
        elif self._matches is None:
            self._check_subscription(now_ms)
        self._watch()
        if self._matches is not None:
            self._out.add(RefreshMetadata("a pattern subscription needs the names of all topics"))
        return self._advance(now_ms)

    def request_rejoin(self, reason: str, now_ms: int) -> list[MemberEffect]:
        self._request_rejoin(reason, now_ms)
        return self._advance(now_ms)

    def leave(self, reason: str, now_ms: int, send: bool | None = None) -> list[MemberEffect]:
        """By default dynamic members send LeaveGroup, static ones keep their place until the session times out."""
        self._leaving = reason
        self._leave_forced = send
        self._active = False
        if self._taken is None:
            self._begin_leave(now_ms)
        return self._advance(now_ms)

    def _dropped_out(self, now_ms: int) -> None:
        self._go(Step.IDLE)

    # -- events: the world --------------------------------------------------------------------------------------------

    def metadata_updated(self, snapshot: MetadataSnapshot, now_ms: int) -> list[MemberEffect]:
        if not self._match(snapshot):
            return self._advance(now_ms)
        self._snapshot = snapshot
        self._check_subscription(now_ms)
        if self.step is Step.ASSIGNING:
            self._assign_if_informed(now_ms)
        elif self._assigned_from is not None and self._informed() and not self._rejoin_needed:
            current = self._relevant()
            if current != self._assigned_from:
                changes = snapshots.difference(self._assigned_from, current)
                self._request_rejoin(f"cached metadata has changed: {changes}", now_ms)
        return self._advance(now_ms)

    def _check_subscription(self, now_ms: int) -> None:
        if self._joined_topics is None or self._joined_topics == self.topics or self._rejoin_needed:
            return
        if self.step in (Step.JOINING, Step.ASSIGNING, Step.SYNCING):
            return
        added, dropped = sorted(self.topics - self._joined_topics), sorted(self._joined_topics - self.topics)
        changes = [f"+{topic}" for topic in added] + [f"-{topic}" for topic in dropped]
        self._request_rejoin(f"subscription has changed: {', '.join(changes)}", now_ms)

    def received(self, token: int, response: Any, now_ms: int) -> list[MemberEffect]:
        if token == self._finder.in_flight:
            self._coordinator_answer(response, now_ms)
        elif token == self._heartbeat.in_flight:
            self._heartbeat_answer(ErrorCode.of(response.error_code), now_ms)
        elif token == self._token:
            self._token = None
            if self.step is Step.JOINING:
                self._join_answer(response, now_ms)
            elif self.step is Step.SYNCING:
                self._sync_answer(response, now_ms)
            elif self.step is Step.LEAVING:
                self._left(now_ms)
        elif token == self._look:
            self._looked(response, now_ms)
        elif (ask := self._commits.in_flight.pop(token, None)) is not None:
            self._ask_answered(ask, response, now_ms)
        return self._advance(now_ms)

    def send_failed(self, token: int, reason: str, now_ms: int, error: KafkaError | None = None) -> list[MemberEffect]:
        hopeless = error is not None and not error.code.retriable
        if token == self._finder.in_flight:
            self._finding_failed(error, now_ms)
        elif error is not None and hopeless:
            self._request_refused(token, error, now_ms)
        elif token in (self._heartbeat.in_flight, self._token, self._look) or token in self._commits.in_flight:
            self._coordinator_lost(reason, now_ms)
        return self._advance(now_ms)

    def on_time(self, now_ms: int) -> list[MemberEffect]:
        if self.state in HEARTBEATING:
            self._mind_the_session(now_ms)
        self._commit_too_late(now_ms)
        if self.step is Step.LEAVING and now_ms >= self._give_up_by_ms:
            self._token = None
            self._left(now_ms)
        return self._advance(now_ms)

    def next_deadline(self) -> int | None:
        deadlines = []
        if self._wants_coordinator() and self._finder.in_flight is None:
            deadlines.append(self._finder.retry_at_ms or 0)
        if self.step is Step.WAITING and self._may_join() and self._finder.known:
            deadlines.append(self._retry_at_ms)
        if self.step is Step.LEAVING or self._commit_awaited():
            deadlines.append(self._give_up_by_ms)
        if self._prepare_ask is not None:
            deadlines.append(self._retry_at_ms)
        if self.state in HEARTBEATING:
            deadlines.append(self._heartbeat.poll_ends_ms)
            if self._finder.known:
                deadlines.append(self._heartbeat.session_ends_ms)
                if self._heartbeat.in_flight is None:
                    deadlines.append(self._heartbeat.next_ms)
        if self._auto_commits() and self._no_action():
            deadlines.append(self._next_auto_commit_ms)
        return min(deadlines, default=None)

    # -- the engine ---------------------------------------------------------------------------------------------------

    def _advance(self, now_ms: int) -> list[MemberEffect]:
        self._serve_asks(now_ms)
        if self._auto_commits() and self._no_action() and now_ms >= self._next_auto_commit_ms:
            self._offer(AutoCommit("auto.commit.interval.ms has passed"))
        if self.step is Step.IDLE and self._may_join() and self._no_action():
            self._prepare_rejoin(now_ms)
        if self.step is Step.WAITING and self._may_join() and self._finder.known and now_ms >= self._retry_at_ms:
            self._send_join(now_ms)
        return self._out.drain()

    def _may_join(self) -> bool:
        ready = self.subscribed and (self._matches is None or self._snapshot is not None)
        return ready and self._active and self._rejoin_needed and self._leaving is None

    def _wants_coordinator(self) -> bool:
        if self._finder.known or self.fatal is not None:
            return False
        joining = self.subscribed and self._active
        return joining or self.state is not MemberState.UNJOINED or bool(self._commits.waiting)

    def _auto_commits(self) -> bool:
        if not self.config.enable_auto_commit or self.step is not Step.IDLE or self._leaving is not None:
            return False
        return self._manual or (self.state is MemberState.STABLE and bool(self.owned))
