"""A commit in a group of the consumer protocol counts only from a member, for what it has in the epoch that it names.

An older epoch may commit what the member had in it and has still; not who was put out, nor what was given up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kohort.coordinator.modern.group import ModernGroup
from kohort.protocol.messages import OffsetCommitRequest
from kohort.sim.trace import Checker

if TYPE_CHECKING:
    from kohort.broker.connection import Call
    from kohort.coordinator.coordinator import Coordinator
    from kohort.sim.broker import SimBroker


class Fenced(Checker):
    def __init__(self) -> None:
        self._refused: dict[Call, str] = {}  # commits that no partition of may be taken, and why
        self._stale: dict[Call, dict[tuple[str, int], str]] = {}

    def broker_started(self, broker: SimBroker) -> None:
        self._refused.clear()
        self._stale.clear()

    def asked(self, coordinator: Coordinator, call: Call, message: Any) -> None:
        if not isinstance(message, OffsetCommitRequest):
            return
        group = coordinator.group(message.group_id)
        if not isinstance(group, ModernGroup) or (not group.members and message.generation_id_or_member_epoch < 0):
            return
        member = group.members.get(message.member_id)
        epoch = message.generation_id_or_member_epoch
        if member is None:
            self._refused[call] = "it is no member"
        elif epoch > member.current.member_epoch:
            self._refused[call] = f"it is in epoch {member.current.member_epoch}"
        elif epoch < member.current.member_epoch:
            held = {
                (coordinator.topic_name(topic_id), number): since
                for epochs in (member.current.assigned, member.current.pending)
                for topic_id, numbers in epochs.items()
                for number, since in numbers.items()
            }
            self._stale[call] = {
                (topic.name, p.partition_index): f"it has it since {held.get((topic.name, p.partition_index))}"
                for topic in message.topics
                for p in topic.partitions
                if held.get((topic.name, p.partition_index), epoch + 1) > epoch
            }

    def answered(self, coordinator: Coordinator, call: Call, message: Any, response: Any) -> None:
        why, stale = self._refused.pop(call, ""), self._stale.pop(call, {})
        if not isinstance(message, OffsetCommitRequest):
            return
        for topic in response.topics:
            for p in topic.partitions:
                reason = why or stale.get((topic.name, p.partition_index), "")
                if reason and not p.error_code:
                    self.fail(
                        f"{message.group_id} takes a commit of {message.member_id} in epoch "
                        f"{message.generation_id_or_member_epoch} for {topic.name}-{p.partition_index}, but {reason}"
                    )
