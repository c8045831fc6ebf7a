"""No batch begins while a rebalance keeps the last one from being committed; a clean hand-over then re-reads nothing.

The other member is played by hand: it leads the group and decides when a rebalance ends.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest

from kafka_socket import KafkaSocket
from kohort.protocol.messages import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from kohort.spark import driver, waiting
from spark.query import Query, committed, create, produce, stopping, unique, until

ASSIGNOR = "cooperative-sticky"
FIND_VERSION, JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION, LEAVE_VERSION = 1, 5, 3, 3, 3


class Leader:
    """A group's leader over a bare socket, which gives every partition to the others."""

    def __init__(self, servers: str, group: str, topic: str) -> None:
        self._connection, self._group, self._topic = KafkaSocket(servers), group, topic
        self.member_id, self.generation, self.others = "", -1, []
        find = FindCoordinatorRequest(key=group)
        until(lambda: self._connection.call(find, FIND_VERSION).error_code == 0, what="a coordinator")
        until(lambda: self.join().error_code == 0, what="a member id, then the first generation")
        self.sync()

    def join(self) -> Any:
        """Joining again starts a rebalance, which lasts until `sync`."""
        metadata = b"\0\1" + ConsumerProtocolSubscription(topics=[self._topic], owned_partitions=[]).encode(1)
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name=ASSIGNOR, metadata=metadata)
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[protocol],
        )
        answer = self._connection.call(request, JOIN_VERSION)
        self.member_id, self.generation = answer.member_id, answer.generation_id
        self.others = [member.member_id for member in answer.members if member.member_id != answer.member_id]
        return answer

    def sync(self) -> None:
        partitions = ConsumerProtocolAssignment.TopicPartition(topic=self._topic, partitions=[0, 1, 2, 3])
        everything = b"\0\1" + ConsumerProtocolAssignment(assigned_partitions=[partitions]).encode(1)
        assignments = [
            SyncGroupRequest.SyncGroupRequestAssignment(member_id=member, assignment=everything)
            for member in self.others[:1]
        ]
        request = SyncGroupRequest(
            group_id=self._group,
            generation_id=self.generation,
            member_id=self.member_id,
            assignments=assignments,
        )
        assert self._connection.call(request, SYNC_VERSION).error_code == 0

    def rebalancing(self) -> bool:
        request = HeartbeatRequest(group_id=self._group, generation_id=self.generation, member_id=self.member_id)
        return self._connection.call(request, HEARTBEAT_VERSION).error_code != 0

    def leave(self) -> None:
        member = LeaveGroupRequest.MemberIdentity(member_id=self.member_id)
        self._connection.call(LeaveGroupRequest(group_id=self._group, members=[member]), LEAVE_VERSION)
        self._connection.close()


def test_no_batch_begins_while_a_rebalance_blocks_commits(servers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "COMMIT_SECONDS", 0.5)
    monkeypatch.setattr(waiting, "PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(waiting, "REPEAT_SECONDS", 0.2)
    topic, group = unique("orders"), unique()
    create(servers, topic)
    produce(servers, topic, [str(number) for number in range(80)])
    leader = Leader(servers, group, topic)
    query = Query(servers, group, subscribe=topic)
    with stopping(query):
        joining = threading.Thread(target=query.plan, args=(40,))
        joining.start()
        until(leader.rebalancing, what="the query joins")
        leader.join()
        assert len(leader.others) == 1
        leader.sync()
        joining.join()
        if query.planned is None:
            until(lambda: query.plan(40))
        assert query.run() == 40

        leader.join()
        for _ in range(2):
            assert not query.plan(40), "nothing may follow a batch while it is not committed"
        assert sum(committed(servers, group, topic).values()) == 0

        leader.sync()
        until(lambda: query.step() is not None and len(query.rows) >= 80)
        query.plan_nothing()
        assert committed(servers, group, topic) == {0: 20, 1: 20, 2: 20, 3: 20}
    leader.leave()

    successor = Query(servers, group, subscribe=topic)
    with stopping(successor):
        produce(servers, topic, [str(number) for number in range(80, 100)])
        successor.step_until(20)
        assert sorted(query.values() + successor.values(), key=int) == [str(number) for number in range(100)]
