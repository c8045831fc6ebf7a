"""DescribeProducers: what the logs of partitions know of their producers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kohort.protocol import messages
from kohort.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from kohort.broker.connection import Call
    from kohort.broker.core import Core
    from kohort.broker.long_work import Steps


ROWS_AT_ONCE = 1000


def describe_producers(core: Core, call: Call, request: Any, now_ms: int) -> Steps:
    response = messages.DescribeProducersResponse()
    count = 0
    for topic in request.topics:
        rows = []
        for index in dict.fromkeys(topic.partition_indexes):
            count += 1
            if count >= ROWS_AT_ONCE:
                count = 0
                yield
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
            count += len(row.active_producers)
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
