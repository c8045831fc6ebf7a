"""What an answer says is in the log, where no crash can take it back, when the answer leaves.

A request is decided at some moment between its arrival and its answer; so its answer shows something that was stored at
one of these moments, never what was not yet, nor what was no more when the request came.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kohort.client.types import TopicPartition
from kohort.coordinator.classic.group import as_classic
from kohort.coordinator.classic.states import DEAD, STABLE
from kohort.coordinator.records import OffsetAndMetadata
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    JoinGroupRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from kohort.protocol.uuids import ZERO_UUID
from kohort.sim.checkers.stored_epochs import StoredEpochs
from kohort.sim.trace import Checker

if TYPE_CHECKING:
    from kohort.broker.connection import Call
    from kohort.coordinator.coordinator import Coordinator
    from kohort.sim.journal import Journal
    from kohort.sim.world import World

NONE = ErrorCode.NONE
IDS_VERSION = 10


class Stored(Checker):
    def __init__(self) -> None:
        self._since: dict[Any, int] = {}
        self._moving: dict[Any, set[str]] = {}  # groups that were in no list when a ListGroups came
        self._rules = {
            OffsetFetchRequest: self._fetched,
            OffsetCommitRequest: self._committed,
            OffsetDeleteRequest: self._offsets_deleted,
            DeleteGroupsRequest: self._groups_deleted,
            DescribeGroupsRequest: self._described,
            ListGroupsRequest: self._listed,
            SyncGroupRequest: self._synced,
            JoinGroupRequest: self._joined,
            ConsumerGroupHeartbeatRequest: self._beat,
            ConsumerGroupDescribeRequest: self._described_epochs,
        }

    def begin(self, world: World) -> None:
        self._world = world
        self._away: set[str] = set()
        self._journal: Journal = world.journal
        self._epochs = StoredEpochs(world.journal, world.name_of_id)

    def asked(self, coordinator: Coordinator, call: Call, message: Any) -> None:
        if type(message) in self._rules:
            self._since[call] = self._journal.moment
            if isinstance(message, ListGroupsRequest):
                self._moving[call] = _strays(coordinator)

    def answered(self, coordinator: Coordinator, call: Call, message: Any, response: Any) -> None:
        if (rule := self._rules.get(type(message))) is not None:
            since = self._since.pop(call)
            self._coordinator = coordinator
            if (moving := self._moving.pop(call, None)) is not None:
                self._away = moving | _strays(coordinator)
            if since >= self._journal.grown:  # who asked before may have been answered from where the group was
                rule(since, call.version, message, response)

    # What was asked for.

    def _fetched(self, since: int, version: int, message: Any, response: Any) -> None:
        groups = response.groups if version >= 8 else [response]
        for group in groups:
            group_id = group.group_id if version >= 8 else message.group_id
            if group.error_code != NONE or not self._world.is_readable(group_id):
                continue
            shown = set()
            for topic in group.topics:
                name = topic.name if version < IDS_VERSION else self._world.name_of(topic)
                for p in topic.partitions:
                    tp = TopicPartition(name, p.partition_index)
                    shown.add(tp)
                    if p.error_code == NONE:
                        self._shown(since, group_id, tp, p.committed_offset, version)
            if self._asked_for_all(message, version, group_id):
                for tp in self._journal.offsets_of(group_id):
                    if tp not in shown:
                        self._shown(since, group_id, tp, -1, version)

    def _asked_for_all(self, message: Any, version: int, group_id: str) -> bool:
        if version < 8:
            return message.topics is None
        return any(asked.group_id == group_id and asked.topics is None for asked in message.groups)

    def _shown(self, since: int, group_id: str, tp: TopicPartition, offset: int, version: int) -> None:
        stood = list(self._journal.offset(group_id, tp).since(since))
        if offset in [-1 if value is None else value.committed_offset for value in stood]:
            return
        if offset == -1 and any(self._is_of_another_topic(tp, value, version) for value in stood):
            return
        self.fail(f"{group_id} is said to have {_none(offset)} for {tp}, stored was {_offsets(stood)}")

    def _is_of_another_topic(self, tp: TopicPartition, value: OffsetAndMetadata | None, version: int) -> bool:
        """A topic that was created again is another one; one that is there no more has no place in answers with ids."""
        current = self._world.broker.store.topic_ids.get(tp.topic)
        if current is None and version < IDS_VERSION:
            return False
        return value is not None and value.topic_id != ZERO_UUID and value.topic_id != current

    def _described(self, since: int, version: int, message: Any, response: Any) -> None:
        for group in response.groups:
            if not self._world.is_readable(group.group_id):
                continue
            stood = list(self._journal.group(group.group_id).since(since))
            if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND or (
                group.error_code == NONE and group.group_state == DEAD.value
            ):
                if None not in stood:  # or it is one of the consumer protocol, see stored_epochs.py
                    self.fail(f"{group.group_id} is said to be unknown, its generation is in the log all the time")
            elif group.error_code == NONE and group.group_state == STABLE.value:
                members = {m.member_id: m.member_assignment for m in group.members}
                known = [{m.member_id: m.assignment for m in value.members} for value in stood if value is not None]
                if members not in known:
                    self.fail(f"{group.group_id} is shown as stable with {sorted(members)}, which was never stored")

    def _listed(self, since: int, version: int, message: Any, response: Any) -> None:
        if response.error_code != NONE:
            return
        listed = {group.group_id for group in response.groups} | self._away
        for group_id in self._journal.group_ids():
            if group_id in listed or not (self._world.is_readable(group_id) and self._world.is_online(group_id)):
                continue
            if not self._journal.may_be_unknown(group_id, since):
                self.fail(f"{group_id} is not listed, its generation is in the log all the time")

    # What was changed.

    def _committed(self, since: int, version: int, message: Any, response: Any) -> None:
        wanted = {
            (self._world.name_of(topic), p.partition_index): p.committed_offset
            for topic in message.topics
            for p in topic.partitions
        }
        for topic in response.topics:
            for p in topic.partitions:
                if p.error_code != NONE:
                    continue
                tp = TopicPartition(self._world.name_of(topic), p.partition_index)
                stood = list(self._journal.offset(message.group_id, tp).since(since))
                if wanted[tp] not in [value.committed_offset for value in stood if value is not None]:
                    self.fail(
                        f"a commit of {wanted[tp]} of {message.group_id} for {tp} is acknowledged, "
                        f"stored is {_offsets(stood)}"
                    )

    def _offsets_deleted(self, since: int, version: int, message: Any, response: Any) -> None:
        if response.error_code != NONE:
            return
        for topic in response.topics:
            for p in topic.partitions:
                if p.error_code == NONE:
                    self._gone(since, message.group_id, TopicPartition(topic.name, p.partition_index), "OffsetDelete")

    def _groups_deleted(self, since: int, version: int, message: Any, response: Any) -> None:
        for result in response.results:
            if result.error_code == NONE:
                if not self._journal.may_be_unknown(result.group_id, since):
                    self.fail(f"{result.group_id} is said to be deleted, its generation is still in the log")
                for tp in self._journal.offsets_of(result.group_id):
                    self._gone(since, result.group_id, tp, "DeleteGroups")

    def _gone(self, since: int, group_id: str, tp: TopicPartition, api: str) -> None:
        stood = list(self._journal.offset(group_id, tp).since(since))
        if None not in stood:
            self.fail(f"{api} of {group_id} is acknowledged, {tp} still has {_offsets(stood)}")

    def _synced(self, since: int, version: int, message: Any, response: Any) -> None:
        if response.error_code != NONE or self._epochs.synced(since, message, response):
            return
        for value in self._journal.group(message.group_id).since(since):
            if value is not None and value.generation == message.generation_id:
                stored = {m.member_id: m.assignment for m in value.members}
                if stored.get(message.member_id) == response.assignment:
                    return
        self.fail(f"{message.member_id} is told an assignment of {message.group_id} that is not in the log")

    # Of groups of the consumer protocol.

    def _joined(self, since: int, version: int, message: Any, response: Any) -> None:
        """What a classic group answers is stored when its generation is, with SyncGroup; so too where the group has
        become a classic one, even if that is not stored yet."""
        is_classic = as_classic(self._coordinator.group(message.group_id)) is not None
        if response.error_code == NONE and not is_classic and self._epochs.has(message.group_id, since):
            self._say(self._epochs.joined(since, message.group_id, response))

    def _beat(self, since: int, version: int, message: Any, response: Any) -> None:
        if response.error_code == NONE:
            self._say(self._epochs.heartbeat(since, message, response))

    def _described_epochs(self, since: int, version: int, message: Any, response: Any) -> None:
        for group in response.groups:
            if self._world.is_readable(group.group_id):
                self._say(self._epochs.described(since, group))

    def _say(self, wrong: str) -> None:
        if wrong:
            self.fail(wrong)


def _strays(coordinator: Coordinator) -> set[str]:
    """On their way to another partition, for a moment in no list."""
    return {group_id for shard in coordinator.runtime.shards.values() for group_id in shard.state.strays}


def _none(offset: int) -> str:
    return "no offset" if offset == -1 else str(offset)


def _offsets(stood: list[OffsetAndMetadata | None]) -> str:
    return ", then ".join("none" if value is None else str(value.committed_offset) for value in reversed(stood))
