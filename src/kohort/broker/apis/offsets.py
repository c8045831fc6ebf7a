"""ListOffsets and OffsetForLeaderEpoch: where a log begins, ends, or was at some time or epoch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from kohort.broker.epochs import epoch_end, epoch_error
from kohort.broker.topics import Partition
from kohort.protocol import messages
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.storage.cold_segment import NotInMemory
from kohort.storage.errors import StorageError

if TYPE_CHECKING:
    from kohort.broker.connection import Call
    from kohort.broker.core import Core
    from kohort.broker.long_work import Steps

ROWS_AT_ONCE = 200
LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
_SINCE_VERSION = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
_READ_COMMITTED = 1
_LOOKS = 4
"""At a store for what is not in memory; then the client asks again."""


class Found(NamedTuple):
    offset: int = -1
    timestamp: int = -1
    leader_epoch: int = -1


def list_offsets(core: Core, call: Call, request: Any, now_ms: int) -> Steps:
    """Where a time is asked for that lies in a segment of a cluster's store, that is read first, elsewhere."""
    return (yield from _look(core, call, request, _LOOKS))


class _Look:
    reads_records = True

    def __init__(self, core: Core, call: Call, request: Any, left: int, loads: list[Callable[[], None]]) -> None:
        self._core = core
        self._call = call
        self._request = request
        self._left = left
        self._loads = loads

    def run(self) -> None:
        for load in self._loads:
            try:
                load()
            except StorageError:
                pass  # whoever reads there is told

    def finish(self, error: BaseException | None, now_ms: int) -> None:
        if self._call.connection.close_reason is None:
            again = _look(self._core, self._call, self._request, self._left - 1)
            self._core.long_work.begin(self._call, again, now_ms)


def _look(core: Core, call: Call, request: Any, left: int) -> Steps:
    loads: list[Callable[[], None]] = []
    response = yield from _answer(core, call, request, loads)
    if not loads or not left:
        return response
    core.run_elsewhere(_Look(core, call, request, left, loads))
    return None


def _answer(core: Core, call: Call, request: Any, loads: list[Callable[[], None]]) -> Steps:
    response = messages.ListOffsetsResponse()
    committed = request.isolation_level == _READ_COMMITTED
    seen: dict[tuple[str, int], int] = {}
    for topic in request.topics:
        for asked in topic.partitions:
            key = (topic.name, asked.partition_index)
            seen[key] = seen.get(key, 0) + 1
    if len(seen) > ROWS_AT_ONCE:
        yield
    count = 0
    for topic in request.topics:
        rows: list[Any] = []
        response.topics.append(response.ListOffsetsTopicResponse(name=topic.name, partitions=rows))
        for asked in topic.partitions:
            count += 1
            if count % ROWS_AT_ONCE == 0:
                yield
            row = response.ListOffsetsPartitionResponse(partition_index=asked.partition_index)
            rows.append(row)
            if seen[topic.name, asked.partition_index] > 1:
                row.error_code = ErrorCode.INVALID_REQUEST
                continue
            partition = core.topics.partition(topic.name, asked.partition_index)
            try:
                _list_one(row, partition, asked, committed, call.version)
            except NotInMemory as missing:
                row.error_code = missing.code
                loads.append(missing.load)
    return response


def _list_one(row: Any, partition: Partition | None, asked: Any, committed: bool, version: int) -> None:
    if partition is None:
        row.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return
    if not partition.leads:
        row.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return
    if version < _SINCE_VERSION.get(asked.timestamp, 0):
        row.error_code = ErrorCode.UNSUPPORTED_VERSION
        return
    error = epoch_error(partition, asked.current_leader_epoch)
    if error is not None:
        row.error_code = error
        return
    try:
        found = _find(partition, asked.timestamp, committed)
    except NotInMemory:
        raise
    except KafkaError as failed:
        row.error_code = failed.code
        return
    row.offset, row.timestamp = found.offset, found.timestamp
    if version >= 4:
        row.leader_epoch = found.leader_epoch


def _find(partition: Partition, timestamp: int, committed: bool) -> Found:
    log = partition.log
    end = log.last_stable_offset if committed else log.high_watermark
    if timestamp == LATEST:
        return Found(end, -1, partition.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        epoch = log.epoch_for_offset(log.start_offset) if log.start_offset < log.end_offset else -1
        return Found(log.start_offset, -1, epoch if epoch >= 0 else partition.leader_epoch)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return Found()
    found = log.max_timestamp() if timestamp == MAX_TIMESTAMP else log.offset_for_timestamp(timestamp)
    if found is None or found.offset >= end:
        return Found()
    return Found(found.offset, found.timestamp, found.leader_epoch)


def offset_for_leader_epoch(core: Core, call: Call, request: Any, now_ms: int) -> Steps:
    response = messages.OffsetForLeaderEpochResponse()
    count = 0
    for topic in request.topics:
        rows: list[Any] = []
        response.topics.append(response.OffsetForLeaderTopicResult(topic=topic.topic, partitions=rows))
        for asked in topic.partitions:
            count += 1
            if count % ROWS_AT_ONCE == 0:
                yield
            row = response.EpochEndOffset(partition=asked.partition, leader_epoch=-1, end_offset=-1)
            rows.append(row)
            partition = core.topics.partition(topic.topic, asked.partition)
            if partition is None:
                row.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif not partition.leads:
                row.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            elif error := epoch_error(partition, asked.current_leader_epoch):
                row.error_code = error
            else:
                row.leader_epoch, row.end_offset = epoch_end(partition, asked.leader_epoch)
    return response
