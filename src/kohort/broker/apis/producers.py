"""InitProducerId, DescribeProducers and the read-only transaction apis. There are no transactions on this broker."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from kohort.protocol import messages
from kohort.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kohort.broker.connection import Call
    from kohort.broker.core import Core

logger = logging.getLogger("kohort.broker")

_TRANSACTION_STATES = frozenset(
    {
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Empty",
        "PrepareEpochFence",
        "Dead",
    }
)


def init_producer_id(core: Core, call: Call, request: Any, now_ms: int) -> Any:
    """An id for an idempotent producer; never one that was given out before, also after a crash."""
    if request.transactional_id is not None:
        logger.warning("%s asks for a transaction; there are none on this broker", call.connection)
        # The one refusal that no client retries until its timeout.
        code = (
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED if request.transactional_id else ErrorCode.INVALID_REQUEST
        )
        return messages.InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return messages.InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_id=-1, producer_epoch=-1)
    try:
        return messages.InitProducerIdResponse(producer_id=core.topics.new_producer_id(), producer_epoch=0)
    except KafkaError as error:
        return messages.InitProducerIdResponse(error_code=error.code, producer_id=-1, producer_epoch=-1)


def describe_producers(core: Core, call: Call, request: Any, now_ms: int) -> Any:
    response = messages.DescribeProducersResponse()
    for topic in request.topics:
        rows = []
        for index in topic.partition_indexes:
            row = response.PartitionResponse(partition_index=index)
            rows.append(row)
            partition = core.topics.partition(topic.name, index)
            if partition is None:
                row.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            if not partition.leads:
                row.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                continue
            row.active_producers = [_producer(response, state) for state in partition.log.producers]
        response.topics.append(response.TopicResponse(name=topic.name, partitions=rows))
    return response


def _producer(response: Any, state: Any) -> Any:
    return response.ProducerState(
        producer_id=state.producer_id,
        producer_epoch=state.epoch,
        last_sequence=state.last_sequence,
        last_timestamp=state.last_timestamp,
        coordinator_epoch=state.coordinator_epoch,
        current_txn_start_offset=-1 if state.txn_first_offset is None else state.txn_first_offset,
    )


def list_transactions(core: Core, call: Call, request: Any, now_ms: int) -> Any:
    unknown = [state for state in request.state_filters if state not in _TRANSACTION_STATES]
    return messages.ListTransactionsResponse(unknown_state_filters=unknown)


def describe_transactions(core: Core, call: Call, request: Any, now_ms: int) -> Any:
    response = messages.DescribeTransactionsResponse()
    for transactional_id in request.transactional_ids:
        code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if transactional_id else ErrorCode.INVALID_REQUEST
        response.transaction_states.append(
            response.TransactionState(error_code=code, transactional_id=transactional_id)
        )
    return response
