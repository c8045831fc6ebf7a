"""Markers, the ends of transactions, on their way into the logs of partitions; also WriteTxnMarkers, by which a broker
asks another for that (and an operator for the end of a transaction that hangs).

A marker for a partition of the group coordinator goes through that coordinator: what was committed in the transaction
counts from there on. Who is told is given with each marker: `done.marker_written(partition, error, now_ms)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kohort.broker.appends import Append
from kohort.coordinator.records import OFFSETS_TOPIC
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import WriteTxnMarkersResponse
from kohort.records.batch import read_header
from kohort.records.control import ControlType, build_marker
from kohort.storage.producers import EndOfTransaction

if TYPE_CHECKING:
    from kohort.broker.connection import Call
    from kohort.broker.core import Core
    from kohort.broker.long_work import Steps

TopicPartition = tuple[str, int]
MARKERS_AT_ONCE = 50
# The group coordinator is not ready; a transaction coordinator knows what to make of this one.
_NOT_READY = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)


class Ending(NamedTuple):
    """The end of one producer's transaction."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    committed: bool
    version: int


class Done(Protocol):
    def marker_written(self, partition: TopicPartition, error: ErrorCode, now_ms: int) -> None: ...


class EndsTransactions(Protocol):
    """The group coordinator's part of it."""

    def end_transaction(self, partition: int, ending: Ending, told: Told, now_ms: int) -> None: ...


class Told(NamedTuple):
    """One partition of a marker, as a request to the group coordinator: the answer is an error code."""

    done: Done
    partition: TopicPartition

    def answered(self, error: ErrorCode, now_ms: int) -> None:
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER if error in _NOT_READY else error
        self.done.marker_written(self.partition, error, now_ms)


class MarkerWriter:
    """Into the logs of this broker."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def write(self, ending: Ending, partition: TopicPartition, done: Done, now_ms: int) -> None:
        found = self._core.topics.partition(*partition)
        if found is None:
            done.marker_written(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, now_ms)
            return
        if not found.leads:
            done.marker_written(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER, now_ms)
            return
        groups: Any = self._core.service("groups")
        if partition[0] == OFFSETS_TOPIC and groups is not None:
            ends: EndsTransactions = groups
            ends.end_transaction(partition[1], ending, Told(done, partition), now_ms)
            return
        data = build_marker(
            ControlType.COMMIT if ending.committed else ControlType.ABORT,
            timestamp=now_ms,
            producer_id=ending.producer_id,
            producer_epoch=ending.producer_epoch,
            coordinator_epoch=ending.coordinator_epoch,
        )
        origin = EndOfTransaction(ending.coordinator_epoch, ending.version)
        self._core.append(Append(found, data, read_header(data), self, Told(done, partition), origin))

    def appended(self, append: Append, now_ms: int) -> None:
        told: Told = append.purpose
        told.done.marker_written(told.partition, append.error, now_ms)


class PendingMarkers:
    """One WriteTxnMarkers until every partition of it is done."""

    def __init__(self, core: Core, call: Call) -> None:
        self._core = core
        self._call = call
        self._response = WriteTxnMarkersResponse()
        self._waiting = 0
        self._rows: dict[int, _Row] = {}

    def begin(self, writer: MarkerWriter, markers: list[Any]) -> Steps:
        self._waiting = 1
        count = 0
        for marker in markers:
            ending = Ending(
                marker.producer_id,
                marker.producer_epoch,
                marker.coordinator_epoch,
                marker.transaction_result,
                marker.transaction_version,
            )
            row = self._row(marker.producer_id)
            for topic in marker.topics:
                for index in topic.partition_indexes:
                    self._waiting += 1
                    writer.write(ending, (topic.name, index), row, self._core.topics.now_ms)
                    count += 1
                    if count % MARKERS_AT_ONCE == 0:
                        yield
        self.finish_one()

    def _row(self, producer_id: int) -> _Row:
        found = self._rows.get(producer_id)
        if found is None:
            row = self._response.WritableTxnMarkerResult(producer_id=producer_id, topics=[])
            self._response.markers.append(row)
            found = self._rows[producer_id] = _Row(self, row)
        return found

    def finish_one(self) -> None:
        self._waiting -= 1
        if not self._waiting:
            self._core.reply(self._call, self._response)


class _Row:
    """The marker of one producer in such a request."""

    def __init__(self, pending: PendingMarkers, row: Any) -> None:
        self._pending = pending
        self._row = row
        self._topics: dict[str, Any] = {}

    def marker_written(self, partition: TopicPartition, error: ErrorCode, now_ms: int) -> None:
        response = WriteTxnMarkersResponse
        name, index = partition
        topic = self._topics.get(name)
        if topic is None:
            topic = self._topics[name] = response.WritableTxnMarkerTopicResult(name=name, partitions=[])
            self._row.topics.append(topic)
        topic.partitions.append(response.WritableTxnMarkerPartitionResult(partition_index=index, error_code=error))
        self._pending.finish_one()
