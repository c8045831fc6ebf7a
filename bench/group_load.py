"""Group members for the coordinator's section: raw requests, two-step joins, many members without a client library."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kafka_socket import KafkaSocket
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    OffsetCommitRequest,
    SyncGroupRequest,
)

JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION, COMMIT_VERSION = 5, 3, 3, 7
SESSION_TIMEOUT_MS, REBALANCE_TIMEOUT_MS = 600_000, 60_000
SUBSCRIPTION = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"
ASSIGNMENT = b"\0\0\0\0\0\0\xff\xff\xff\xff"
MOVING = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}


def find_coordinator(connection: KafkaSocket, group_id: str) -> None:
    """Asks until the group has a coordinator; the first question creates __consumer_offsets."""
    for _ in range(600):
        if connection.call(FindCoordinatorRequest(key=group_id), 1).error_code == 0:
            return
        time.sleep(0.05)
    raise TimeoutError("no coordinator in 30 s")


@dataclass
class Member:
    """One member over one connection; requests are sent and received separately so that many can be under way."""

    connection: KafkaSocket
    group_id: str
    member_id: str = ""
    generation_id: int = -1
    leader: str = ""
    members: Sequence[str] = ()

    def send_join(self, user_data: bytes = b"") -> None:
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION + user_data)
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[protocol],
        )
        self.connection.send(request, JOIN_VERSION)

    def receive_join(self) -> int:
        answer = self.connection.receive()
        self.member_id = answer.member_id
        self.generation_id, self.leader = answer.generation_id, answer.leader
        self.members = [member.member_id for member in answer.members]
        return answer.error_code

    def send_sync(self) -> None:
        entry = SyncGroupRequest.SyncGroupRequestAssignment
        assignments = [entry(member_id=m, assignment=ASSIGNMENT) for m in self.members if self.leader == self.member_id]
        request = SyncGroupRequest(
            group_id=self.group_id, generation_id=self.generation_id, member_id=self.member_id, assignments=assignments
        )
        self.connection.send(request, SYNC_VERSION)

    def receive_sync(self) -> int:
        return self.connection.receive().error_code

    def heartbeat(self) -> Any:
        return HeartbeatRequest(group_id=self.group_id, generation_id=self.generation_id, member_id=self.member_id)

    def commit(self, topic: str, partitions: int) -> Any:
        part = OffsetCommitRequest.OffsetCommitRequestPartition
        committed = [part(partition_index=p, committed_offset=12345, committed_metadata="") for p in range(partitions)]
        return OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=self.generation_id,
            member_id=self.member_id,
            topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=committed)],
        )


def expect(code: int, what: str) -> None:
    if code != 0:
        raise RuntimeError(f"{what} answered {ErrorCode(code).name}")


def join_alone(members: Sequence[Member]) -> None:
    """Members of groups of their own, side by side: both steps of the join, then the sync."""
    waiting = list(members)
    while waiting:
        for member in waiting:
            member.send_join()
        codes = [(member, member.receive_join()) for member in waiting]
        waiting = [member for member, code in codes if code == ErrorCode.MEMBER_ID_REQUIRED or code in MOVING]
        for _, code in codes:
            if code not in MOVING and code != ErrorCode.MEMBER_ID_REQUIRED:
                expect(code, "JoinGroup")
    for member in members:
        member.send_sync()
    for member in members:
        expect(member.receive_sync(), "SyncGroup")


def rebalance(members: Sequence[Member], round_number: int) -> None:
    """One full rebalance of a group whose members all have ids; changed metadata makes sure that it is one."""
    for member in members:
        member.send_join(b"\0\0\0\4" + round_number.to_bytes(4))
    for member in members:
        expect(member.receive_join(), "JoinGroup")
    for member in members:
        member.send_sync()
    for member in members:
        expect(member.receive_sync(), "SyncGroup")


def assemble(members: Sequence[Member]) -> None:
    """Brings members of one group together: the first alone, then ids for the others, then all of them."""
    join_alone(members[:1])
    for member in members[1:]:
        member.send_join()
    for member in members[1:]:
        code = member.receive_join()
        if code != ErrorCode.MEMBER_ID_REQUIRED:
            expect(code, "JoinGroup")
    rebalance(members, 0)
