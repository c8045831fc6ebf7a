"""Partitions that are to be in a transaction: AddPartitionsToTxn, AddOffsetsToTxn, and what Produce and TxnOffsetCommit
ask for by themselves (KIP-890)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.coordinator.effects import Decision, Request
from kohort.coordinator.transactions.asks import Enlist, Enlisted
from kohort.coordinator.transactions.states import ONGOING, PREPARED
from kohort.coordinator.transactions.transaction import Transaction
from kohort.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from kohort.coordinator.transactions.shard_transactions import ShardTransactions


def enlist(shard: ShardTransactions, request: Request) -> Decision | None:
    ask: Enlist = request.message
    transaction = shard.transactions.get(ask.transactional_id)
    error = _error(transaction, ask)
    if error or transaction is None:
        shard.reply(request, all_with(ask, error))
        return None
    if ask.verify_only:
        shard.reply(request, _verified(transaction, ask))
        return None
    shard.reply(request, all_with(ask, ErrorCode.NONE))
    if transaction.state is ONGOING and set(ask.partitions) <= set(transaction.partitions):
        return None
    return shard.become(transaction.with_partitions(ask.partitions, shard.now_ms, ask.version))


def all_with(ask: Enlist, error: ErrorCode) -> Enlisted:
    return dict.fromkeys(ask.partitions, error)


def _error(transaction: Transaction | None, ask: Enlist) -> ErrorCode:
    if transaction is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    prepared = transaction.state in PREPARED
    if prepared and not ask.verify_only:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if transaction.producer_id != ask.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if transaction.producer_epoch != ask.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.CONCURRENT_TRANSACTIONS if prepared else ErrorCode.NONE


def _verified(transaction: Transaction, ask: Enlist) -> Enlisted:
    known = set(transaction.partitions)
    return {
        partition: ErrorCode.NONE if partition in known else ErrorCode.TRANSACTION_ABORTABLE
        for partition in ask.partitions
    }
