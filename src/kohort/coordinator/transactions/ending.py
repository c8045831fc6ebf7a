"""EndTxn, by TV1 and TV2, and transactions that the coordinator itself rolls back.

TV2 (KIP-890) raises the epoch with every end. So a repeated EndTxn is known by an epoch that is one behind, or by the
producer id before the last rotation:

                    abort             commit
                    again   now       again   now           again: the epoch is one behind
    Empty           fenced  raised    fenced  invalid       raised: aborts nothing, but the epoch rises
    CompleteAbort   done    raised    invalid invalid
    CompleteCommit  invalid raised    done    invalid

With TV1 the epoch stays, Empty takes neither, and a state that is Complete takes what it is again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kohort.coordinator.effects import Decision, Request
from kohort.coordinator.transactions.asks import Rollback
from kohort.coordinator.transactions.states import COMPLETE_ABORT, COMPLETE_COMMIT, EMPTY, ONGOING, PREPARED
from kohort.coordinator.transactions.transaction import MAX_EPOCH, NO_EPOCH, NO_PRODUCER_ID, TV_0, TV_2, Transaction
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages import EndTxnResponse

if TYPE_CHECKING:
    from kohort.coordinator.transactions.shard_transactions import ShardTransactions

TV2_SINCE = 5
PRODUCER_FENCED_SINCE = 2
INVALID = ErrorCode.INVALID_TXN_STATE
_DONE_AS = {True: COMPLETE_COMMIT, False: COMPLETE_ABORT}


def end(shard: ShardTransactions, request: Request) -> Decision | None:
    message = request.message
    transaction = shard.transactions.get(message.transactional_id)
    judge = _judge_tv2 if request.version >= TV2_SINCE else _judge_tv1
    try:
        if transaction is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        is_repetition = judge(transaction, message)
        if is_repetition:
            shard.reply(request, _answer(request, transaction))
            return None
        version = TV_2 if request.version >= TV2_SINCE else TV_0
        prepared = _prepared(shard, transaction, message.committed, version)
    except KafkaError as error:
        shard.reply(request, refused(request, error.code))
        return None
    shard.reply(request, _answer(request, prepared.completed(shard.now_ms)))
    return shard.prepare(prepared)


def refused(request: Request, error: ErrorCode) -> EndTxnResponse:
    if error is ErrorCode.PRODUCER_FENCED and request.version < PRODUCER_FENCED_SINCE:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return EndTxnResponse(error_code=error, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH)


def _answer(request: Request, transaction: Transaction) -> EndTxnResponse:
    """TV2 tells the producer who it is from here on."""
    if request.version < TV2_SINCE:
        return EndTxnResponse()
    return EndTxnResponse(producer_id=transaction.producer_id, producer_epoch=transaction.producer_epoch)


def _judge_tv1(transaction: Transaction, message: Any) -> bool:
    """Whether this end has been before; KafkaError where it cannot be."""
    producer_id, epoch, commit = message.producer_id, message.producer_epoch, message.committed
    if transaction.producer_id != producer_id:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if transaction.producer_epoch != epoch:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    if transaction.state in PREPARED:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if transaction.state is ONGOING:
        return False
    if transaction.state is _DONE_AS[commit]:
        return True
    raise KafkaError(INVALID)


def _judge_tv2(transaction: Transaction, message: Any) -> bool:
    producer_id, epoch, commit = message.producer_id, message.producer_epoch, message.committed
    state = transaction.state
    if state in PREPARED:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    rotated = (
        transaction.previous_producer_id == producer_id and epoch == MAX_EPOCH - 1 and transaction.producer_epoch == 0
    )
    if transaction.producer_id != producer_id and not rotated:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    raised = transaction.producer_epoch == epoch + 1
    again = raised or rotated
    may_be_again = again and state not in (ONGOING, EMPTY)
    if transaction.producer_epoch != epoch and not may_be_again:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    if state is ONGOING:
        return False
    if again:
        if state is _DONE_AS[commit]:
            return True
        raise KafkaError(INVALID)
    if commit:
        raise KafkaError(INVALID)
    return False


def _prepared(shard: ShardTransactions, transaction: Transaction, commit: bool, version: int) -> Transaction:
    next_producer_id = NO_PRODUCER_ID
    if version >= TV_2 and transaction.is_epoch_exhausted:
        next_producer_id = shard.new_producer_id()
    return transaction.prepared(commit, version, next_producer_id, shard.now_ms)


def roll_back(shard: ShardTransactions, transaction: Transaction, why: str) -> Decision:
    """Abort what is open and fence its producer: the epoch rises, as with every end by TV2."""
    shard.rollbacks.append(
        Rollback(transaction.transactional_id, transaction.producer_id, transaction.producer_epoch, why)
    )
    return shard.prepare(_prepared(shard, transaction, commit=False, version=TV_2))
