"""A group with one client: it commits without being a member, joins for a while, deletes what it made, looks again.

Its offsets only grow, so that a later commit can be told from an earlier one. Everything goes over one connection,
often without waiting for the last answer: a commit and what comes right behind it meet in the same turn of the broker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kohort.assignors.consumer_protocol import encode_subscription
from kohort.assignors.types import Subscription
from kohort.client.types import TopicPartition
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import (
    DeleteGroupsRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from kohort.sim.client import Caller

if TYPE_CHECKING:
    from kohort.sim.world import World

TIMEOUT_MS = 15_000
RETRY_MS = 200
SESSION_TIMEOUT_MS = 6_000
COMMIT_VERSION = 9  # the last with names of topics
FETCH_VERSION = 9
PROTOCOL = "range"


class SimLoner(Caller):
    def __init__(self, world: World, name: str, group_id: str) -> None:
        super().__init__(world, name)
        self.group_id = group_id
        self._offset = 0
        self._running = True
        self._visit = 0  # counts; 0 while it is no member and wants to be none
        self._visits = 0
        self.usable = False
        self.trouble = "it was never tried"

    def start(self) -> None:
        if self._world.options.commit_every_ms:
            self._again()

    def stop(self) -> None:
        self._running = False

    def prove(self) -> None:
        """Join, commit, look and leave, until all of that has worked."""
        self.usable = False
        self._begin_visit()

    # Now and then.

    def _again(self) -> None:
        if self._running:
            self._scheduler.after(self._random.randint(1, 2 * self._world.options.commit_every_ms), self._do)

    def _do(self) -> None:
        if not self._running:
            return
        chance = self._random.random()
        if chance < 0.1:
            self._look()
        elif chance < 0.2:
            self._begin_visit()
        else:
            for _ in range(self._random.choice((1, 1, 2))):
                self._commit()
            if self._world.options.delete_groups_every_ms and self._random.random() < 0.2:
                self._delete()
        self._again()

    def _commit(self, generation_id: int = -1, member_id: str = "", then: Callable[[Any], None] | None = None) -> None:
        there = self._world.partitions() + self._world.spare_partitions()
        chosen = self._random.sample(there, min(len(there), self._random.randint(1, 3)))
        self._offset += 1
        request = OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=generation_id,
            member_id=member_id,
            topics=_topics(chosen, self._offset),
        )
        attempt = self._world.commit_attempt(self, request, of_a_consumer=False)

        def answered(response: Any) -> None:
            self._world.commit_answered(attempt, response)
            if then is not None:
                then(response)

        self._send(request, answered, COMMIT_VERSION)

    def _delete(self) -> None:
        self._send(DeleteGroupsRequest(groups_names=[self.group_id]), _ignore)

    def _look(self, then: Callable[[Any], None] | None = None) -> None:
        asked = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=self.group_id, topics=None)
        self._send(OffsetFetchRequest(groups=[asked]), then or _ignore, FETCH_VERSION)

    def _send(self, request: Any, answered: Callable[[Any], None], max_version: int | None = None) -> None:
        self._channel.request(request, answered, self._failed, TIMEOUT_MS, max_version)

    def _failed(self, reason: str) -> None:
        if self._visit:
            self._retry(reason)

    # A visit: one member, one generation.

    def _begin_visit(self) -> None:
        if not self._visit:
            self._visits += 1
            self._visit = self._visits
            self._join("")

    def _join(self, member_id: str) -> None:
        topics = self._random.choice(([], sorted(self._world.topics)[:1]))
        metadata = encode_subscription(Subscription(topics=topics))
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=SESSION_TIMEOUT_MS,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name=PROTOCOL, metadata=metadata)],
        )
        self._send(request, self._expecting(self._joined))

    def _joined(self, response: Any) -> None:
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._join(response.member_id)
        elif self._fine("JoinGroup", response.error_code):
            self._sync(response.generation_id, response.member_id)

    def _sync(self, generation_id: int, member_id: str) -> None:
        given = SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=b"all")
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=generation_id,
            member_id=member_id,
            protocol_type="consumer",
            protocol_name=PROTOCOL,
            assignments=[given],
        )

        def synced(response: Any) -> None:
            if self._fine("SyncGroup", response.error_code):
                stays_ms = self._random.choice((0, 100, 3_000))
                self._scheduler.after(stays_ms, self._commit_and_leave, self._visit, generation_id, member_id)

        self._send(request, self._expecting(synced))

    def _commit_and_leave(self, visit: int, generation_id: int, member_id: str) -> None:
        if visit != self._visit:
            return

        def committed(response: Any) -> None:
            codes = {p.error_code for topic in response.topics for p in topic.partitions}
            codes -= {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
            if self._fine("OffsetCommit", max(codes, default=0)):
                self._look(self._expecting(looked))

        def looked(response: Any) -> None:
            if self._fine("OffsetFetch", response.groups[0].error_code):
                leaving = LeaveGroupRequest.MemberIdentity(member_id=member_id)
                self._send(LeaveGroupRequest(group_id=self.group_id, members=[leaving]), self._expecting(left))

        def left(response: Any) -> None:
            if self._fine("LeaveGroup", response.error_code):
                self._visit = 0
                self.usable = True

        self._commit(generation_id, member_id, self._expecting(committed))

    def _expecting(self, then: Callable[[Any], None]) -> Callable[[Any], None]:
        """An answer counts only for the visit in which it was asked for."""
        visit = self._visit
        return lambda response: then(response) if visit == self._visit else None

    def _fine(self, api: str, code: int) -> bool:
        if code == ErrorCode.NONE:
            return True
        self._retry(f"{api} got {ErrorCode.of(code).name}")
        return False

    def _retry(self, trouble: str) -> None:
        self.trouble = trouble
        self._visit = 0
        if not self._running and not self.usable:
            self._scheduler.after(RETRY_MS, self._begin_visit)


def _ignore(response: Any) -> None:
    pass


def _topics(partitions: list[TopicPartition], offset: int) -> list[Any]:
    topics: dict[str, Any] = {}
    for tp in sorted(partitions):
        topic = topics.setdefault(tp.topic, OffsetCommitRequest.OffsetCommitRequestTopic(name=tp.topic))
        topic.partitions.append(
            OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=tp.partition, committed_offset=offset)
        )
    return list(topics.values())
