"""A KIP-848 group in a World, told in few words: members that send heartbeats, and what they have."""

from __future__ import annotations

from typing import Any

from coordinator.world import World
from kohort.coordinator.modern.group import ModernGroup
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    OffsetCommitRequest,
    OffsetFetchRequest,
)

GROUP = "g"
Names = dict[str, set[int]]
_Row = ConsumerGroupHeartbeatRequest.TopicPartitions


class Members:
    """`owned` is what each member's client has; a heartbeat acknowledges it unless told otherwise."""

    def __init__(self, **config: Any) -> None:
        config.setdefault("consumer_assignment_interval_ms", 0)
        self.world = World(**config)
        self.epochs: dict[str, int] = {}
        self.owned: dict[str, Names] = {}

    @property
    def group(self) -> ModernGroup:
        group = self.world.coordinator.group(GROUP)
        assert isinstance(group, ModernGroup)
        return group

    def send(self, member_id: str, version: int = 1, **fields: Any) -> Any:
        if isinstance(owned := fields.get("topic_partitions"), dict):
            topics = self.world.topics.topics
            fields["topic_partitions"] = [
                _Row(topic_id=topics[name][0], partitions=sorted(numbers)) for name, numbers in owned.items()
            ]
        message = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id=member_id, **fields)
        response = self.world.send(message, version, client_id=member_id)
        assert response is None or isinstance(response, ConsumerGroupHeartbeatResponse)
        if response is not None and not response.error_code:
            self._took(member_id, response)
        return response

    def _took(self, member_id: str, response: Any) -> None:
        self.epochs[member_id] = response.member_epoch
        if response.assignment is not None:
            by_id = self.world.topics.by_id
            self.owned[member_id] = {
                by_id(row.topic_id) or row.topic_id.hex(): set(row.partitions)
                for row in response.assignment.topic_partitions
            }

    def join(self, member_id: str, *topics: str, **fields: Any) -> Any:
        fields.setdefault("subscribed_topic_names", list(topics) or ["orders"])
        fields.setdefault("rebalance_timeout_ms", 60_000)
        return self.send(member_id, member_epoch=0, topic_partitions=[], **fields)

    def beat(self, member_id: str, **fields: Any) -> Any:
        """A heartbeat with nothing to say."""
        return self.send(member_id, member_epoch=self.epochs[member_id], **fields)

    def acknowledge(self, member_id: str, **fields: Any) -> Any:
        """A heartbeat that says what the member has."""
        return self.beat(member_id, topic_partitions=self.owned[member_id], **fields)

    def leave(self, member_id: str, epoch: int = -1, **fields: Any) -> Any:
        return self.send(member_id, member_epoch=epoch, **fields)

    def settle(self, *member_ids: str) -> dict[str, Names]:
        """Everybody acknowledges until nobody moves any more."""
        names = member_ids or tuple(self.group.members)
        for _ in range(10):
            before = dict(self.epochs), {name: dict(self.owned[name]) for name in names}
            for name in names:
                assert not self.acknowledge(name).error_code
            if before == (dict(self.epochs), {name: dict(self.owned[name]) for name in names}):
                break
        return {name: self.owned[name] for name in names}

    def commit(self, member_id: str, epoch: int, partition: int = 0, offset: int = 5, version: int = 9) -> ErrorCode:
        row = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
        topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="orders", partitions=[row])
        message = OffsetCommitRequest(
            group_id=GROUP, member_id=member_id, generation_id_or_member_epoch=epoch, topics=[topic]
        )
        response = self.world.send(message, version)
        return ErrorCode(response.topics[0].partitions[0].error_code)

    def fetch(self, member_id: str | None, epoch: int) -> Any:
        group = OffsetFetchRequest.OffsetFetchRequestGroup(
            group_id=GROUP, member_id=member_id, member_epoch=epoch, topics=None
        )
        return self.world.send(OffsetFetchRequest(groups=[group]), 9).groups[0]

    def describe(self, group_id: str = GROUP) -> Any:
        return self.world.send(ConsumerGroupDescribeRequest(group_ids=[group_id]), 1).groups[0]
