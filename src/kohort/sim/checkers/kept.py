"""Offsets are removed only for a reason that came after their commit: a delete, the end of their topic, their age.

By age means as Kafka has it (KIP-211): nobody is in the group and it has been so for the retention; or, where the group
was never more than commits, or nobody in it subscribes to the topic, nothing was committed for the retention. Groups of
the consumer protocol have only the latter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kohort.assignors.consumer_protocol import decode_subscription
from kohort.coordinator.classic.states import EMPTY
from kohort.coordinator.events import GroupDeleted, GroupEvent, GroupLoaded, GroupUnloaded, StateChanged
from kohort.coordinator.records import StoredGroup
from kohort.protocol.messages import DeleteGroupsRequest, DeleteTopicsRequest, OffsetDeleteRequest
from kohort.sim.journal import Removal
from kohort.sim.trace import Checker

if TYPE_CHECKING:
    from kohort.broker.connection import Call
    from kohort.coordinator.coordinator import Coordinator
    from kohort.sim.broker import SimBroker
    from kohort.sim.world import World


class Kept(Checker):
    def __init__(self) -> None:
        self._deletes: dict[tuple[str, str], list[int]] = {}  # by group and topic, or one of them and "": when
        self._empty_since: dict[str, int] = {}  # also where the log could not be told

    def begin(self, world: World) -> None:
        self._scheduler = world.scheduler
        self._retention_ms = world.options.retention_ms

    def asked(self, coordinator: Coordinator, call: Call, message: Any) -> None:
        if isinstance(message, DeleteGroupsRequest):
            for group_id in message.groups_names:
                self._deleted(group_id, "")
        elif isinstance(message, OffsetDeleteRequest):
            for topic in message.topics:
                self._deleted(message.group_id, topic.name)
        elif isinstance(message, DeleteTopicsRequest):
            for topic in message.topics:
                self._deleted("", topic.name)

    def group_event(self, event: GroupEvent) -> None:
        if isinstance(event, StateChanged) and event.to_state == EMPTY.value:
            self._empty_since[event.group_id] = event.at_ms
        elif isinstance(event, StateChanged | GroupDeleted | GroupLoaded | GroupUnloaded):
            self._empty_since.pop(event.group_id, None)

    def broker_started(self, broker: SimBroker) -> None:
        self._empty_since.clear()

    def _deleted(self, group_id: str, topic: str) -> None:
        self._deletes.setdefault((group_id, topic), []).append(self._scheduler.now_ms)

    def offset_removed(self, removal: Removal) -> None:
        group_id, topic = removal.group_id, removal.tp.topic
        for key in ((group_id, ""), (group_id, topic), ("", topic)):
            for at_ms in self._deletes.get(key, ()):
                if removal.before.commit_timestamp_ms <= at_ms <= removal.at_ms:
                    return
        if not self._retention_ms or removal.at_ms - self._base_ms(removal) < self._retention_ms:
            age_ms = removal.at_ms - removal.before.commit_timestamp_ms
            self.fail(
                f"{group_id} loses its offset {removal.before.committed_offset} for {removal.tp}, committed {age_ms} "
                "ms before: nobody deleted it, and it is too young to expire"
            )
        if topic in removal.topics or (
            removal.group is not None and group_id not in self._empty_since and topic in _subscribed(removal.group)
        ):
            self.fail(f"the offset of {group_id} for {removal.tp} expires while a member subscribes to it")

    def _base_ms(self, removal: Removal) -> int:
        """The earliest time from which its age may count."""
        group = removal.group
        base_ms = removal.before.commit_timestamp_ms
        if removal.epoch is not None:  # a group of the consumer protocol: always by the commit
            return base_ms
        if group is not None and not group.members and group.protocol_type and group.state_timestamp_ms != -1:
            base_ms = group.state_timestamp_ms
        return min(base_ms, self._empty_since.get(removal.group_id, base_ms))


def _subscribed(group: StoredGroup) -> set[str]:
    return {topic for member in group.members for topic in decode_subscription(member.subscription).topics}
