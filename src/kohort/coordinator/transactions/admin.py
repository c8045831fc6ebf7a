"""DescribeTransactions and ListTransactions: transactions as tools see them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kohort.coordinator import expressions
from kohort.coordinator.effects import Decision, Request
from kohort.coordinator.transactions.asks import DescribeOne, ListShard
from kohort.coordinator.transactions.transaction import Transaction
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import DescribeTransactionsResponse, ListTransactionsResponse

if TYPE_CHECKING:
    from kohort.coordinator.transactions.shard_transactions import ShardTransactions


def describe(shard: ShardTransactions, request: Request) -> Decision | None:
    ask: DescribeOne = request.message
    transaction = shard.transactions.get(ask.transactional_id)
    row = (
        described_error(ask.transactional_id, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        if transaction is None
        else _described(transaction)
    )
    shard.reply(request, row)
    return None


def described_error(transactional_id: str, error: ErrorCode) -> Any:
    return DescribeTransactionsResponse.TransactionState(error_code=error, transactional_id=transactional_id)


def _described(transaction: Transaction) -> Any:
    topics: dict[str, list[int]] = {}
    for topic, index in transaction.partitions:
        topics.setdefault(topic, []).append(index)
    return DescribeTransactionsResponse.TransactionState(
        transactional_id=transaction.transactional_id,
        transaction_state=transaction.state.value,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=[DescribeTransactionsResponse.TopicData(topic=t, partitions=indexes) for t, indexes in topics.items()],
    )


def list_transactions(shard: ShardTransactions, request: Request) -> Decision | None:
    ask: ListShard = request.message
    named = expressions.matching(ask.pattern, shard.transactions) if ask.pattern else shard.transactions
    rows = [
        ListTransactionsResponse.TransactionState(
            transactional_id=transaction.transactional_id,
            producer_id=transaction.producer_id,
            transaction_state=transaction.state.value,
        )
        for transaction in shard.transactions.values()
        if _is_wanted(ask, transaction, shard.now_ms) and transaction.transactional_id in named
    ]
    shard.reply(request, rows)
    return None


def _is_wanted(ask: ListShard, transaction: Transaction, now_ms: int) -> bool:
    return (
        (not ask.producer_ids or transaction.producer_id in ask.producer_ids)
        and (not ask.states or transaction.state.value in ask.states)
        and (ask.duration_ms < 0 or now_ms - transaction.start_ms > ask.duration_ms)
    )
