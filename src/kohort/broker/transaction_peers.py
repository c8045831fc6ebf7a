"""Transactions over several brokers: partitions of a transaction whose coordinator is another broker, and markers for
partitions that another one leads. What is asked here goes out as Kafka's own requests between brokers,
AddPartitionsToTxn and WriteTxnMarkers; who must ask again where nobody answers is not known here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kohort.broker.transaction_markers import Done, Ending
from kohort.coordinator.transactions.asks import Enlist, Enlisted
from kohort.coordinator.transactions.transaction import TopicPartition
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import AddPartitionsToTxnRequest, WriteTxnMarkersRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kohort.broker.core import Core
    from kohort.broker.transactions import Asker

ADD_PARTITIONS_VERSION = 5
MARKERS_VERSION = 2
_HAS_NOT_HEARD_OF_IT = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED})
"""A topic that is led here, and with it the rest of the request: the coordinator will know it in a moment."""


class AskedElsewhere:
    """An Enlist on its way to the coordinator of the transaction. Unheard, it may have taken effect: a partition that
    is in a transaction without records gets a marker for nothing."""

    def __init__(self, ask: Enlist, asker: Asker) -> None:
        self._ask = ask
        self._asker = asker

    def send(self, core: Core, node_id: int, now_ms: int) -> None:
        assert core.membership is not None
        ask, request = self._ask, AddPartitionsToTxnRequest
        transaction = request.AddPartitionsToTxnTransaction(
            transactional_id=ask.transactional_id,
            producer_id=ask.producer_id,
            producer_epoch=ask.producer_epoch,
            verify_only=ask.verify_only,
            topics=[
                request.AddPartitionsToTxnTopic(name=name, partitions=indexes)
                for name, indexes in _by_topic(ask.partitions).items()
            ],
        )
        message = request(transactions=[transaction])
        core.membership.peers.ask(node_id, message, ADD_PARTITIONS_VERSION, self, now_ms)

    def heard(self, answer: Any, now_ms: int) -> None:
        errors: Enlisted = dict.fromkeys(self._ask.partitions, ErrorCode.NETWORK_EXCEPTION)
        if answer is not None and answer.error_code:
            errors = dict.fromkeys(self._ask.partitions, ErrorCode(answer.error_code))
        elif answer is not None:
            errors |= {
                (topic.name, row.partition_index): ErrorCode(row.partition_error_code)
                for result in answer.results_by_transaction
                for topic in result.topic_results
                for row in topic.results_by_partition
                if row.partition_error_code not in _HAS_NOT_HEARD_OF_IT
            }
        self._asker.answered(errors, now_ms)


class MarkersElsewhere:
    """The end of one transaction on its way to one leader, for all of its partitions there."""

    def __init__(self, core: Core, ending: Ending, partitions: list[TopicPartition], done: Done) -> None:
        self._core = core
        self._ending = ending
        self._partitions = partitions
        self._done = done

    def send(self, node_id: int, now_ms: int) -> None:
        assert self._core.membership is not None
        ending, request = self._ending, WriteTxnMarkersRequest
        marker = request.WritableTxnMarker(
            producer_id=ending.producer_id,
            producer_epoch=ending.producer_epoch,
            transaction_result=ending.committed,
            topics=[
                request.WritableTxnMarkerTopic(name=name, partition_indexes=indexes)
                for name, indexes in _by_topic(self._partitions).items()
            ],
            coordinator_epoch=ending.coordinator_epoch,
            transaction_version=ending.version,
        )
        self._core.membership.peers.ask(node_id, request(markers=[marker]), MARKERS_VERSION, self, now_ms)

    def heard(self, answer: Any, now_ms: int) -> None:
        errors: dict[TopicPartition, ErrorCode] = {}
        if answer is not None:
            errors = {
                (topic.name, row.partition_index): ErrorCode(row.error_code)
                for marker in answer.markers
                for topic in marker.topics
                for row in topic.partitions
            }
        for partition in self._partitions:
            error = errors.get(partition, ErrorCode.NETWORK_EXCEPTION)
            if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and self._core.topics.partition(*partition) is not None:
                error = ErrorCode.NOT_LEADER_OR_FOLLOWER  # it has not heard of the topic yet
            self._done.marker_written(partition, error, now_ms)


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for name, index in partitions:
        topics.setdefault(name, []).append(index)
    return topics
