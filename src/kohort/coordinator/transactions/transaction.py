"""One transactional id as it stands in the log, and what it becomes: pure steps from one value to the next.

`_to` is the only one who makes another state. Epochs: TV1 keeps the epoch of a producer until InitProducerId raises it;
TV2 (KIP-890) raises it at every end of a transaction, so that no late record of an old one can enter the next.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from kohort.coordinator.transactions.states import (
    AT_REST,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    MOVES,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TransactionState,
)

NO_PRODUCER_ID = NO_EPOCH = -1
MAX_EPOCH = 2**15 - 1
TV_0, TV_2 = 0, 2

TopicPartition = tuple[str, int]


class Transaction(NamedTuple):
    transactional_id: str
    producer_id: int
    producer_epoch: int = NO_EPOCH
    timeout_ms: int = 0
    state: TransactionState = EMPTY
    partitions: tuple[TopicPartition, ...] = ()
    start_ms: int = -1
    updated_ms: int = -1
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID  # from the end of this transaction on; an epoch can be used up
    client_version: int = TV_0  # the transaction.version that its producer speaks
    last_producer_epoch: int = NO_EPOCH  # before the last rise; not in the log, as in Kafka

    @property
    def is_epoch_exhausted(self) -> bool:
        return is_exhausted(self.producer_epoch)

    @property
    def raises_epoch(self) -> bool:
        return self.client_version >= TV_2

    @property
    def is_commit(self) -> bool:
        return self.state in (PREPARE_COMMIT, COMPLETE_COMMIT)

    def is_timed_out(self, now_ms: int) -> bool:
        return self.state is ONGOING and self.start_ms + self.timeout_ms < now_ms

    def is_expired(self, now_ms: int, expiration_ms: int) -> bool:
        return self.state in AT_REST and self.updated_ms <= now_ms - expiration_ms

    def _to(self, state: TransactionState, **fields: Any) -> Transaction:
        if state not in MOVES[self.state]:
            raise AssertionError(f"{self.transactional_id}: {self.state.value} -> {state.value}")
        return self._replace(state=state, previous_producer_id=self.producer_id, **fields)

    # ---- InitProducerId

    def with_epoch(self, epoch: int, last_epoch: int, timeout_ms: int, now_ms: int) -> Transaction:
        return self._to(
            EMPTY,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            timeout_ms=timeout_ms,
            partitions=(),
            start_ms=-1,
            updated_ms=now_ms,
        )

    def with_producer_id(self, producer_id: int, last_epoch: int, timeout_ms: int, now_ms: int) -> Transaction:
        return self.with_epoch(0, last_epoch, timeout_ms, now_ms)._replace(producer_id=producer_id)

    # ---- what is in it

    def with_partitions(self, partitions: Iterable[TopicPartition], now_ms: int, version: int) -> Transaction:
        known = dict.fromkeys(self.partitions) if self.state is ONGOING else {}
        return self._to(
            ONGOING,
            partitions=tuple(known | dict.fromkeys(partitions)),
            start_ms=self.start_ms if self.state is ONGOING else now_ms,
            updated_ms=now_ms,
            client_version=version,
        )

    # ---- its end

    def prepared(self, commit: bool, version: int, next_producer_id: int, now_ms: int) -> Transaction:
        epoch, last_epoch = self.producer_epoch, self.last_producer_epoch
        if version >= TV_2:
            epoch, last_epoch = min(epoch + 1, MAX_EPOCH), epoch
        return self._to(
            PREPARE_COMMIT if commit else PREPARE_ABORT,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            next_producer_id=next_producer_id,
            start_ms=self.start_ms if self.state is ONGOING else now_ms,
            updated_ms=now_ms,
            client_version=version,
        )

    def completed(self, now_ms: int) -> Transaction:
        producer_id, epoch = self.producer_id, self.producer_epoch
        if self.raises_epoch and self.next_producer_id != NO_PRODUCER_ID:
            producer_id, epoch = self.next_producer_id, 0
        return self._to(
            COMPLETE_COMMIT if self.state is PREPARE_COMMIT else COMPLETE_ABORT,
            producer_id=producer_id,
            producer_epoch=epoch,
            next_producer_id=NO_PRODUCER_ID,
            partitions=(),
            updated_ms=now_ms,
        )


def is_exhausted(epoch: int) -> bool:
    """Whether a producer can get no higher epoch from InitProducerId: the last one is kept for fencing."""
    return epoch >= MAX_EPOCH - 1
