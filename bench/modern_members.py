"""Members of consumer groups (KIP-848) that cost next to nothing, so that a measurement is of the broker.

The frame of a heartbeat is made once for each member and gets its epoch written into it; an answer without an
assignment is told by its length. One `send` and few `recv` a connection for a whole round, whatever the broker.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from struct import pack, unpack_from
from typing import Any

from group_load import expect
from kafka_socket import KafkaSocket, request_frame
from kohort.protocol.frames import decode_response
from kohort.protocol.messages import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse

VERSION = 1
_Request = ConsumerGroupHeartbeatRequest
_EPOCH = 0x7B3C5A19
_ERROR_AT, _MEMBER_AT = 9, 12  # in an answer, behind correlation id, tags and throttle time
_GIVE_UP = 120.0


class Member:
    """Says what it has in every heartbeat that follows an assignment, nothing in the others."""

    def __init__(self, connection: KafkaSocket, group_id: str, member_id: str, topic: str) -> None:
        self.connection = connection
        self.group_id, self.member_id, self.topic = group_id, member_id, topic
        self.epoch = 0
        self.owned: list[Any] = []
        self.has_news = True
        mark = pack(">i", _EPOCH)
        self._before, _, self._after = self._frame(_Request(member_epoch=_EPOCH)).partition(mark)
        self._epoch_at = _MEMBER_AT + 1 + len(member_id)
        self._length = self._epoch_at + 4 + 4 + 1 + 1  # epoch, interval, no assignment, no tags

    @property
    def partitions(self) -> int:
        return sum(len(row.partitions) for row in self.owned)

    def request(self) -> Any:
        request = _Request(group_id=self.group_id, member_id=self.member_id, member_epoch=self.epoch)
        if self.epoch == 0:
            request.rebalance_timeout_ms, request.subscribed_topic_names = 300_000, [self.topic]
        if self.has_news:
            request.topic_partitions = self.owned
        return request

    def _frame(self, request: Any) -> bytes:
        request.group_id, request.member_id = self.group_id, self.member_id
        return request_frame(request, VERSION, client_id=self.connection.client_id)

    def frame(self) -> bytes:
        if self.has_news:
            return self._frame(self.request())
        return self._before + pack(">i", self.epoch) + self._after

    def read(self, frame: bytes) -> None:
        if len(frame) == self._length:
            expect(unpack_from(">h", frame, _ERROR_AT)[0], "ConsumerGroupHeartbeat")
            self.epoch, self.has_news = unpack_from(">i", frame, self._epoch_at)[0], False
            return
        answer = decode_response(frame, VERSION, ConsumerGroupHeartbeatResponse)
        expect(answer.error_code, "ConsumerGroupHeartbeat")
        self.epoch, self.has_news = answer.member_epoch, answer.assignment is not None
        if answer.assignment is not None:
            make = _Request.TopicPartitions
            rows = answer.assignment.topic_partitions
            self.owned = [make(topic_id=row.topic_id, partitions=row.partitions) for row in rows]

    def leave(self) -> None:
        self.connection.call(_Request(group_id=self.group_id, member_id=self.member_id, member_epoch=-1), VERSION)


def beat(members: Iterable[Member]) -> int:
    """A heartbeat of each; how many were answered."""
    lanes: dict[KafkaSocket, list[Member]] = {}
    for member in members:
        lanes.setdefault(member.connection, []).append(member)
    for connection, some in lanes.items():
        connection.socket.sendall(b"".join([member.frame() for member in some]))
    for connection, some in lanes.items():
        _read(connection, some)
    return sum(map(len, lanes.values()))


def _read(connection: KafkaSocket, members: Sequence[Member]) -> None:
    data, done = b"", 0
    while done < len(members):
        more = connection.socket.recv(1 << 18)
        if not more:
            raise ConnectionError("the broker closed a connection")
        data, at = data + more, 0
        while len(data) - at >= 4:
            end = at + 4 + unpack_from(">i", data, at)[0]
            if end > len(data):
                break
            members[done].read(data[at + 4 : end])
            at, done = end, done + 1
        data = data[at:]


def is_converged(members: Sequence[Member], partitions: int, after_epoch: int) -> bool:
    """Everybody is in one epoch, later than that, has said what it has, and nothing is without an owner."""
    epoch = members[0].epoch
    return (
        epoch > after_epoch
        and all(member.epoch == epoch and not member.has_news for member in members)
        and sum(member.partitions for member in members) == partitions
    )


def converge(members: Sequence[Member], partitions: int, after_epoch: int) -> tuple[float, int]:
    """Seconds and heartbeats until then: round after round, without pauses."""
    began = time.perf_counter()
    heartbeats = 0
    while not is_converged(members, partitions, after_epoch):
        heartbeats += beat(members)
        if time.perf_counter() - began > _GIVE_UP:
            raise TimeoutError(f"no convergence after {heartbeats} heartbeats")
    return time.perf_counter() - began, heartbeats
