"""What a producer takes and gives: fields as bytes, and a record on its way. Waiting is here, sending is not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple

from kohort.client.batching import Batch, Part
from kohort.client.errors import KafkaTimeoutError
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.records.batch import Header

Headers = Mapping[str, bytes | str | None] | Iterable[tuple[str, bytes | str | None]]


class RecordMetadata(NamedTuple):
    """Where a record is. `offset` is -1 with acks=0; `timestamp_ms` is the broker's where the topic says so."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class Delivery:
    """A record on its way: `await` it, or `result(timeout)` from another thread; both raise what went wrong."""

    __slots__ = ("_batch", "_place", "_unseen")

    def __init__(self, batch: Batch, place: int, unseen: dict[Batch, KafkaError]) -> None:
        self._batch = batch
        self._place = place
        self._unseen = unseen

    def done(self) -> bool:
        return bool(self._batch.promise.done())

    def result(self, timeout: float | None = None) -> RecordMetadata:
        try:
            return self._read(self._batch.promise.result(timeout))
        except TimeoutError as error:
            if isinstance(error, KafkaError):
                raise
            raise KafkaTimeoutError(f"a record to {self._batch.tp} is not stored after {timeout:g} s") from None

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        parts = yield from asyncio.shield(asyncio.wrap_future(self._batch.promise)).__await__()
        return self._read(parts)

    def add_done_callback(self, callback: Callable[[RecordMetadata | None, KafkaError | None], Any]) -> None:
        """`callback(metadata, error)`, one of them None, on the producer's own thread: it must not block."""

        def done(promise: Future[list[Part]]) -> None:
            try:
                found = self._read(promise.result())
            except KafkaError as error:
                callback(None, error)
            else:
                callback(found, None)

        self._batch.promise.add_done_callback(done)

    def _read(self, parts: list[Part]) -> RecordMetadata:
        part = next(part for part in reversed(parts) if part.start <= self._place)
        if part.error is not None or part.stored is None:
            self._unseen.pop(self._batch, None)
            raise part.error or KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        base, appended_ms = part.stored
        offset = base if base < 0 else base + self._place - part.start
        timestamp_ms = appended_ms if appended_ms >= 0 else self._batch.records[self._place].timestamp
        return RecordMetadata(*self._batch.tp, offset, timestamp_ms)


def to_bytes(what: str, value: Any, serializer: Callable[[Any], bytes | None] | None) -> bytes | None:
    if serializer is not None:
        value = serializer(value)
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    hint = "" if what.startswith("header") else f"; or set {what}.serializer"
    raise TypeError(f"a {what} must be bytes, str or None, not {type(value).__name__}{hint}")


def to_headers(headers: Headers) -> tuple[Header, ...]:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return tuple((name, to_bytes(f"header {name}", value, None)) for name, value in pairs)
