"""Commits and the coordinator, as members of either protocol deal with them: what may be sent, what an answer means.

Builds on `group_member`; what being out of the group means is said by the members themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kohort.client.commits import NO_GENERATION, Ask, Generation, Kind, Verdict, commit_outcome
from kohort.client.effects import AutoCommit, Fail, MemberEffect
from kohort.client.errors import CommitFailedError
from kohort.client.group_member import GroupMember
from kohort.client.types import OffsetAndMetadata, TopicPartition, partition_list
from kohort.protocol.errors import ErrorCode, KafkaError

COORDINATOR_MOVED = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})


class Committing(GroupMember):
    # -- the coordinator ----------------------------------------------------------------------------------------------

    def coordinator_disconnected(self, reason: str, now_ms: int) -> list[MemberEffect]:
        self._coordinator_lost(reason, now_ms)
        return self._advance(now_ms)

    def _coordinator_answer(self, response: Any, now_ms: int) -> None:
        error = self._finder.received(response, now_ms)
        if self._finder.known:
            self._heartbeat.session_renewed(now_ms)
            self._heartbeat.next_ms = min(self._heartbeat.next_ms, now_ms)
        if error is not None:
            self._finder.retry_at_ms = now_ms + self.config.retry_backoff_ms
            self._fail(error, now_ms)

    def _finding_failed(self, error: KafkaError | None, now_ms: int) -> None:
        self._finder.failed(now_ms)
        if error is not None and not error.code.retriable:
            self._fail(error, now_ms)

    def _fail(self, error: KafkaError, now_ms: int) -> None:
        for ask in self._commits.take_waiting():
            self._commits.finish(ask, error)
        if self.subscribed:
            self._active = False
            self._out.add(Fail(error))

    def _coordinator_lost(self, reason: str, now_ms: int) -> None:
        """It is looked for again; whoever waits for an answer hears of it, commits before a hand-over wait on."""
        self._finder.lost(reason, now_ms)
        self._heartbeat.in_flight = None
        error = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the coordinator was lost: {reason}")
        asks, self._commits.in_flight = self._commits.in_flight, {}
        for ask in asks.values():
            if ask.kind is Kind.PREPARE:
                self._commits.submit(ask)
            else:
                self._commits.finish(ask, error)

    # -- asking -------------------------------------------------------------------------------------------------------

    def auto_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], now_ms: int) -> list[MemberEffect]:
        assert isinstance(self._taken, AutoCommit)
        self._taken = None
        self._next_auto_commit_ms = now_ms + self.config.auto_commit_interval_ms
        if not self._resumed(now_ms):
            kind = Kind.PREPARE if self._commit_awaited() else Kind.AUTO
            if offsets:
                self._commits.submit(Ask(kind, 0, dict(offsets)))
            elif kind is Kind.PREPARE:
                self._give_up(now_ms)
        return self._advance(now_ms)

    def _serve_asks(self, now_ms: int) -> None:
        """Look for the coordinator where it is wanted, and send it what waits."""
        if self._prepare_ask is not None and now_ms >= self._retry_at_ms:
            ask, self._prepare_ask = self._prepare_ask, None
            self._commits.submit(ask)
        if self._wants_coordinator():
            self._finder.find(now_ms)
        if self._finder.known:
            for ask in self._commits.take_waiting():
                self._send_ask(ask, now_ms)

    def _send_ask(self, ask: Ask, now_ms: int) -> None:
        if ask.kind is Kind.FETCH:
            self._commits.send_fetch(ask, self._asks_as())
            return
        if self._manual or not (self.subscribed or self.owned):
            generation, static = NO_GENERATION, False
        elif self._may_commit():
            generation, static = self.generation, True
        else:
            self._ask_failed(ask, self._refuse_commit(ask), now_ms)
            return
        try:
            self._commits.send_commit(ask, generation, static, self.LEAST_COMMIT_VERSION)
        except ValueError as error:
            self._ask_failed(ask, error, now_ms)

    LEAST_COMMIT_VERSION = 0
    """Of a commit with a generation or an epoch."""

    def _asks_as(self) -> Generation:
        """As whom committed offsets are asked for; the classic protocol asks as nobody."""
        return NO_GENERATION

    def _may_commit(self) -> bool:
        raise NotImplementedError

    def _refuse_commit(self, ask: Ask) -> KafkaError:
        return self._commit_failed(ask, ErrorCode.UNKNOWN_MEMBER_ID)

    def _commit_failed(self, ask: Ask, code: ErrorCode) -> CommitFailedError:
        where = f"{self.A_GENERATION} {ask.generation.generation_id} of group" if ask.generation.valid else "group"
        return CommitFailedError(
            code,
            f"offsets of {partition_list(ask.offsets)} were not committed: this consumer is not in {where} "
            f"{self.config.group_id}. {self._why_out or 'It has not joined yet: poll() joins'}. Partitions it had "
            "belong to other members now, which read again from the last commit; poll() joins the group again",
        )

    A_GENERATION = "generation"
    """What the number of a `Generation` is called."""

    # -- answers ------------------------------------------------------------------------------------------------------

    def _ask_answered(self, ask: Ask, response: Any, now_ms: int) -> None:
        if ask.kind is Kind.FETCH:
            self._fetch_answered(ask, response, now_ms)
            return
        error, verdict = commit_outcome(response)
        if error is None:
            self._ask_succeeded(ask, now_ms)
        elif verdict is Verdict.COORDINATOR_LOST:
            self._coordinator_lost(f"OffsetCommit answered {error.code.name}", now_ms)
            self._ask_failed(ask, error, now_ms)
        else:
            self._commit_refused(ask, error, verdict, now_ms)

    def _fetch_answered(self, ask: Ask, response: Any, now_ms: int) -> None:
        if self._commits.fetch_answered(ask, response) is Verdict.COORDINATOR_LOST:
            self._coordinator_lost("OffsetFetch: not the coordinator (any more)", now_ms)

    def _commit_refused(self, ask: Ask, error: KafkaError, verdict: Verdict, now_ms: int) -> None:
        raise NotImplementedError

    def _ask_succeeded(self, ask: Ask, now_ms: int) -> None:
        self._commits.finish(ask, None)
        if ask.kind is Kind.PREPARE and self._commit_awaited():
            self._give_up(now_ms)

    def _ask_failed(self, ask: Ask, error: Exception, now_ms: int) -> None:
        self._commits.finish(ask, error)
        retriable = isinstance(error, KafkaError) and error.code.retriable
        if ask.kind is Kind.AUTO:
            self._out.report(f"group {self.config.group_id}: automatic commit failed: {error}", "WARNING")
            if retriable:
                self._next_auto_commit_ms = now_ms + self.config.retry_backoff_ms
        elif ask.kind is Kind.PREPARE and self._commit_awaited():
            if retriable and not _of_a_topic_that_is_gone(error) and now_ms < self._give_up_by_ms:
                self._prepare_ask, self._retry_at_ms = ask, now_ms + self.config.retry_backoff_ms
                return
            text = f"commit before giving partitions up failed, going on: {error}"
            self._out.report(f"group {self.config.group_id}: {text}", "WARNING")
            self._give_up(now_ms)

    def _commit_too_late(self, now_ms: int) -> None:
        """Where the commit before giving partitions up has taken all of its time."""
        if self._commit_awaited() and now_ms >= self._give_up_by_ms:
            text = "the commit before giving partitions up took too long, going on without it"
            self._out.report(f"group {self.config.group_id}: {text}", "WARNING")
            self._give_up(now_ms)

    # -- provided by the members --------------------------------------------------------------------------------------

    def _wants_coordinator(self) -> bool:
        raise NotImplementedError

    def _commit_awaited(self) -> bool:
        """Partitions are given up when a commit has been answered, and nobody works on it."""
        raise NotImplementedError

    def _give_up(self, now_ms: int) -> None:
        raise NotImplementedError

    def _resumed(self, now_ms: int) -> bool:
        """While the application was busy something came in between, which comes first now."""
        raise NotImplementedError


def _of_a_topic_that_is_gone(error: Exception) -> bool:
    """No retry brings it back, and nobody else waits for its offsets."""
    return isinstance(error, KafkaError) and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
