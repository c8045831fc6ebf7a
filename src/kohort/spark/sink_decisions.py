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
    found = {"version": _VERSION, "batch": decision.batch_id, "shares": shares}
    return json.dumps(found | ({"members": decision.members} if decision.members else {})).encode()


def decode(query: str, value: bytes) -> Decision:
    found = json.loads(value)
    if found["version"] != _VERSION:
        raise Refusal(
            f"the last decision of query {query} was written by another version of kohort "
            f"({found['version']}, known is {_VERSION}): use that one to finish its batch"
        )
    prefix = task_prefix(query)
    members = tuple((group, generation) for group, generation in found.get("members", ()))
    return Decision(found["batch"], tuple(_share(prefix, *fields) for fields in found["shares"]), members)


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
    """Takes the batches of the topic's end, in order, and knows the last decisions that were committed, of one query or
    of all."""

    def __init__(self, query: str | None) -> None:
        self._query = query
        self._key = None if query is None else query.encode()
        self._open: dict[int, tuple[bytes, bytes]] = {}  # by producer: written, not ended yet
        self._last: dict[bytes, bytes] = {}

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
                if record.key is not None and record.value is not None and self._key in (None, record.key):
                    self._open[header.producer_id] = record.key, record.value
            elif control_type(record) is ControlType.COMMIT:
                self._last.update([self._open.pop(header.producer_id)] if header.producer_id in self._open else [])
            elif control_type(record) is ControlType.ABORT:
                self._open.pop(header.producer_id, None)

    def result(self) -> Decision | None:
        """Once all is read that was there when the driver's id had been taken over: nothing of it is open then."""
        if self._open:
            raise Refusal(
                f"the decision of query {self._query} that was written last is in a transaction that has not ended, "
                "though its driver was fenced: another driver of this query is running. Stop one of them"
            )
        return next(iter(self.found().values()), None)

    def found(self) -> dict[str, Decision]:
        """By query. What is not committed yet does not count, and may count in a moment."""
        return {key.decode(): decode(key.decode(), value) for key, value in self._last.items()}

    def of_groups(self, groups: frozenset[str]) -> list[Decision]:
        """Those that have committed offsets of these groups."""
        return [decision for decision in self.found().values() if _commits_to(decision, groups)]

    def is_open(self, groups: frozenset[str]) -> bool:
        """Whether a decision that commits offsets of these groups has not ended yet, or its marker is on its way."""
        return any(_commits_to(decode(key.decode(), value), groups) for key, value in self._open.values())


def _commits_to(decision: Decision, groups: frozenset[str]) -> bool:
    return bool(groups.intersection(group for group, _ in decision.members))


def fate(transaction: OpenTransaction, state: str | None, producer_id: int, epoch: int) -> Fate:
    """What DescribeTransactions says of it; None: the id is not known. A producer id used up is replaced by another."""
    own = producer_id == transaction.producer_id and epoch == transaction.producer_epoch
    if state == "Ongoing":
        return Fate.OPEN if own else Fate.UNKNOWN
    if state in _COMMITTED:
        return Fate.COMMITTED if own or transaction.is_tv2 else Fate.UNKNOWN
    return Fate.ABORTED if state in _ABORTED else Fate.UNKNOWN
