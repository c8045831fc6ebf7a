"""Commits and committed offsets that somebody waits for: repeated while the failure is one that passes. Sans-IO.

What is not done in time is taken back from the member: a commit that was reported as failed is never sent later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kohort.client.config import Config
from kohort.client.effects import MemberEffect
from kohort.client.errors import KafkaTimeoutError
from kohort.client.group_member import GroupMember
from kohort.client.timing import Backoff
from kohort.client.types import OffsetAndMetadata, TopicPartition, partition_list
from kohort.protocol.errors import KafkaError


@dataclass(slots=True)
class GroupAsk:
    """Offsets to commit, or partitions whose commits are asked for."""

    ask_id: int
    offsets: Mapping[TopicPartition, OffsetAndMetadata] | None
    partitions: frozenset[TopicPartition]
    timeout_ms: int
    repeated: bool
    deadline_ms: int
    backoff: Backoff
    attempt: int = 0
    retry_at_ms: int | None = None
    """None while the member has it."""
    last: KafkaError | None = None

    @property
    def what(self) -> str:
        if self.offsets is not None:
            return f"commit of {partition_list(self.offsets)}"
        return f"committed offsets of {partition_list(self.partitions)}"


class GroupAsks:
    """`finished` holds (ask id, value, error) until somebody takes them."""

    def __init__(self, config: Config, member: GroupMember, uniform: Callable[[], float], servers: str) -> None:
        self._config = config
        self._member = member
        self._uniform = uniform
        self._servers = servers
        self._attempts = 0
        self._asks: dict[int, GroupAsk] = {}
        """By the number of the attempt that the member knows."""
        self.finished: list[tuple[int, Any, Exception | None]] = []

    def commit(
        self,
        ask_id: int,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        timeout_ms: int,
        repeated: bool,
        now_ms: int,
    ) -> list[MemberEffect]:
        return self._attempt(self._new(ask_id, dict(offsets), frozenset(), timeout_ms, repeated, now_ms), now_ms)

    def fetch(
        self, ask_id: int, partitions: frozenset[TopicPartition], timeout_ms: int, repeated: bool, now_ms: int
    ) -> list[MemberEffect]:
        return self._attempt(self._new(ask_id, None, partitions, timeout_ms, repeated, now_ms), now_ms)

    def _new(
        self,
        ask_id: int,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None,
        partitions: frozenset[TopicPartition],
        timeout_ms: int,
        repeated: bool,
        now_ms: int,
    ) -> GroupAsk:
        config = self._config
        backoff = Backoff(config["retry.backoff.ms"], config["retry.backoff.max.ms"], self._uniform)
        return GroupAsk(ask_id, offsets, partitions, timeout_ms, repeated, now_ms + timeout_ms, backoff)

    def _attempt(self, ask: GroupAsk, now_ms: int) -> list[MemberEffect]:
        self._attempts += 1
        ask.attempt, ask.retry_at_ms = self._attempts, None
        self._asks[ask.attempt] = ask
        if ask.offsets is not None:
            return self._member.commit(ask.attempt, ask.offsets, now_ms)
        return self._member.fetch_offsets(ask.attempt, ask.partitions, now_ms)

    def answered(self, attempt: int, value: Any, error: Exception | None, now_ms: int) -> None:
        ask = self._asks.get(attempt)
        if ask is None:
            return
        if ask.repeated and isinstance(error, KafkaError) and error.code.retriable:
            ask.last = error
            ask.retry_at_ms = now_ms + ask.backoff.next_ms()
        else:
            self._finish(ask, value, error)

    def _finish(self, ask: GroupAsk, value: Any, error: Exception | None) -> None:
        del self._asks[ask.attempt]
        self.finished.append((ask.ask_id, value, error))

    def forget(self, ask_id: int) -> None:
        """Whoever asked is gone."""
        for ask in [ask for ask in self._asks.values() if ask.ask_id == ask_id]:
            self._member.forget(ask.attempt)
            del self._asks[ask.attempt]

    def on_time(self, now_ms: int) -> list[MemberEffect]:
        effects: list[MemberEffect] = []
        for ask in list(self._asks.values()):
            if now_ms >= ask.deadline_ms:
                sent = self._member.forget(ask.attempt) and ask.retry_at_ms is None
                self._finish(ask, None, self._timed_out(ask, sent))
            elif ask.retry_at_ms is not None and now_ms >= ask.retry_at_ms:
                del self._asks[ask.attempt]
                effects += self._attempt(ask, now_ms)
        return effects

    def _timed_out(self, ask: GroupAsk, sent: bool) -> KafkaTimeoutError:
        if ask.last is not None:
            hint = f"the last answer was {ask.last}"
        elif sent:
            hint = "the coordinator did not answer"
        else:
            hint = f"the coordinator was not reached through {self._servers}"
        error = KafkaTimeoutError(f"{ask.what}: not done within {ask.timeout_ms / 1000:g} s; {hint}")
        error.__cause__ = ask.last
        return error

    def next_deadline(self) -> int | None:
        due = [ask.deadline_ms for ask in self._asks.values()]
        due += [ask.retry_at_ms for ask in self._asks.values() if ask.retry_at_ms is not None]
        return min(due, default=None)
