"""Answers of the transaction coordinator about several transactions: AddPartitionsToTxn, DescribeTransactions and
ListTransactions. Each part waits for its own shard; the answer leaves with the last of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from kohort.coordinator.effects import Request
from kohort.coordinator.transactions.admin import described_error
from kohort.coordinator.transactions.asks import DescribeOne, Enlist, Enlisted, ListShard
from kohort.coordinator.transactions.transaction import TV_0, TV_2, TopicPartition
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import AddPartitionsToTxnResponse, DescribeTransactionsResponse, ListTransactionsResponse

if TYPE_CHECKING:
    from kohort.broker.connection import Call
    from kohort.broker.core import Core
    from kohort.broker.long_work import Steps
    from kohort.broker.transactions import TransactionService

_BATCHED_SINCE = 4
_PRODUCER_FENCED_SINCE = 2
ASKED_AT_ONCE = 200
PARTITIONS_AT_ONCE = 5_000


class Gathered:
    """An answer whose parts come one by one; it begins with one part that is nobody's, until all are asked for."""

    def __init__(self, core: Core, call: Call, response: Any) -> None:
        self._core = core
        self._call = call
        self.response = response
        self.waiting = 1
        self.is_large = False

    def finish_one(self) -> None:
        self.waiting -= 1
        if not self.waiting and self.is_large:
            self._core.long_work.encode(self._call, self.response)
        elif not self.waiting:
            self._core.reply(self._call, self.response)


class _Transaction(NamedTuple):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    verify_only: bool
    topics: list[Any]


class AddedPartitions(Gathered):
    """One AddPartitionsToTxn; from version 4 on of several transactions, asked by brokers."""

    def __init__(self, core: Core, call: Call, message: Any) -> None:
        super().__init__(core, call, AddPartitionsToTxnResponse())
        self._message = message

    def begin(self, service: TransactionService) -> Steps:
        for number, transaction in enumerate(self._transactions(), 1):
            if number % ASKED_AT_ONCE == 0:
                self.is_large = True
                yield
            rows: list[Any] = []
            if self._call.version >= _BATCHED_SINCE:
                result = AddPartitionsToTxnResponse.AddPartitionsToTxnResult(
                    transactional_id=transaction.transactional_id, topic_results=rows
                )
                self.response.results_by_transaction.append(result)
            else:
                self.response.results_by_topic_v3_and_below = rows
            yield from self._add(service, transaction, rows)
        self.finish_one()

    def _transactions(self) -> Iterable[_Transaction]:
        message = self._message
        if self._call.version < _BATCHED_SINCE:
            yield _Transaction(
                message.v3_and_below_transactional_id,
                message.v3_and_below_producer_id,
                message.v3_and_below_producer_epoch,
                False,
                message.v3_and_below_topics,
            )
            return
        for t in message.transactions:
            yield _Transaction(t.transactional_id, t.producer_id, t.producer_epoch, t.verify_only, t.topics)

    def _add(self, service: TransactionService, asked: _Transaction, rows: list[Any]) -> Steps:
        partitions = tuple(dict.fromkeys((topic.name, index) for topic in asked.topics for index in topic.partitions))
        errors: dict[TopicPartition, ErrorCode] = {}
        for start in range(0, len(partitions), PARTITIONS_AT_ONCE):
            if start:
                self.is_large = True
                yield
            errors |= {
                partition: self._error(partition) for partition in partitions[start : start + PARTITIONS_AT_ONCE]
            }
        if any(errors.values()):
            # As one of them cannot be added, none of them is.
            for start in range(0, len(partitions), PARTITIONS_AT_ONCE):
                some = partitions[start : start + PARTITIONS_AT_ONCE]
                fill(rows, {p: errors[p] or ErrorCode.OPERATION_NOT_ATTEMPTED for p in some})
                if start:
                    yield
            return
        self.waiting += 1
        version = TV_2 if self._call.version >= _BATCHED_SINCE else TV_0
        part, now_ms = _Added(self, rows), self._core.topics.now_ms
        ask = Enlist(
            asked.transactional_id, asked.producer_id, asked.producer_epoch, partitions, asked.verify_only, version
        )
        if asked.transactional_id:
            service.enlist(ask, part, now_ms)
        else:
            part.answered(dict.fromkeys(partitions, ErrorCode.INVALID_REQUEST), now_ms)

    def _error(self, partition: TopicPartition) -> ErrorCode:
        topic = self._core.topics.by_name.get(partition[0])
        if topic is not None and topic.internal and self._call.version < _BATCHED_SINCE:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if topic is None or topic.partition(partition[1]) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE

    def added(self, rows: list[Any], errors: Enlisted) -> None:
        if self._call.version < _PRODUCER_FENCED_SINCE:
            fenced, old = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH
            errors = {partition: old if error is fenced else error for partition, error in errors.items()}
        fill(rows, errors)
        self.finish_one()


class _Added(NamedTuple):
    gathered: AddedPartitions
    rows: list[Any]

    def answered(self, errors: Enlisted, now_ms: int) -> None:
        self.gathered.added(self.rows, errors)


def fill(rows: list[Any], errors: Enlisted) -> None:
    """Rows of topics that are there already get more partitions."""
    response = AddPartitionsToTxnResponse
    topics: dict[str, Any] = {row.name: row for row in rows}
    before = len(rows)
    for (name, index), error in errors.items():
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = response.AddPartitionsToTxnTopicResult(name=name, results_by_partition=[])
        topic.results_by_partition.append(
            response.AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=error)
        )
    rows += list(topics.values())[before:]


class DescribedTransactions(Gathered):
    def __init__(self, core: Core, call: Call, message: Any) -> None:
        super().__init__(core, call, DescribeTransactionsResponse())
        self._message = message

    def begin(self, service: TransactionService) -> Steps:
        for number, transactional_id in enumerate(self._message.transactional_ids, 1):
            if number % ASKED_AT_ONCE == 0:
                self.is_large = True
                yield
            if not transactional_id:
                row = described_error(transactional_id, ErrorCode.INVALID_REQUEST)
                self.response.transaction_states.append(row)
            else:
                self.waiting += 1
                service.ask(DescribeOne(transactional_id), self, self._core.topics.now_ms)
        self.finish_one()

    def answered(self, row: Any, now_ms: int) -> None:
        self.response.transaction_states.append(row)
        self.finish_one()


class ListedTransactions(Gathered):
    def __init__(self, core: Core, call: Call, unknown_states: list[str]) -> None:
        super().__init__(core, call, ListTransactionsResponse(unknown_state_filters=unknown_states))

    def request(self, ask: ListShard) -> Request:
        """To one shard."""
        self.waiting += 1
        return Request(self, ask, 0)

    def answered(self, rows: list[Any] | ErrorCode, now_ms: int) -> None:
        if isinstance(rows, ErrorCode):
            self.response.error_code = rows
        else:
            self.response.transaction_states += rows
        self.finish_one()
