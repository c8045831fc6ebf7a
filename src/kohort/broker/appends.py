"""What is to be appended in this turn: once per log, in the order it came, then whoever asked is told.

Under `flush.messages=1` (or `kohort.fsync=always`) they are told only when the data is on disk; the log shares one sync
among all who wait (group commit).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.records.batch import BatchHeader
from kohort.storage.producers import CLIENT, Origin

if TYPE_CHECKING:
    from kohort.broker.topics import Partition
    from kohort.storage.errors import StorageError

logger = logging.getLogger("kohort.broker")


JUDGED = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    }
)
"""What a batch is refused with for what the log knows of its producer; some end the producer."""


class Owner(Protocol):
    """Who wants to know how an append went."""

    def appended(self, append: Append, now_ms: int) -> None: ...


class Append:
    """One batch for one partition; the lower half is filled in when it is done."""

    __slots__ = (
        "append_time_ms",
        "base_offset",
        "data",
        "error",
        "header",
        "log_start_offset",
        "message",
        "origin",
        "owner",
        "partition",
        "purpose",
    )

    def __init__(
        self,
        partition: Partition,
        data: Any,
        header: BatchHeader,
        owner: Owner,
        purpose: Any = None,
        origin: Origin = CLIENT,
    ) -> None:
        self.partition = partition
        self.data = data
        self.header = header
        self.owner = owner
        self.purpose = purpose  # what its owner wants to find again when it is done
        self.origin = origin
        self.error: ErrorCode = ErrorCode.NONE
        self.message: str | None = None
        self.base_offset = -1
        self.append_time_ms = -1
        self.log_start_offset = -1

    def fail(self, error: ErrorCode, message: str | None = None) -> None:
        self.error = error
        self.message = message


class Appends:
    """The queue of a turn. `grown` collects the partitions that have new records, for parked fetches."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self.queued: dict[Partition, list[Append]] = {}
        self.durable: deque[tuple[list[Append], StorageError | None]] = deque()
        self.woken = False  # since the last `settle`, which may be still to come
        self.failures = 0  # batches that could not be stored, since the start
        self.unsettled = 0  # writes whose owners wait for the disk
        self.grown: dict[Partition, None] = {}  # in order, so that a run can be repeated

    def add(self, append: Append) -> None:
        queue = self.queued.get(append.partition)
        if queue is None:
            self.queued[append.partition] = [append]
        else:
            queue.append(append)

    def run(self, now_ms: int) -> None:
        """Append everything queued and tell the owners of what is thereby done."""
        queued, self.queued = self.queued, {}
        for partition, appends in queued.items():
            if partition.deleted:
                for append in appends:
                    append.fail(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            else:
                self._append_all(partition, appends, now_ms)
            if partition.log.config.flush_every_append:
                self._await_flush(partition, appends, now_ms)
            else:
                for append in appends:
                    append.owner.appended(append, now_ms)

    def _append_all(self, partition: Partition, appends: list[Append], now_ms: int) -> None:
        """Writes are joined, but a producer's next batch is judged only after its last one is in the log."""
        if len(appends) == 1 and appends[0].header.producer_id < 0:
            self._write(partition, appends, now_ms)
            return
        group: list[Append] = []
        producer_ids: set[int] = set()
        for append in appends:
            producer_id = append.header.producer_id
            if producer_id in producer_ids:
                self._write(partition, group, now_ms)
                group, producer_ids = [], set()
            if producer_id >= 0:
                if not _accepted(partition, append):
                    continue
                producer_ids.add(producer_id)
            group.append(append)
        if group:
            self._write(partition, group, now_ms)

    def _write(self, partition: Partition, appends: list[Append], now_ms: int) -> None:
        data = appends[0].data if len(appends) == 1 else b"".join([append.data for append in appends])
        try:
            done = partition.log.append(data, leader_epoch=partition.leader_epoch, now_ms=now_ms)
        except KafkaError as error:
            self.failures += len(appends)
            logger.error("append to %s failed: %s", partition, error)
            for append in appends:
                append.fail(error.code, error.message)
            return
        except Exception:
            self.failures += len(appends)
            logger.exception("append to %s failed", partition)
            for append in appends:
                append.fail(ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        if not partition.log.config.flush_every_append:
            self.grown[partition] = None
        partition.bytes_in += len(data)
        partition.messages_in += done.last_offset - done.base_offset + 1
        offset = done.base_offset
        for append in appends:
            append.base_offset = offset
            append.append_time_ms = done.log_append_time_ms
            append.log_start_offset = done.log_start_offset
            offset += append.header.last_offset_delta + 1

    # Durability.

    def _await_flush(self, partition: Partition, appends: list[Append], now_ms: int) -> None:
        waiting = [append for append in appends if append.error == ErrorCode.NONE]
        judged = [append for append in appends if append.error in JUDGED]
        for append in appends:
            if append.error != ErrorCode.NONE and append.error not in JUDGED:
                append.owner.appended(append, now_ms)
        if judged:  # perhaps by what an old leader knew, that does not know of the next one
            self.unsettled += 1
            partition.log.confirm(partial(self._flushed, judged))
        if waiting:
            self.unsettled += 1
            partition.log.flush_async(partial(self._flushed, waiting))

    def _flushed(self, appends: list[Append], error: StorageError | None) -> None:
        """Called by the log, on whichever thread: only hand it over. Whoever finds it woken came before `settle`."""
        self.durable.append((appends, error))
        if not self.woken:
            self.woken = True
            self._wake()

    def settle(self, now_ms: int) -> None:
        """Tell the owners of what has become durable since."""
        self.woken = False  # first: what comes from now on may be too late for the loop below
        while self.durable:
            appends, error = self.durable.popleft()
            self.unsettled -= 1
            for append in appends:
                if error is not None:
                    self.failures += 1
                    append.fail(error.code, error.message)
                else:
                    self.grown[append.partition] = None
                append.owner.appended(append, now_ms)


def _accepted(partition: Partition, append: Append) -> bool:
    """Judge an idempotent batch; a duplicate is acknowledged with the offset of the original."""
    verdict = partition.log.producers.check(append.header, append.origin)
    if verdict.duplicate is not None:
        append.base_offset = verdict.duplicate.first_offset
        append.append_time_ms = verdict.duplicate.timestamp
        append.log_start_offset = partition.log.start_offset
        return False
    if verdict.error != ErrorCode.NONE:
        logger.info("%s: refused a batch: %s", partition, verdict.reason)
        append.fail(verdict.error, verdict.reason)
        return False
    return True
