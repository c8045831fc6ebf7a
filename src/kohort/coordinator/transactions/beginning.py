"""InitProducerId for a transactional id: fencing of whoever had it before, epochs, ids that rotate (KIP-360)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.coordinator.effects import Decision, Request
from kohort.coordinator.transactions import ending
from kohort.coordinator.transactions.states import ONGOING, PREPARED
from kohort.coordinator.transactions.transaction import NO_EPOCH, NO_PRODUCER_ID, Transaction, is_exhausted
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages import InitProducerIdResponse

if TYPE_CHECKING:
    from kohort.coordinator.transactions.shard_transactions import ShardTransactions

PRODUCER_FENCED_SINCE = 4


def init_producer_id(shard: ShardTransactions, request: Request) -> Decision | None:
    message = request.message
    try:
        transaction = shard.transactions.get(message.transactional_id) or Transaction(
            message.transactional_id, shard.new_producer_id(), timeout_ms=message.transaction_timeout_ms
        )
        expected = None if message.producer_id == NO_PRODUCER_ID else (message.producer_id, message.producer_epoch)
        if transaction.state in PREPARED:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if expected is not None and not _is_known(transaction, *expected):
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        if transaction.state is ONGOING:
            # The transaction of whoever had the id before goes first; the client asks again until that is done.
            decision = ending.roll_back(shard, transaction, "another producer took over the transactional id")
            shard.reply(request, refused(request, ErrorCode.CONCURRENT_TRANSACTIONS))
            return decision
        begun = _begun(shard, transaction, message.transaction_timeout_ms, None if expected is None else expected[1])
    except KafkaError as error:
        shard.reply(request, refused(request, error.code))
        return None
    shard.reply(request, InitProducerIdResponse(producer_id=begun.producer_id, producer_epoch=begun.producer_epoch))
    return shard.become(begun)


def refused(request: Request, error: ErrorCode) -> InitProducerIdResponse:
    if error is ErrorCode.PRODUCER_FENCED and request.version < PRODUCER_FENCED_SINCE:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return InitProducerIdResponse(error_code=error, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH)


def _is_known(transaction: Transaction, producer_id: int, epoch: int) -> bool:
    """Whether a producer that says who it is may be the current one, or one whose last answer got lost."""
    return (
        transaction.producer_epoch == NO_EPOCH
        or producer_id == transaction.producer_id
        or (producer_id == transaction.previous_producer_id and is_exhausted(epoch))
    )


def _begun(shard: ShardTransactions, transaction: Transaction, timeout_ms: int, expected: int | None) -> Transaction:
    epoch, now_ms = transaction.producer_epoch, shard.now_ms
    if transaction.is_epoch_exhausted:
        if expected not in (None, epoch):
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)  # as Kafka
        last_epoch = NO_EPOCH if expected is None else epoch
        return transaction.with_producer_id(shard.new_producer_id(), last_epoch, timeout_ms, now_ms)
    if expected is None:
        return transaction.with_epoch(epoch + 1, NO_EPOCH, timeout_ms, now_ms)
    if epoch in (NO_EPOCH, expected):
        return transaction.with_epoch(epoch + 1, epoch, timeout_ms, now_ms)
    if expected == transaction.last_producer_epoch:  # it was raised, the answer got lost
        return transaction.with_epoch(epoch, expected, timeout_ms, now_ms)
    raise KafkaError(ErrorCode.PRODUCER_FENCED)
