"""The transactions of one shard: `shard.State` for them, what the log tells, and who still waits for markers.

`apply` and `read` are the only writers of `transactions`. Markers under way are soft state: after a load every prepared
transaction sends its markers again, which partitions that have them already take for a repetition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kohort.coordinator.effects import Answer, Decision, Request
from kohort.coordinator.records import UnknownRecord, UnreadableRecord
from kohort.coordinator.shard import Damage, Shard
from kohort.coordinator.timers import Deadline, TimerKind, TimerQueue
from kohort.coordinator.transactions import ending
from kohort.coordinator.transactions.asks import Marker, Rollback
from kohort.coordinator.transactions.records import Change, decode, encode
from kohort.coordinator.transactions.states import ONGOING, PREPARED
from kohort.coordinator.transactions.transaction import TopicPartition, Transaction
from kohort.protocol.errors import ErrorCode


@dataclass(slots=True)
class TransactionConfig:
    """Kafka's settings with Kafka's defaults."""

    transaction_state_log_num_partitions: int = 50
    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 604_800_000
    abort_timed_out_interval_ms: int = 10_000
    remove_expired_interval_ms: int = 3_600_000
    append_timeout_ms: int = 30_000
    marker_retry_ms: int = 100


@dataclass(slots=True)
class Prepared:
    """What follows when a Prepare is stored: the markers."""

    transactional_id: str


class ShardTransactions:
    __slots__ = (
        "_abort_timer",
        "_expire_timer",
        "_retry",
        "_retry_timer",
        "answers",
        "completing",
        "config",
        "markers",
        "new_producer_id",
        "now_ms",
        "partition",
        "rollbacks",
        "skipped",
        "timers",
        "transactions",
    )

    def __init__(
        self,
        partition: int,
        config: TransactionConfig,
        new_producer_id: Callable[[], int],
        timers: TimerQueue,
        markers: list[Marker],
        rollbacks: list[Rollback],
    ) -> None:
        self.partition = partition
        self.config = config
        self.new_producer_id = new_producer_id
        self.timers = timers
        self.markers = markers  # to be written; shared by all shards, emptied by whoever writes them
        self.rollbacks = rollbacks
        self.now_ms = 0
        self.answers: list[Answer] = []
        self.transactions: dict[str, Transaction] = {}
        self.completing: dict[str, set[TopicPartition]] = {}  # whose markers are not all written, and where
        self.skipped: dict[str, int] = {}  # why -> how many records
        self._retry: list[Marker] = []
        self._abort_timer = Deadline(TimerKind.ABORT_TIMED_OUT_TRANSACTIONS, "")
        self._expire_timer = Deadline(TimerKind.EXPIRE_TRANSACTIONAL_IDS, "")
        self._retry_timer = Deadline(TimerKind.RETRY_MARKERS, "")

    # ---- for the handlers

    def reply(self, request: Request, response: Any) -> None:
        """Leaves when everything that it rests on is stored."""
        self.answers.append((request, response))

    def decide(self, changes: Sequence[Change], then: Any = None, *, divisible: bool = False) -> Decision:
        return Decision([encode(change) for change in changes], changes, then, divisible=divisible)

    def become(self, transaction: Transaction, then: Any = None) -> Decision:
        return self.decide([Change(transaction.transactional_id, transaction)], then)

    def prepare(self, transaction: Transaction) -> Decision:
        return self.become(transaction, Prepared(transaction.transactional_id))

    # ---- loading

    def read(self, key: bytes, value: bytes | None, offset: int, producer_id: int = -1) -> None:
        try:
            change = decode(key, value)
        except UnreadableRecord as unreadable:
            raise Damage(offset, str(unreadable)) from unreadable
        except UnknownRecord as unknown:
            why = str(unknown)
            self.skipped[why] = self.skipped.get(why, 0) + 1
            return
        self.apply([change], offset)

    def read_all(self, offsets: list[int], keys: list[bytes], values: list[bytes | None]) -> None:
        for key, value, offset in zip(keys, values, offsets, strict=True):
            self.read(key, value, offset)

    def read_marker(self, producer_id: int, committed: bool) -> None:
        """There are no transactions in this topic."""

    def settle(self, limit: int) -> bool:
        return True

    def loaded(self, max_append_bytes: int) -> list[Decision]:
        self.timers.set(self._expire_timer, self.now_ms + self.config.remove_expired_interval_ms)
        decisions = []
        for transaction in list(self.transactions.values()):
            if transaction.state in PREPARED and (decision := self._send_markers(transaction)) is not None:
                decisions.append(decision)
        return decisions

    def close(self, error: ErrorCode, *, moved: bool) -> None:
        """Nobody is parked here: every answer waits for the log."""
        self.transactions = {}
        self.completing = {}

    # ---- changes

    def apply(self, changes: Sequence[Change], offset: int) -> None:
        for transactional_id, value in changes:
            if value is None:
                self.transactions.pop(transactional_id, None)
                continue
            self.transactions[transactional_id] = value
            if value.state is ONGOING and self._abort_timer.at_ms is None:
                self.timers.set(self._abort_timer, self.now_ms + self.config.abort_timed_out_interval_ms)

    def stored(self, then: Any, error: ErrorCode) -> Decision | None:
        assert isinstance(then, Prepared)
        transaction = self.transactions.get(then.transactional_id)
        if error or transaction is None or transaction.state not in PREPARED:
            return None
        return self._send_markers(transaction)

    # ---- markers

    def _send_markers(self, transaction: Transaction) -> Decision | None:
        if not transaction.partitions:
            return self.become(transaction.completed(self.now_ms))
        self.completing[transaction.transactional_id] = set(transaction.partitions)
        self.markers.append(self._marker(transaction, transaction.partitions))
        return None

    def _marker(self, transaction: Transaction, partitions: Iterable[TopicPartition]) -> Marker:
        shard: Shard[ShardTransactions] = self.timers.owner
        return Marker(
            self.partition,
            shard.incarnation,
            transaction.transactional_id,
            transaction.producer_id,
            transaction.producer_epoch,
            shard.epoch,
            transaction.is_commit,
            transaction.client_version,
            tuple(partitions),
        )

    def marker_written(self, marker: Marker, partition: TopicPartition, error: ErrorCode) -> Decision | None:
        """In the log of one partition, or not: then again after a while, unless another coordinator has taken over."""
        left = self.completing.get(marker.transactional_id)
        if left is None or partition not in left or error is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            return None
        if error and error is not ErrorCode.INVALID_PRODUCER_EPOCH:  # that: a later epoch was there, nothing is open
            self._retry.append(marker._replace(partitions=(partition,)))
            self.timers.set(self._retry_timer, self.now_ms + self.config.marker_retry_ms)
            return None
        left.discard(partition)
        if left:
            return None
        del self.completing[marker.transactional_id]
        return self.become(self.transactions[marker.transactional_id].completed(self.now_ms))

    # ---- time

    def due(self, deadline: Deadline) -> Decision | None:
        if deadline is self._retry_timer:
            again, self._retry = self._retry, []
            self.markers += again
            return None
        if deadline is self._expire_timer:
            self.timers.set(self._expire_timer, self.now_ms + self.config.remove_expired_interval_ms)
            return self._expire()
        self._set_abort_timer()
        return self._abort_timed_out()

    def _set_abort_timer(self) -> None:
        if any(transaction.state is ONGOING for transaction in self.transactions.values()):
            self.timers.set(self._abort_timer, self.now_ms + self.config.abort_timed_out_interval_ms)

    def _abort_timed_out(self) -> Decision | None:
        """One at a time, each a decision of its own; the timer is set again where there are more."""
        for transaction in self.transactions.values():
            if transaction.is_timed_out(self.now_ms):
                self.timers.set(self._abort_timer, self.now_ms)
                return ending.roll_back(self, transaction, "the transaction timed out")
        return None

    def _expire(self) -> Decision | None:
        expiration_ms = self.config.transactional_id_expiration_ms
        expired = [
            Change(transaction.transactional_id, None)
            for transaction in self.transactions.values()
            if transaction.is_expired(self.now_ms, expiration_ms)
        ]
        return self.decide(expired, divisible=True) if expired else None
