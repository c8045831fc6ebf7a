"""Positions that somebody waits for: answered once the fetcher knows them, or with what stands in the way. Sans-IO."""

from __future__ import annotations

from typing import NamedTuple

from kohort.client.effects import Done
from kohort.client.errors import KafkaTimeoutError
from kohort.client.fetcher import Fetcher
from kohort.client.types import TopicPartition


class PositionAsk(NamedTuple):
    partition: TopicPartition
    timeout_ms: int
    deadline_ms: int


class PositionAsks:
    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher
        self._asks: dict[int, PositionAsk] = {}

    def begin(self, ask_id: int, partition: TopicPartition, timeout_ms: int, now_ms: int) -> None:
        self._asks[ask_id] = PositionAsk(partition, timeout_ms, now_ms + timeout_ms)

    def forget(self, ask_id: int) -> None:
        self._asks.pop(ask_id, None)

    def take_finished(self, failure: Exception | None, now_ms: int) -> list[Done]:
        """`failure` is why positions cannot be looked up at all."""
        if not self._asks:
            return []
        found = {ask_id: self._answer(ask_id, ask, failure, now_ms) for ask_id, ask in self._asks.items()}
        finished = [done for done in found.values() if done is not None]
        for done in finished:
            del self._asks[done.ask_id]
        return finished

    def _answer(self, ask_id: int, ask: PositionAsk, failure: Exception | None, now_ms: int) -> Done | None:
        try:
            offset = self._fetcher.position(ask.partition)
        except ValueError as gone:
            return Done(ask_id, None, gone)
        if offset is not None:
            return Done(ask_id, offset, None)
        error = self._fetcher.take_error() or failure
        if error is None and now_ms >= ask.deadline_ms:
            text = f"the position of {ask.partition} was not found within {ask.timeout_ms / 1000:g} s"
            error = KafkaTimeoutError(text)
        return None if error is None else Done(ask_id, None, error)

    def next_deadline(self) -> int | None:
        return min((ask.deadline_ms for ask in self._asks.values()), default=None)
