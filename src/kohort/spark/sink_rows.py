"""The exactly-once sink on the executors: the rows of a task into a transaction of its own, which stays open.

A worker process keeps its producers. One whose transaction belongs to an earlier batch is free again, since Spark
begins a batch only when the last one has been committed; so the number of transactional ids stays small. No two
processes share one: a task that Spark has given up cannot touch the transaction of its successor.
"""

from __future__ import annotations

import os
import uuid
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from kohort.client.errors import ConfigError
from kohort.client.producer import Producer
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.spark.options import OptionError
from kohort.spark.sink_commit import OPTION, Share
from kohort.spark.sink_decisions import task_prefix

QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
"""Local properties that Spark sets for the jobs of a streaming query."""
_CLOSE_AFTER_ERROR_S = 10.0


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


class Transaction:
    """The transaction of one task, from its first row to the hand-over."""

    def __init__(self, settings: Mapping[str, Any], query: str, batch_id: int) -> None:
        self._settings = dict(settings)
        self._query, self._batch_id = query, batch_id
        self._pool = _POOL.of((query, *sorted(self._settings.items())))
        self._producer: Producer | None = None
        self._rows = self._digest = 0

    def produce(self, topic: str, key: Any, value: Any, where: dict[str, Any]) -> None:
        if self._producer is None:
            self._producer = self._begin()
        self._producer.send(topic, value, key, **where)
        self._rows += 1
        self._digest = (self._digest + row_digest(topic, key, value, where)) % 2**63

    def _begin(self) -> Producer:
        free = next((kept for kept in self._pool if kept.batch_id < self._batch_id), None)
        if free is not None:
            self._pool.remove(free)
            producer = free.producer
        else:
            name = task_prefix(self._query) + uuid.uuid4().hex[:12]
            try:
                producer = Producer(self._settings, transactional_id=name)
            except ConfigError as error:
                raise OptionError(f"the producer refuses its configuration: {error}") from None
        try:
            producer.begin()
        except BaseException:
            _close(producer)
            raise
        return producer

    def hand_over(self) -> Prepared:
        handed = None
        if self._producer is not None:
            handed = self._producer.hand_over()
            self._pool.append(_Kept(self._producer, self._batch_id))
            self._producer = None
        return Prepared(self._query, self._batch_id, Share(self._rows, self._digest, handed))

    def drop(self) -> None:
        """The task has failed: what it wrote is aborted."""
        if self._producer is not None:
            _close(self._producer)
            self._producer = None


def _close(producer: Producer) -> None:
    try:
        producer.close(_CLOSE_AFTER_ERROR_S)
    except KafkaError:
        pass  # the error that failed the task is the one to see; what is open is swept, or expires


def row_digest(topic: str, key: Any, value: Any, where: Mapping[str, Any]) -> int:
    """The same for equal rows, in whatever process and order: sums of it tell whether a task was repeated as it was."""
    place = zlib.crc32(f"{topic}\0{where.get('partition')}\0{where.get('headers')}".encode())
    return zlib.crc32(_bytes(value), zlib.crc32(_bytes(key), place))


def _bytes(field_: Any) -> bytes:
    if field_ is None:
        return b"\0null"
    return field_.encode() if isinstance(field_, str) else bytes(field_)


def advice(error: KafkaError, settings: Mapping[str, Any]) -> str:
    """What went wrong in a task, and what to do."""
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
    return str(error)
