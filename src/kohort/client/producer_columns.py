"""`send_columns`: a table on its way, batch by batch, from the caller's thread or on the loop. Needs pyarrow.

Rows are encoded where the call is made, as there is room for them in buffer.memory; sending goes on meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import wait
from typing import Any, NamedTuple

from kohort.client.batching import Batch, Part
from kohort.client.errors import KafkaTimeoutError
from kohort.client.producer_async import AsyncProducer, now_ms
from kohort.client.transactions import Step
from kohort.client.types import TopicPartition
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.records.encoded import EncodedRecords

NEEDS_ARROW = 'send_columns() needs Arrow: pip install "kohort[arrow]"'
Needs = Generator["tuple[str, int] | None", None, "ColumnsDelivery"]
"""What has to be waited for: a topic, and room for so many bytes; None: nothing, but others may run."""


class StoredRows(NamedTuple):
    """Rows one after the other in a partition, from `offset` on; -1 with acks=0."""

    topic: str
    partition: int
    offset: int
    rows: int


class ColumnsDelivery:
    """Rows on their way: `await` it, or `result(timeout)` from another thread; both raise what went wrong."""

    __slots__ = ("_batches", "_unseen", "rows")

    def __init__(self, unseen: dict[Batch, KafkaError]) -> None:
        self.rows = 0
        self._batches: list[tuple[Batch, int]] = []
        self._unseen = unseen

    def add(self, batch: Batch, rows: int) -> None:
        self._batches.append((batch, rows))
        self.rows += rows

    def done(self) -> bool:
        return all(batch.promise.done() for batch, _ in self._batches)

    def result(self, timeout: float | None = None) -> list[StoredRows]:
        """Where the rows are, by partition and offset, once all of them are stored."""
        left = wait([batch.promise for batch, _ in self._batches], timeout).not_done
        if left:
            waiting = sum(rows for batch, rows in self._batches if batch.promise in left)
            raise KafkaTimeoutError(f"{waiting} of {self.rows} rows are not stored after {timeout:g} s")
        return self._read()

    def __await__(self) -> Generator[Any, None, list[StoredRows]]:
        promises = [asyncio.wrap_future(batch.promise) for batch, _ in self._batches]
        if promises:
            yield from asyncio.shield(asyncio.gather(*promises)).__await__()
        return self._read()

    def _read(self) -> list[StoredRows]:
        found: list[StoredRows] = []
        lost, first = 0, None
        for batch, rows in self._batches:
            parts: list[Part] = batch.promise.result()
            for part, end in zip(parts, [*(part.start for part in parts[1:]), rows], strict=True):
                if part.error is not None or part.stored is None:
                    lost += end - part.start
                    first = first or part.error or KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
                else:
                    found.append(StoredRows(*batch.tp, part.stored.base_offset, end - part.start))
        if first is not None:
            for batch, _ in self._batches:
                self._unseen.pop(batch, None)
            first.add_note(f"{lost} of {self.rows} rows are not stored")
            raise first
        return _joined(sorted(found))


def _joined(found: list[StoredRows]) -> list[StoredRows]:
    made: list[StoredRows] = []
    for rows in found:
        last = made[-1] if made else None
        if last is not None and last[:2] == rows[:2] and (rows.offset < 0 or last.offset + last.rows == rows.offset):
            made[-1] = last._replace(rows=last.rows + rows.rows)
        else:
            made.append(rows)
    return made


def sending(producer: AsyncProducer, topic: str | None, data: Any, pump: Callable[[], Any]) -> Needs:
    """All rows into batches; whoever drives this waits for what it yields. Nothing is sent where a row cannot be."""
    try:
        import kohort.client.column_batches as columns
    except ImportError:
        raise ImportError(NEEDS_ARROW) from None
    table = columns.as_table(topic, data)
    limits, wall_ms = producer.config.batching(), int(time.time() * 1000)
    if topic is None or not columns.surely_fit(table, limits.max_request_size):
        for piece in columns.by_topic(topic, table):
            partitions, _ = yield from _known(producer, piece.topic)
            columns.check(piece, piece.rows(wall_ms), partitions, limits.max_request_size)
    delivery = ColumnsDelivery(producer._unseen)
    for piece in columns.by_topic(topic, table):
        known = yield from _known(producer, piece.topic)
        rows = piece.rows(wall_ms)
        with producer._lock:
            places = columns.place(rows, *known, producer._sticky_of(piece.topic), limits.batch_size)
        for partition, order in columns.batches(rows, places, limits.batch_size):
            encoded = rows.encode(order).compressed(limits.compression)
            while (taken := _enqueue(producer, TopicPartition(piece.topic, partition), encoded)) is None:
                yield piece.topic, encoded.size
            batch, news = taken
            delivery.add(batch, encoded.record_count)
            if news:
                pump()
            yield None
    return delivery


def _known(producer: AsyncProducer, topic: str) -> Generator[tuple[str, int], None, tuple[int, Sequence[int]]]:
    """How many partitions the topic has, and which of them have a leader."""
    _require_open(producer)
    while (known := producer._partitions.get(topic)) is None:
        yield topic, 0
    return known


def _require_open(producer: AsyncProducer) -> None:
    if producer._transactions is not None:
        producer._transactions.state.require("send_columns()", Step.OPEN)


def _enqueue(producer: AsyncProducer, tp: TopicPartition, encoded: EncodedRecords) -> tuple[Batch, bool] | None:
    """None where there is no room now; else also whether to `pump`."""
    _require_open(producer)
    with producer._lock:
        buffered = producer._batching.buffered_bytes
        if buffered and buffered + encoded.size > producer.config["buffer.memory"]:
            return None
        return producer._batching.append_encoded(tp, encoded, now_ms())
