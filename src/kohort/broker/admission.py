"""Transactional records before they are written: does the transaction hold their partition? (KIP-890)

The transaction's coordinator is asked once for each partition of each transaction; clients of TV2 have it added by
that. What is asked here is answered by `TransactionService.enlist`, here or one day on another broker.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from kohort.coordinator.transactions.asks import Enlist, Enlisted
from kohort.coordinator.transactions.transaction import TV_0, TV_2
from kohort.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from kohort.broker.appends import Append
    from kohort.broker.core import Core
    from kohort.broker.topics import Partition
    from kohort.storage.producers import ProducerStates

# The producer's transaction is fine, only its coordinator cannot be asked now: Kafka's code for "the same again".
_TRY_AGAIN = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


def supported_error(error: ErrorCode, *, knows_abortable: bool) -> ErrorCode:
    """What the coordinator says, in words that the client's version knows."""
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    return error


class Turns:
    """Batches of a producer for a partition are appended in the order in which they came: one that need not be asked
    about, or is answered sooner, waits for those before it."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._waiting: dict[tuple[Partition, int], deque[Append]] = {}
        self._may_go: set[Append] = set()

    def wait(self, append: Append) -> None:
        self._waiting.setdefault(_turn_of(append), deque()).append(append)

    def is_before(self, append: Append) -> bool:
        """Whether another one is waiting."""
        return _turn_of(append) in self._waiting

    def go(self, append: Append, now_ms: int) -> None:
        """It may be appended, or has failed: it goes when it is its turn."""
        self._may_go.add(append)
        key = _turn_of(append)
        queue = self._waiting[key]
        while queue and queue[0] in self._may_go:
            first = queue.popleft()
            self._may_go.discard(first)
            if first.error:
                first.owner.appended(first, now_ms)
            else:
                self._core.append(first)
        if not queue:
            del self._waiting[key]


def _turn_of(append: Append) -> tuple[Partition, int]:
    return append.partition, append.header.producer_id


class ProduceAdmission:
    """The transactional batches of one Produce request."""

    ABORTABLE_SINCE, TV2_SINCE = 11, 12

    def __init__(self, core: Core, version: int) -> None:
        self._core = core
        self._version = version
        self._asked: list[tuple[Append, ProducerStates]] = []  # with what the log knew when it was asked

    @property
    def _is_tv2(self) -> bool:
        return self._version >= self.TV2_SINCE

    def admit(self, transactional_id: str | None, appends: list[Append], now_ms: int) -> None:
        """Each is appended, or refused; its owner is told."""
        producers = {(append.header.producer_id, append.header.producer_epoch) for append in appends}
        error = ErrorCode.NONE
        if transactional_id is None:
            error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        elif len(producers) > 1:
            error = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if error or transactional_id is None:
            for append in appends:
                append.fail(error)
                append.owner.appended(append, now_ms)
            return
        turns = self._core.turns
        for append in appends:
            header, known = append.header, append.partition.log.producers
            admission = known.admission(header.producer_id, header.producer_epoch, self._is_tv2)
            if admission is not None:
                append.origin = admission
                self._asked.append((append, known))
                turns.wait(append)
            elif turns.is_before(append):
                turns.wait(append)
                turns.go(append, now_ms)
            else:
                self._core.append(append)
        if self._asked:
            self._ask(transactional_id, *producers.pop(), now_ms)

    def _ask(self, transactional_id: str, producer_id: int, epoch: int, now_ms: int) -> None:
        partitions = tuple((append.partition.topic.name, append.partition.index) for append, _ in self._asked)
        version = TV_2 if self._is_tv2 else TV_0
        ask = Enlist(transactional_id, producer_id, epoch, partitions, not self._is_tv2, version)
        self._core.enlist(ask, self, now_ms)

    def answered(self, errors: Enlisted, now_ms: int) -> None:
        for append, known in self._asked:
            error = errors[append.partition.topic.name, append.partition.index]
            error = supported_error(error, knows_abortable=self._version >= self.ABORTABLE_SINCE)
            if append.partition.log.producers is not known:
                # Led by another meanwhile, who may have ended the transaction: what was asked means nothing any more.
                append.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the partition was led elsewhere meanwhile")
            elif error in _TRY_AGAIN or (error is ErrorCode.CONCURRENT_TRANSACTIONS and not self._is_tv2):
                append.fail(ErrorCode.NOT_ENOUGH_REPLICAS, f"the transaction cannot be asked: {error.name}")
            elif error:
                append.fail(error)
            self._core.turns.go(append, now_ms)
