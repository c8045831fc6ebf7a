"""Decisions of the exactly-once sink as records of a topic: names, bytes, and which one counts. Pure.

A record's key is the query. Records are read with those of unfinished transactions, whose ends are then looked for: the
open transaction of one query must not hide the decision of another behind it.
"""

from __future__ import annotations

import json

from kohort.client.types import OpenTransaction
from kohort.records.batch import BatchHeader, iter_batches, read_records
from kohort.records.control import ControlType, control_type
from kohort.spark.sink_commit import Decision, Fate, Refusal, Share

PARTITION = 0
TOPIC_CONFIG = {"cleanup.policy": "compact", "segment.bytes": "16777216", "min.cleanable.dirty.ratio": "0.1"}
_VERSION = 1
_COMMITTED = frozenset({"PrepareCommit", "CompleteCommit"})
_ABORTED = frozenset({"PrepareAbort", "CompleteAbort", "PrepareEpochFence"})


def driver_id(query: str) -> str:
    """The transactional id of a query's drivers: whoever has it decides."""
    return f"kohort-spark-{query}"


def task_prefix(query: str) -> str:
    """Of the transactional ids of a query's tasks."""
    return f"kohort-spark-{query}-"


def encode(query: str, decision: Decision) -> bytes:
    start = len(task_prefix(query))
    shares = [
        [s.rows, s.digest]
        + ([] if s.transaction is None else [s.transaction.transactional_id[start:], *s.transaction[1:]])
        for s in decision.shares
    ]
    return json.dumps({"version": _VERSION, "batch": decision.batch_id, "shares": shares}).encode()


def decode(query: str, value: bytes) -> Decision:
    found = json.loads(value)
    if found["version"] != _VERSION:
        raise Refusal(
            f"the last decision of query {query} was written by another version of kohort "
            f"({found['version']}, known is {_VERSION}): use that one to finish its batch"
        )
    prefix = task_prefix(query)
    return Decision(found["batch"], tuple(_share(prefix, *fields) for fields in found["shares"]))


def _share(
    prefix: str,
    rows: int,
    digest: int,
    suffix: str | None = None,
    producer: int = -1,
    epoch: int = -1,
    tv2: bool = True,
) -> Share:
    handed = None if suffix is None else OpenTransaction(prefix + suffix, producer, epoch, tv2)
    return Share(rows, digest, handed)


class Scan:
    """Takes the batches of the topic's end, in order, and knows the last decision of one query that was committed."""

    def __init__(self, query: str) -> None:
        self._query = query
        self._key = query.encode()
        self._open: dict[int, bytes] = {}  # by producer: written, not ended yet
        self._last: bytes | None = None

    def feed(self, records: bytes) -> int | None:
        """The offset behind them; None where there was no whole batch."""
        reached = None
        for position, header in iter_batches(records):
            self._batch(records, position, header)
            reached = header.next_offset
        return reached

    def _batch(self, records: bytes, position: int, header: BatchHeader) -> None:
        for record in read_records(records, position, header):
            if not header.is_control:
                if record.key == self._key and record.value is not None:
                    self._open[header.producer_id] = record.value
            elif control_type(record) is ControlType.COMMIT:
                self._last = self._open.pop(header.producer_id, self._last)
            elif control_type(record) is ControlType.ABORT:
                self._open.pop(header.producer_id, None)

    def result(self) -> Decision | None:
        """Once all is read that was there when the driver's id had been taken over: nothing of it is open then."""
        if self._open:
            raise Refusal(
                f"the decision of query {self._query} that was written last is in a transaction that has not ended, "
                "though its driver was fenced: another driver of this query is running. Stop one of them"
            )
        return None if self._last is None else decode(self._query, self._last)


def fate(transaction: OpenTransaction, state: str | None, producer_id: int, epoch: int) -> Fate:
    """What DescribeTransactions says of it; None: the id is not known. A producer id used up is replaced by another."""
    own = producer_id == transaction.producer_id and epoch == transaction.producer_epoch
    if state == "Ongoing":
        return Fate.OPEN if own else Fate.UNKNOWN
    if state in _COMMITTED:
        return Fate.COMMITTED if own or transaction.is_tv2 else Fate.UNKNOWN
    return Fate.ABORTED if state in _ABORTED else Fate.UNKNOWN
