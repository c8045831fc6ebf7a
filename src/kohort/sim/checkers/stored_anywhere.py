"""What an answer says is stored, with several brokers: what was changed whoever said so, and what is shown by whoever
was the newest leader when it was asked. A broker that others have replaced shows what was, until it hears of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kohort.coordinator.records import OFFSETS_TOPIC, partition_for
from kohort.protocol.messages import (
    ConsumerGroupDescribeRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
)
from kohort.sim.checkers.stored import Stored
from kohort.sim.options import OFFSETS_PARTITIONS

if TYPE_CHECKING:
    from kohort.broker.connection import Call
    from kohort.coordinator.coordinator import Coordinator

CHANGES = (OffsetCommitRequest, OffsetDeleteRequest, DeleteGroupsRequest)


class StoredAnywhere(Stored):
    def asked(self, coordinator: Coordinator, call: Call, message: Any) -> None:
        if isinstance(message, CHANGES) or all(self._is_newest(coordinator, one) for one in _groups(message)):
            super().asked(coordinator, call, message)

    def answered(self, coordinator: Coordinator, call: Call, message: Any, response: Any) -> None:
        if call in self._since and not isinstance(message, ListGroupsRequest):  # each broker lists its own
            super().answered(coordinator, call, message, response)

    def _is_newest(self, coordinator: Coordinator, group_id: str) -> bool:
        world: Any = self._world
        index = partition_for(group_id, OFFSETS_PARTITIONS)
        for node in world.nodes:
            if node.core is not None and node.core.coordinator is coordinator:
                partition = node.led(OFFSETS_TOPIC, index)
                return partition is not None and partition.leader_epoch >= world.newest.epoch(OFFSETS_TOPIC, index)
        return False


def _groups(message: Any) -> list[str]:
    if isinstance(message, DescribeGroupsRequest):
        return list(message.groups)
    if isinstance(message, ConsumerGroupDescribeRequest):
        return list(message.group_ids)
    if isinstance(message, OffsetFetchRequest) and message.groups:
        return [group.group_id for group in message.groups]
    return [message.group_id] if hasattr(message, "group_id") else []
