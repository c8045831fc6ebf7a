"""Produce: check each batch, queue it for the end of the turn, answer when all partitions are done.

Many partitions, or many bytes, are queued in slices: the next requests of the connection wait for the last of them, so
that what a client sends to a partition stays in order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from kohort.broker import leaders
from kohort.broker.admission import ProduceAdmission
from kohort.broker.appends import Append
from kohort.broker.checking import SMALL_BYTES, Check
from kohort.broker.topics import Partition, Topic
from kohort.protocol import messages
from kohort.protocol.errors import ErrorCode
from kohort.records.batch import TRANSACTIONAL_FLAG, read_header
from kohort.records.errors import InvalidBatch, RecordsError
from kohort.records.validate import check_envelope

if TYPE_CHECKING:
    from kohort.broker.connection import Call
    from kohort.broker.core import Core
    from kohort.broker.long_work import Steps

_ADMIN_CLIENT_ID = "__admin_client"
MANY_PARTITIONS = 100
PARTITIONS_AT_ONCE = 25
"""The first append to a log makes files, and takes some thirty times as long as the next ones."""
BYTES_AT_ONCE = 4 * 1024 * 1024
ADMITTED_AT_ONCE = 200
"""Fewer would have the coordinator write down the same transaction too often."""
_FEW_BYTES = 8 * 1024
Rows = Collection[tuple[Any, dict[int, Any]]]


class PendingProduce:
    """One request until every partition of it is appended or refused."""

    __slots__ = (
        "acks",
        "call",
        "core",
        "failed",
        "is_large",
        "response",
        "to_admit",
        "transactional",
        "transactional_id",
        "waiting",
    )

    def __init__(self, core: Core, call: Call, request: Any, response: Any) -> None:
        self.core = core
        self.call = call
        self.acks = request.acks
        self.transactional_id: str | None = request.transactional_id
        self.response = response
        self.waiting = 1  # the handler itself, which goes on to other partitions
        self.failed: ErrorCode | None = None
        self.is_large = False  # then its answer is written elsewhere
        self.transactional: list[Append] = []  # batches whose transaction is to be asked about first
        self.to_admit = 1  # of these: the handler itself, and those whose records are being checked

    def appended(self, append: Append, now_ms: int) -> None:
        result = append.purpose
        if append.error:
            self.refuse(result, append.error, append.message)
        else:
            result.base_offset = append.base_offset
            result.log_append_time_ms = append.append_time_ms
            result.log_start_offset = append.log_start_offset
        self.done_with_one()

    def checked(self, check: Check, now_ms: int) -> None:
        """The records of a batch are as they should be, or not; until the end of `handle` nothing is finished."""
        error, result = check.error, check.purpose
        is_transactional = check.header.attributes & TRANSACTIONAL_FLAG
        if error is None:
            self.queue(Append(check.partition, check.records, check.header, self, result))
        if is_transactional:
            self.admit_one(now_ms)
        if error is None:
            return
        self.refuse(result, error.code, error.message)
        if isinstance(error, InvalidBatch) and error.record_errors:
            result.log_start_offset = check.partition.log.start_offset
            result.record_errors = [
                messages.ProduceResponse.BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=reason)
                for index, reason in error.record_errors
            ]
        self.done_with_one()

    def queue(self, append: Append) -> None:
        """Its records are as they should be."""
        if append.header.attributes & TRANSACTIONAL_FLAG:
            self.transactional.append(append)
            if len(self.transactional) == ADMITTED_AT_ONCE:
                self._admit(self.core.topics.now_ms)
        else:
            self.core.append(append)

    def admit_one(self, now_ms: int) -> None:
        """Transactional batches are asked about together, when the last of them is checked, or there are many."""
        self.to_admit -= 1
        if not self.to_admit and self.transactional:
            self._admit(now_ms)

    def _admit(self, now_ms: int) -> None:
        some, self.transactional = self.transactional, []
        ProduceAdmission(self.core, self.call.version).admit(self.transactional_id, some, now_ms)

    def is_wanted(self) -> bool:
        """Whether the outcome still matters: a peer that is gone never learns of it, unless it did not want to."""
        return self.acks == 0 or self.call.connection.close_reason is None

    def done_with_one(self) -> None:
        self.waiting -= 1
        if self.waiting == 0:
            self.finish()

    def refuse(self, result: Any, error: ErrorCode, message: str | None = None) -> None:
        self.failed = error
        result.error_code = error
        result.error_message = message
        result.base_offset = -1

    def finish(self) -> None:
        if self.acks != 0 and self.is_large:
            self.core.long_work.encode(self.call, self.response)
        elif self.acks != 0:
            self.core.reply(self.call, self.response)
        elif self.failed is not None:
            # A client that wants no answer learns of a failure only by a lost connection, and then asks anew.
            self.core.disconnect(self.call.connection, f"Produce with acks=0 failed: {self.failed.name}")
        else:
            self.core.no_reply(self.call)


def handle(core: Core, call: Call, request: Any, now_ms: int) -> Steps | None:
    pending = PendingProduce(core, call, request, messages.ProduceResponse())
    rows = _rows(call, request)
    if call.size > _FEW_BYTES:
        pending.is_large = sum(len(records_of) for _, records_of in rows) > MANY_PARTITIONS
        if pending.is_large or call.size > BYTES_AT_ONCE:
            return _in_slices(pending, rows)
    for asked, records_of in rows:
        _take(pending, asked, records_of.items(), _results(pending, asked), now_ms)
    pending.admit_one(now_ms)
    pending.done_with_one()
    return None


def _in_slices(pending: PendingProduce, rows: Rows) -> Steps:
    """So that the end of a turn does not append more than others should wait for."""
    topics, count, size = pending.core.topics, 0, 0
    for asked, records_of in rows:
        results = _results(pending, asked)
        some: list[tuple[int, Any]] = []
        for index, records in records_of.items():
            some.append((index, records))
            count, size = count + 1, size + len(records or b"")
            if count >= PARTITIONS_AT_ONCE or size >= BYTES_AT_ONCE:
                _take(pending, asked, some, results, topics.now_ms)
                some, count, size = [], 0, 0
                yield
                if not pending.is_wanted():
                    return
        _take(pending, asked, some, results, topics.now_ms)
    pending.admit_one(topics.now_ms)
    pending.done_with_one()


def _results(pending: PendingProduce, asked: Any) -> list[Any]:
    """The rows of a topic in the answer."""
    results: list[Any] = []
    row = messages.ProduceResponse.TopicProduceResponse
    pending.response.responses.append(row(name=asked.name, topic_id=asked.topic_id, partition_responses=results))
    return results


def _take(
    pending: PendingProduce, asked: Any, some: Iterable[tuple[int, Any]], results: list[Any], now_ms: int
) -> None:
    """Records for partitions of one topic."""
    core, result_of = pending.core, messages.ProduceResponse.PartitionProduceResponse
    topic, error = _find(core, pending.call, asked)
    for index, records in some:
        result = result_of(index=index, log_start_offset=-1)
        results.append(result)
        partition = topic.partition(index) if topic is not None else None
        if partition is None:
            pending.refuse(result, error)
        elif pending.acks not in (-1, 0, 1):
            pending.refuse(result, ErrorCode.INVALID_REQUIRED_ACKS)
        elif not partition.leads:
            leaders.refuse_produce(core, pending, partition, result)
        else:
            _queue(pending, partition, records, result, now_ms)


def _rows(call: Call, request: Any) -> Rows:
    """Each topic once, with the records of each partition: of rows for the same partition the last counts."""
    if len(request.topic_data) == 1:
        (asked,) = request.topic_data
        return ((asked, {data.index: data.records for data in asked.partition_data}),)
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
    checking, config = pending.core.checking, partition.log.config
    if records and len(records) <= SMALL_BYTES:
        records = bytes(records)
        if checking.passes(pending.call.connection, records, config, now_ms):
            pending.waiting += 1
            pending.queue(Append(partition, records, read_header(records), pending, result))
            return
    rules = checking.rules(config, now_ms)
    try:
        header = check_envelope(records, pending.call.version, rules.max_message_bytes)
    except RecordsError as error:
        pending.refuse(result, error.code, error.message)
        return
    pending.waiting += 1
    if header.attributes & TRANSACTIONAL_FLAG:
        pending.to_admit += 1
    check = Check(pending, partition, records, header, rules, result)
    checking.check(pending.call.connection, check, now_ms)
