"""OffsetCommit and OffsetFetch: requests from offsets, offsets and errors from answers. Pure, no membership."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from kohort.client.errors import error_for
from kohort.client.types import OffsetAndMetadata, TopicPartition
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages import OffsetCommitRequest, OffsetFetchRequest

MAX_VERSION_WITH_NAMES = 9
"""From version 10 on both apis name topics by id, which a deleted and re-created topic needs, not a classic member."""
LEAST_VERSION_WITH_EPOCH = 9
"""The first one of both apis that checks the epoch of a member (KIP-848)."""

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


def commit_request(
    group_id: str, generation_id: int, member_id: str, group_instance_id: str | None, offsets: Offsets
) -> Any:
    topic_class = OffsetCommitRequest.OffsetCommitRequestTopic
    partition_class = OffsetCommitRequest.OffsetCommitRequestPartition
    topics: dict[str, list[Any]] = defaultdict(list)
    for (topic, partition), (offset, metadata, leader_epoch) in offsets.items():
        if offset < 0:
            raise ValueError(f"cannot commit offset {offset} of {topic}-{partition}: offsets begin at 0")
        topics[topic].append(
            partition_class(
                partition_index=partition,
                committed_offset=offset,
                committed_leader_epoch=leader_epoch,
                committed_metadata=metadata,
            )
        )
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation_id,
        member_id=member_id,
        group_instance_id=group_instance_id,
        topics=[topic_class(name=name, partitions=partitions) for name, partitions in topics.items()],
    )


def commit_errors(response: Any) -> dict[TopicPartition, ErrorCode]:
    return {
        TopicPartition(topic.name, partition.partition_index): ErrorCode.of(partition.error_code)
        for topic in response.topics
        for partition in topic.partitions
        if partition.error_code
    }


def fetch_request(group_id: str, partitions: Iterable[TopicPartition] | None, require_stable: bool = True) -> Any:
    """None asks for every partition the group has committed."""
    topics = None
    if partitions is not None:
        by_topic: dict[str, list[int]] = defaultdict(list)
        for topic, partition in sorted(partitions):
            by_topic[topic].append(partition)
        topic_class = OffsetFetchRequest.OffsetFetchRequestTopics
        topics = [topic_class(name=name, partition_indexes=numbers) for name, numbers in by_topic.items()]
    group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group_id, topics=topics)
    return OffsetFetchRequest(groups=[group], require_stable=require_stable)


def fetched_offsets(response: Any) -> dict[TopicPartition, OffsetAndMetadata | None]:
    """The committed offset of each partition of the answer, None where there is no commit; raises KafkaError."""
    (group,) = response.groups
    if group.error_code:
        raise error_for(group.error_code)
    offsets: dict[TopicPartition, OffsetAndMetadata | None] = {}
    for topic in group.topics or ():
        for partition in topic.partitions:
            tp = TopicPartition(topic.name, partition.partition_index)
            if partition.error_code:
                raise _partition_error(tp, partition.error_code)
            offset = partition.committed_offset
            offsets[tp] = (
                OffsetAndMetadata(offset, partition.metadata or "", partition.committed_leader_epoch)
                if offset >= 0
                else None
            )
    return offsets


def _partition_error(tp: TopicPartition, code: int) -> KafkaError:
    known = ErrorCode.of(code)
    if known is ErrorCode.UNSTABLE_OFFSET_COMMIT:
        return KafkaError(known, f"{tp}: a transaction that commits this offset is still open; it will be asked again")
    return error_for(code, f"committed offset of {tp}: {known.message}")
