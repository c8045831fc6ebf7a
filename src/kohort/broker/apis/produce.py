"""Produce: check each batch, queue it for the end of the turn, answer when all partitions are done."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kohort.broker.appends import Append
from kohort.broker.recompress import recompressed
from kohort.broker.topics import Partition, Topic
from kohort.protocol import messages
from kohort.protocol.errors import ErrorCode
from kohort.records.batch import CREATE_TIME, LOG_APPEND_TIME, TRANSACTIONAL_FLAG, BatchHeader
from kohort.records.errors import InvalidBatch, RecordsError
from kohort.records.validate import validate_produce

if TYPE_CHECKING:
    from kohort.broker.connection import Call
    from kohort.broker.core import Core

_ADMIN_CLIENT_ID = "__admin_client"


class PendingProduce:
    """One request until every partition of it is appended or refused."""

    __slots__ = ("acks", "call", "core", "failed", "response", "waiting")

    def __init__(self, core: Core, call: Call, acks: int, response: Any) -> None:
        self.core = core
        self.call = call
        self.acks = acks
        self.response = response
        self.waiting = 0
        self.failed: ErrorCode | None = None

    def appended(self, append: Append, now_ms: int) -> None:
        result = append.purpose
        if append.error:
            self.refuse(result, append.error, append.message)
        else:
            result.base_offset = append.base_offset
            result.log_append_time_ms = append.append_time_ms
            result.log_start_offset = append.log_start_offset
        self.waiting -= 1
        if self.waiting == 0:
            self.finish()

    def refuse(self, result: Any, error: ErrorCode, message: str | None = None) -> None:
        self.failed = error
        result.error_code = error
        result.error_message = message
        result.base_offset = -1

    def finish(self) -> None:
        if self.acks != 0:
            self.core.reply(self.call, self.response)
        elif self.failed is not None:
            # A client that wants no answer learns of a failure only by a lost connection, and then asks anew.
            self.core.disconnect(self.call.connection, f"Produce with acks=0 failed: {self.failed.name}")
        else:
            self.core.no_reply(self.call)


def handle(core: Core, call: Call, request: Any, now_ms: int) -> None:
    response = messages.ProduceResponse()
    pending = PendingProduce(core, call, request.acks, response)
    result_of, topic_of = response.PartitionProduceResponse, response.TopicProduceResponse
    for asked, records_of in _rows(call, request):
        topic, error = _find(core, call, asked)
        results = []
        for index, records in records_of.items():
            result = result_of(index=index, log_start_offset=-1)
            results.append(result)
            partition = topic.partition(index) if topic is not None else None
            if partition is None:
                pending.refuse(result, error)
            elif request.acks not in (-1, 0, 1):
                pending.refuse(result, ErrorCode.INVALID_REQUIRED_ACKS)
            else:
                _queue(pending, partition, records, result, now_ms)
        response.responses.append(topic_of(name=asked.name, topic_id=asked.topic_id, partition_responses=results))
    if pending.waiting == 0:
        pending.finish()


def _rows(call: Call, request: Any) -> Iterable[tuple[Any, dict[int, Any]]]:
    """Each topic once, with the records of each partition: of rows for the same partition the last counts."""
    rows: dict[bytes | str, tuple[Any, dict[int, Any]]] = {}
    for asked in request.topic_data:
        key = asked.topic_id if call.version >= 13 else asked.name
        records_of = rows.setdefault(key, (asked, {}))[1]
        for data in asked.partition_data:
            records_of[data.index] = data.records
    return rows.values()


def _find(core: Core, call: Call, asked: Any) -> tuple[Topic | None, ErrorCode]:
    if call.version >= 13:
        topic, unknown = core.topics.by_id.get(asked.topic_id), ErrorCode.UNKNOWN_TOPIC_ID
    else:
        topic, unknown = core.topics.by_name.get(asked.name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic is None:
        return None, unknown
    if topic.internal and call.client_id != _ADMIN_CLIENT_ID:
        return None, ErrorCode.INVALID_TOPIC_EXCEPTION
    return topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _queue(pending: PendingProduce, partition: Partition, records: Any, result: Any, now_ms: int) -> None:
    config = partition.log.config
    try:
        header = validate_produce(
            records,
            version=pending.call.version,
            max_message_bytes=config.max_message_bytes,
            now_ms=now_ms,
            timestamp_type=LOG_APPEND_TIME if config.log_append_time else CREATE_TIME,
            timestamp_before_max_ms=config.message_timestamp_before_max_ms,
            timestamp_after_max_ms=config.message_timestamp_after_max_ms,
            compacted=config.compact,
        )
        if config.compression_type != "producer":
            records, header = recompressed(records, header, config)
    except RecordsError as error:
        pending.refuse(result, error.code, error.message)
        if isinstance(error, InvalidBatch) and error.record_errors:
            result.log_start_offset = partition.log.start_offset
            result.record_errors = [
                messages.ProduceResponse.BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=reason)
                for index, reason in error.record_errors
            ]
        return
    if header.attributes & TRANSACTIONAL_FLAG:
        pending.refuse(result, ErrorCode.INVALID_TXN_STATE, "transactions are not supported by this broker")
        return
    _append(pending, partition, records, header, result)


def _append(pending: PendingProduce, partition: Partition, records: Any, header: BatchHeader, result: Any) -> None:
    pending.waiting += 1
    pending.core.append(Append(partition, records, header, pending, result))
