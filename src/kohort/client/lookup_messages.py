"""ListOffsets and OffsetForLeaderEpoch: requests from partitions, offsets from answers. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from kohort.client.positions import Leader, Position
from kohort.client.types import OffsetAndTimestamp, TopicPartition
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import ListOffsetsRequest, OffsetForLeaderEpochRequest

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
CONSUMER_REPLICA = -1


class Found(NamedTuple):
    """Answers by partition: `offsets` (None where no record is that late), errors for the rest."""

    offsets: dict[TopicPartition, OffsetAndTimestamp | None]
    errors: dict[TopicPartition, ErrorCode]


class EpochEnd(NamedTuple):
    leader_epoch: int
    end_offset: int


def list_offsets_request(
    timestamps: Mapping[TopicPartition, int],
    leaders: Mapping[TopicPartition, Leader],
    read_committed: bool,
    timeout_ms: int,
) -> Any:
    topic_class, partition_class = ListOffsetsRequest.ListOffsetsTopic, ListOffsetsRequest.ListOffsetsPartition
    topics: dict[str, list[Any]] = {}
    for tp, timestamp in timestamps.items():
        topics.setdefault(tp.topic, []).append(
            partition_class(partition_index=tp.partition, current_leader_epoch=leaders[tp].epoch, timestamp=timestamp)
        )
    return ListOffsetsRequest(
        replica_id=CONSUMER_REPLICA,
        isolation_level=int(read_committed),
        topics=[topic_class(name=name, partitions=partitions) for name, partitions in topics.items()],
        timeout_ms=timeout_ms,
    )


def listed_offsets(response: Any) -> Found:
    found = Found({}, {})
    for topic in response.topics:
        for partition in topic.partitions:
            tp = TopicPartition(topic.name, partition.partition_index)
            if partition.error_code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT or (
                partition.error_code == 0 and partition.offset < 0
            ):
                found.offsets[tp] = None
            elif partition.error_code:
                found.errors[tp] = ErrorCode.of(partition.error_code)
            else:
                found.offsets[tp] = OffsetAndTimestamp(partition.offset, partition.timestamp, partition.leader_epoch)
    return found


def epoch_request(positions: Iterable[tuple[TopicPartition, Position, Leader]]) -> Any:
    topic_class = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    partition_class = OffsetForLeaderEpochRequest.OffsetForLeaderPartition
    topics: dict[str, list[Any]] = {}
    for tp, position, leader in positions:
        topics.setdefault(tp.topic, []).append(
            partition_class(partition=tp.partition, current_leader_epoch=leader.epoch, leader_epoch=position.epoch)
        )
    return OffsetForLeaderEpochRequest(
        replica_id=CONSUMER_REPLICA,
        topics=[topic_class(topic=name, partitions=partitions) for name, partitions in topics.items()],
    )


def epoch_ends(response: Any) -> tuple[dict[TopicPartition, EpochEnd], dict[TopicPartition, ErrorCode]]:
    ends: dict[TopicPartition, EpochEnd] = {}
    errors: dict[TopicPartition, ErrorCode] = {}
    for topic in response.topics:
        for partition in topic.partitions:
            tp = TopicPartition(topic.topic, partition.partition)
            if partition.error_code:
                errors[tp] = ErrorCode.of(partition.error_code)
            else:
                ends[tp] = EpochEnd(partition.leader_epoch, partition.end_offset)
    return ends, errors
