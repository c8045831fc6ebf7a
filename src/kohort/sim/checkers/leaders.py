"""Only a leader of a group's partition answers for the group, and when all is quiet every partition has one leader.

What was asked of a leader may be answered when it hands the partition over and has stored all that the answer rests on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kohort.coordinator.records import OFFSETS_TOPIC, partition_for
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    SyncGroupRequest,
)
from kohort.sim.options import OFFSETS_PARTITIONS
from kohort.sim.trace import Checker

if TYPE_CHECKING:
    from kohort.broker.connection import Call
    from kohort.coordinator.coordinator import Coordinator
    from kohort.sim.world import World

OF_ONE_GROUP = (
    ConsumerGroupHeartbeatRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    SyncGroupRequest,
)


class Leaders(Checker):
    def begin(self, world: World) -> None:
        self._world: Any = world
        self._was_led: set[Call] = set()

    def asked(self, coordinator: Coordinator, call: Call, message: Any) -> None:
        if isinstance(message, OF_ONE_GROUP) and self._leads(coordinator, message):
            self._was_led.add(call)

    def answered(self, coordinator: Coordinator, call: Call, message: Any, response: Any) -> None:
        if not isinstance(message, OF_ONE_GROUP):
            return
        was_led = call in self._was_led
        self._was_led.discard(call)
        if _succeeded(response) and not was_led and not self._leads(coordinator, message):
            self.fail(
                f"{call.entry.name} of {message.group_id} is answered by a broker that does not lead its partition"
            )

    def _leads(self, coordinator: Coordinator, message: Any) -> bool:
        (node,) = [n for n in self._world.nodes if n.core is not None and n.core.coordinator is coordinator]
        partition = node.core.topics.partition(OFFSETS_TOPIC, partition_for(message.group_id, OFFSETS_PARTITIONS))
        if partition is None:
            return False
        is_loading = partition.leader_id == node.node_id and isinstance(message, HeartbeatRequest)  # as in Kafka
        return partition.leads or is_loading

    def settled(self, world: Any) -> None:
        for node in world.nodes:
            if not node.is_settled:
                self.fail(f"{node.name} is no member of the cluster, or does not serve all that it is to lead")
        for tp in world.partitions_led():
            world.leader(tp)


def _succeeded(response: Any) -> bool:
    if hasattr(response, "error_code"):
        return bool(response.error_code == ErrorCode.NONE)
    return any(row.error_code == ErrorCode.NONE for topic in response.topics for row in topic.partitions)
