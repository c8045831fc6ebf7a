"""The sink on the executors: the columns of a task to kohort's producer. Exactly once: into a transaction of the task's
own, which stays open.

A worker process keeps its producers. One whose transaction belongs to an earlier batch is free again, since Spark
begins a batch only when the last one has been committed; so the number of transactional ids stays small. No two
processes share one: a task that Spark has given up cannot touch the transaction of its successor.
"""

from __future__ import annotations

import os
import uuid
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from kohort.client.column_batches import digest
from kohort.client.errors import ConfigError, KafkaTimeoutError
from kohort.client.producer import Producer
from kohort.client.producer_columns import ColumnsDelivery
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.records.encode_columns import ENOUGH_BYTES, MOST_ROWS, RowError
from kohort.spark.options import OptionError
from kohort.spark.sink_commit import OPTION, Share
from kohort.spark.sink_decisions import task_prefix

QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
"""Local properties that Spark sets for the jobs of a streaming query."""
PLAIN = "at-least-once"
_CLOSE_AFTER_ERROR_S = 10.0
T_co = TypeVar("T_co", covariant=True)


@dataclass
class Prepared(WriterCommitMessage):
    """What one task has written and left open."""

    query: str
    batch_id: int
    share: Share


@dataclass
class _Kept:
    producer: Producer
    batch_id: int


@dataclass
class _Pool:
    """Of this process: a fork begins with an empty one."""

    owner: int = 0
    kept: dict[tuple[object, ...], list[_Kept]] = field(default_factory=dict)

    def of(self, key: tuple[object, ...]) -> list[_Kept]:
        if self.owner != os.getpid():
            self.owner, self.kept = os.getpid(), {}
        return self.kept.setdefault(key, [])


_POOL = _Pool()


def task_identity() -> tuple[str, int]:
    """The query and batch that this task works for."""
    context = TaskContext.get()
    query = None if context is None else context.getLocalProperty(QUERY_ID)
    batch = None if context is None else context.getLocalProperty(BATCH_ID)
    if not query or not batch:
        raise OptionError("delivery=exactly-once is for micro-batches of writeStream; Spark names no batch here")
    return query, int(batch)


class Writes(Protocol[T_co]):
    """The rows of one task, on their way."""

    def send(self, topic: str | None, table: pa.Table) -> None: ...

    def finish(self) -> T_co:
        """Returns when the brokers have all of them."""

    def drop(self) -> None:
        """The task has failed: nothing that it left behind may be sent by the next one."""


def gathered(columns: tuple[str, ...], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Spark's batches are small; the more rows at once, the fuller the batches of each partition. The first goes alone,
    so that the brokers have work early."""
    group: list[pa.RecordBatch] = []
    enough = 1
    for batch in batches:
        group.append(batch.select(columns))
        if sum(part.num_rows for part in group) >= enough or sum(part.nbytes for part in group) >= ENOUGH_BYTES:
            yield pa.Table.from_batches(group)
            group, enough = [], MOST_ROWS
    if group:
        yield pa.Table.from_batches(group)


class PlainWrites:
    """At least once, by a producer that the worker keeps."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._pool = _POOL.of((PLAIN, *sorted(settings.items())))
        self._kept = self._pool.pop() if self._pool else _Kept(_new_producer(settings), 0)
        self._under_way: deque[ColumnsDelivery] = deque()
        self._rows = 0

    def send(self, topic: str | None, table: pa.Table) -> None:
        self._under_way.append(self._kept.producer.send_columns(topic, table))
        while self._under_way and self._under_way[0].done():
            self._acknowledge()

    def _acknowledge(self) -> None:
        self._rows += sum(stored.rows for stored in self._under_way.popleft().result())

    def finish(self) -> int:
        while self._under_way:
            self._acknowledge()
        self._pool.append(self._kept)
        return self._rows

    def drop(self) -> None:
        _close(self._kept.producer)


class Transaction:
    """The transaction of one task, from its first row to the hand-over."""

    def __init__(self, settings: Mapping[str, Any], query: str, batch_id: int) -> None:
        self._settings = dict(settings)
        self._query, self._batch_id = query, batch_id
        self._pool = _POOL.of((query, *sorted(self._settings.items())))
        self._producer: Producer | None = None
        self._rows = self._digest = 0

    def send(self, topic: str | None, table: pa.Table) -> None:
        if not table.num_rows:
            return
        if self._producer is None:
            self._producer = self._begin()
        self._producer.send_columns(topic, table)
        self._rows += table.num_rows
        self._digest = (self._digest + digest(topic, table)) % 2**63

    def _begin(self) -> Producer:
        free = next((kept for kept in self._pool if kept.batch_id < self._batch_id), None)
        if free is not None:
            self._pool.remove(free)
            producer = free.producer
        else:
            name = task_prefix(self._query) + uuid.uuid4().hex[:12]
            producer = _new_producer({**self._settings, "transactional.id": name})
        try:
            producer.begin()
        except BaseException:
            _close(producer)
            raise
        return producer

    def finish(self) -> Prepared:
        handed = None
        if self._producer is not None:
            handed = self._producer.hand_over()
            self._pool.append(_Kept(self._producer, self._batch_id))
            self._producer = None
        return Prepared(self._query, self._batch_id, Share(self._rows, self._digest, handed))

    def drop(self) -> None:
        """What it wrote is aborted."""
        if self._producer is not None:
            _close(self._producer)
            self._producer = None


def _new_producer(settings: Mapping[str, Any]) -> Producer:
    try:
        return Producer(settings)
    except ConfigError as error:
        raise OptionError(f"the producer refuses its configuration: {error}") from None


def _close(producer: Producer) -> None:
    try:
        producer.close(_CLOSE_AFTER_ERROR_S)
    except KafkaError:
        pass  # the error that failed the task is the one to see; what is open is swept, or expires


_ADVICE = {
    "topic": "or set the option topic",
    "headers": "with filter(headers, h -> h.key is not null). A null value is fine, and so is a null array",
}


def advice(error: KafkaError | RowError, settings: Mapping[str, Any]) -> str:
    """What went wrong in a task, and what to do."""
    if isinstance(error, RowError):
        return f"a row cannot be written: {error} {_ADVICE.get(error.column, '')}".rstrip()
    timeout = settings.get("transaction.timeout.ms")
    if error.code is ErrorCode.INVALID_TRANSACTION_TIMEOUT:
        return (
            f"the brokers refuse {OPTION}={timeout}: it is above their transaction.max.timeout.ms. Set the option to "
            "that or less"
        )
    if error.code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
        return (
            f"{error}: a row is too large. The producer takes kafka.max.request.size "
            f"({settings.get('max.request.size', '1048576')}), the topic its max.message.bytes: raise what is smaller, "
            "or write less into a row"
        )
    if error.code in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE):
        return (
            f"{error}. The task has run for longer than {OPTION} ({timeout}), or another run of this query has begun, "
            "which aborts what this one had open: nothing of the batch is published"
        )
    if isinstance(error, KafkaTimeoutError):
        return (
            f"{error}. That is kafka.delivery.timeout.ms ({settings.get('delivery.timeout.ms', '120000')}), or for "
            "metadata and room kafka.max.block.ms: can the brokers be reached, and are enough of the partition's "
            "replicas in sync?"
        )
    return str(error)
