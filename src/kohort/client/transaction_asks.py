"""Requests of an administrator about transactions, each a function, and what makes one of them hang."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kohort.client.admin_types import (
    HangingTransaction,
    ProducerState,
    TransactionDescription,
    TransactionListing,
)
from kohort.client.cluster import Cluster, Coordinator
from kohort.client.errors import error_for
from kohort.client.metadata import leader_nodes
from kohort.client.transactions import Transaction, end_version
from kohort.client.types import OpenTransaction, TopicPartition
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    WriteTxnMarkersRequest,
)

HOLDS_PARTITIONS = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort"})
_TERMINATE_TIMEOUT_MS = 60_000


async def list_at(cluster: Cluster, node_id: int, states: list[str]) -> list[TransactionListing]:
    response = await cluster.request(node_id, ListTransactionsRequest(state_filters=states))
    if response.error_code:
        raise error_for(response.error_code)
    if response.unknown_state_filters:
        names = ", ".join(response.unknown_state_filters)
        raise error_for(ErrorCode.INVALID_REQUEST, f"broker {node_id} knows no state {names} of transactions")
    return [
        TransactionListing(row.transactional_id, node_id, row.producer_id, row.transaction_state)
        for row in response.transaction_states
    ]


async def describe(
    coordinator: Coordinator, node_id: int, transactional_id: str, timeout_ms: int
) -> TransactionDescription | None:
    """None where there is no such id."""
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    (row,) = (await coordinator.request(request, timeout_ms)).transaction_states
    if row.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        return None
    if row.error_code:
        raise error_for(row.error_code, f"transaction of {transactional_id}: {ErrorCode.of(row.error_code).message}")
    return TransactionDescription(
        transactional_id,
        node_id,
        row.transaction_state,
        row.producer_id,
        row.producer_epoch,
        row.transaction_timeout_ms,
        row.transaction_start_time_ms if row.transaction_start_time_ms >= 0 else None,
        frozenset(TopicPartition(topic.topic, index) for topic in row.topics for index in topic.partitions),
    )


async def terminate(coordinator: Coordinator, transactional_id: str, timeout_ms: int) -> None:
    """As its next producer would: what is open is aborted, and whoever had the id is fenced."""
    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=_TERMINATE_TIMEOUT_MS,
        producer_id=-1,
        producer_epoch=-1,
    )
    response = await coordinator.request(request, timeout_ms)
    if response.error_code:
        text = ErrorCode.of(response.error_code).message
        raise error_for(response.error_code, f"transaction of {transactional_id}: {text}")


async def end(coordinator: Coordinator, transaction: OpenTransaction, commit: bool, timeout_ms: int) -> None:
    """Of a transaction that its producer has handed over."""
    request = EndTxnRequest(
        transactional_id=transaction.transactional_id,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        committed=commit,
    )
    version = end_version(transaction.is_tv2)
    response = await coordinator.request(request, timeout_ms, max_version=version)
    if response.error_code:
        doing = "commit" if commit else "abort"
        code = ErrorCode.of(response.error_code)
        raise error_for(code) if code.retriable else Transaction(transaction.transactional_id).error(code, doing)


async def producers(cluster: Cluster, partitions: Iterable[TopicPartition]) -> list[ProducerState]:
    """What the leaders of these partitions know of their producers."""
    wanted = [TopicPartition(*tp) for tp in partitions]
    await cluster.topics({tp.topic for tp in wanted})
    found = []
    for node_id, led in leader_nodes(cluster.metadata, wanted).items():
        make = DescribeProducersRequest
        topics = [make.TopicRequest(name=name, partition_indexes=indexes) for name, indexes in _by_topic(led).items()]
        response = await cluster.request(node_id, make(topics=topics))
        for topic in response.topics:
            for row in topic.partitions:
                tp = TopicPartition(topic.name, row.partition_index)
                if row.error_code:
                    text = row.error_message or ErrorCode.of(row.error_code).message
                    raise error_for(row.error_code, f"producers of {tp.topic}-{tp.partition}: {text}")
                found += [_producer(tp, producer) for producer in row.active_producers]
    return found


def _producer(tp: TopicPartition, row: Any) -> ProducerState:
    return ProducerState(
        tp,
        row.producer_id,
        row.producer_epoch,
        row.last_sequence,
        row.last_timestamp,
        row.coordinator_epoch,
        row.current_txn_start_offset if row.current_txn_start_offset >= 0 else None,
    )


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for tp in partitions:
        topics.setdefault(tp.topic, []).append(tp.partition)
    return topics


async def write_abort(cluster: Cluster, producer: ProducerState) -> None:
    """The marker that nobody else will write, into one partition."""
    tp, make = producer.partition, WriteTxnMarkersRequest
    await cluster.topics({tp.topic})
    (node_id,) = leader_nodes(cluster.metadata, [tp])
    marker = make.WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        transaction_result=False,
        topics=[make.WritableTxnMarkerTopic(name=tp.topic, partition_indexes=[tp.partition])],
        # -1 where no marker of the producer was ever written: 0 is below the epoch of any coordinator.
        coordinator_epoch=max(producer.coordinator_epoch, 0),
    )
    response = await cluster.request(node_id, make(markers=[marker]))
    for row in (row for one in response.markers for topic in one.topics for row in topic.partitions):
        if row.error_code:
            text = ErrorCode.of(row.error_code).message
            raise error_for(row.error_code, f"the abort of {tp.topic}-{tp.partition}: {text}")


def hanging(
    open_producers: Iterable[ProducerState],
    known: Mapping[int, str],
    described: Mapping[str, TransactionDescription | None],
) -> list[HangingTransaction]:
    """Of the open transactions of partitions those that no coordinator knows; `known`: producer id to its id."""
    found = []
    for producer in open_producers:
        name = known.get(producer.producer_id)
        transaction = described.get(name) if name is not None else None
        if transaction is None or transaction.producer_id != producer.producer_id:
            found.append(HangingTransaction(producer, "no coordinator knows its producer"))
        elif transaction.state not in HOLDS_PARTITIONS:
            found.append(HangingTransaction(producer, f"the transaction of {name} is over ({transaction.state})"))
        elif producer.partition not in transaction.partitions:
            found.append(HangingTransaction(producer, f"the transaction of {name} does not hold the partition"))
    return found
