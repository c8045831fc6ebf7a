"""A member on a stage: virtual time, a list of what it sent, and answers written by the test."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kohort.assignors import (
    Assignment,
    Subscription,
    decode_subscription,
    encode_assignment,
    encode_subscription,
    load_assignors,
)
from kohort.client.effects import (
    Action,
    Effect,
    MetadataSnapshot,
    RefreshMetadata,
    Report,
    Send,
    TopicSnapshot,
)
from kohort.client.member import Member, MemberConfig
from kohort.client.types import OffsetAndMetadata, TopicPartition
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import (
    FindCoordinatorResponse,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupResponse,
    OffsetCommitResponse,
    SyncGroupResponse,
)


def tp(text: str) -> TopicPartition:
    topic, _, partition = text.rpartition("-")
    return TopicPartition(topic, int(partition))


def tps(*texts: str) -> frozenset[TopicPartition]:
    return frozenset(map(tp, texts))


class Stage:
    """`sent` holds requests not answered yet; `effects` everything else since it was last cleared."""

    def __init__(self, strategy: str = "range", topics: dict[str, int] | None = None, **config: Any) -> None:
        self.now_ms = 1_000
        self.topics = topics or {"orders": 4}
        config.setdefault("enable_auto_commit", False)
        self.member = Member(MemberConfig("g", **config), load_assignors(strategy), lambda: 0.5)
        self.sent: list[Send] = []
        self.effects: list[Effect] = []

    # -- what the member does

    def do(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self.sent.append(effect)
            elif isinstance(effect, RefreshMetadata):
                self.effects.append(effect)
                self.metadata()
            elif not isinstance(effect, Report):
                self.effects.append(effect)

    def of(self, kind: type) -> list[Any]:
        """The effects of a kind so far, taken off the list."""
        found = [effect for effect in self.effects if isinstance(effect, kind)]
        self.effects = [effect for effect in self.effects if not isinstance(effect, kind)]
        return found

    def request(self, name: str) -> Any:
        """The next request, which must be of this api."""
        assert self.sent, f"{name} expected, nothing was sent"
        kind = type(self.sent[0].request).__name__
        assert kind == f"{name}Request", f"{name} expected, {kind} was sent"
        return self.sent[0].request

    def quiet(self) -> None:
        assert not self.sent, f"nothing expected, sent {[type(s.request).__name__ for s in self.sent]}"

    # -- what happens to it

    def poll(self) -> None:
        self.do(self.member.poll(self.now_ms))

    def subscribe(self, *topics: str) -> None:
        self.do(self.member.subscribe(topics, self.now_ms))
        self.poll()

    def pass_time(self, ms: int, polling: bool = True) -> None:
        """Time passes up to the next deadline, again and again, until `ms` are over."""
        end = self.now_ms + ms
        while True:
            due = self.member.next_deadline()
            if due is None or due > end:
                break
            self.now_ms = max(self.now_ms, due)
            if polling:
                self.poll()
            before = len(self.sent)
            self.do(self.member.on_time(self.now_ms))
            after = self.member.next_deadline()
            if after is not None and after <= self.now_ms and len(self.sent) == before and self.member.pending:
                break
        self.now_ms = max(self.now_ms, end)

    def answer(self, response: Any) -> None:
        send = self.sent.pop(0)
        self.do(self.member.received(send.token, response, self.now_ms))

    def no_answer(self, reason: str = "connection reset") -> None:
        send = self.sent.pop(0)
        self.do(self.member.send_failed(send.token, reason, self.now_ms))

    def metadata(self, covers: Iterable[str] | None = None) -> None:
        known = {name: TopicSnapshot(count) for name, count in self.topics.items()}
        snapshot = MetadataSnapshot(known, None if covers is None else frozenset(covers))
        self.do(self.member.metadata_updated(snapshot, self.now_ms))

    def act(self, kind: type) -> Any:
        """Take the pending action, which must be of this kind, and do it at once."""
        action = self.take(kind)
        if kind.__name__ == "AutoCommit":
            raise AssertionError("use auto_commit()")
        done = self.member.assigned if kind.__name__ == "Assign" else self.member.revoked
        self.do(done(self.now_ms))
        return action

    def take(self, kind: type) -> Action:
        action = self.member.take(self.now_ms)
        assert isinstance(action, kind), f"{kind.__name__} expected, got {action}"
        return action

    def auto_commit(self, **offsets: int) -> None:
        from kohort.client.effects import AutoCommit

        self.take(AutoCommit)
        positions = {tp(name.replace("_", "-")): OffsetAndMetadata(offset) for name, offset in offsets.items()}
        self.do(self.member.auto_commit(positions, self.now_ms))

    # -- answers a coordinator gives

    def coordinator_found(self) -> None:
        self.request("FindCoordinator")
        node = FindCoordinatorResponse.Coordinator(key="g", node_id=1, host="broker", port=9092)
        self.answer(FindCoordinatorResponse(coordinators=[node]))

    def joined(self, generation: int = 1, member_id: str = "m1", leader: str = "m1", **others: Subscription) -> None:
        request: JoinGroupRequest = self.request("JoinGroup")
        protocol = request.protocols[0]
        member = JoinGroupResponse.JoinGroupResponseMember
        members = []
        if leader == member_id:
            members = [member(member_id=member_id, metadata=protocol.metadata)]
            members += [member(member_id=name, metadata=encode_subscription(one)) for name, one in others.items()]
        self.answer(
            JoinGroupResponse(
                generation_id=generation,
                protocol_type="consumer",
                protocol_name=protocol.name,
                leader=leader,
                member_id=member_id,
                members=members,
            )
        )

    def join_error(self, code: ErrorCode, member_id: str = "") -> None:
        self.request("JoinGroup")
        self.answer(JoinGroupResponse(error_code=code, member_id=member_id))

    def synced(self, **partitions: list[int]) -> None:
        request = self.request("SyncGroup")
        assignment = encode_assignment(Assignment(partitions))
        self.answer(
            SyncGroupResponse(protocol_type="consumer", protocol_name=request.protocol_name, assignment=assignment)
        )

    def sync_error(self, code: ErrorCode) -> None:
        self.request("SyncGroup")
        self.answer(SyncGroupResponse(error_code=code))

    def heartbeat(self, code: ErrorCode = ErrorCode.NONE) -> Any:
        request = self.request("Heartbeat")
        self.answer(HeartbeatResponse(error_code=code))
        return request

    def committed(self, code: ErrorCode = ErrorCode.NONE) -> Any:
        request = self.request("OffsetCommit")
        made = OffsetCommitResponse
        topics = [
            made.OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    made.OffsetCommitResponsePartition(partition_index=p.partition_index, error_code=code)
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        self.answer(made(topics=topics))
        return request

    def left(self) -> Any:
        request = self.request("LeaveGroup")
        self.answer(LeaveGroupResponse())
        return request

    # -- whole stretches

    def stable(self, *partitions: int, generation: int = 1, member_id: str = "m1", leader: str = "other") -> None:
        """Subscribed to orders, joined as a follower, assigned."""
        from kohort.client.effects import Assign

        self.subscribe("orders")
        self.coordinator_found()
        self.joined(generation, member_id, leader)
        self.synced(orders=list(partitions))
        self.act(Assign)
        self.effects.clear()


def subscription_of(request: Any, protocol: int = 0) -> Subscription:
    return decode_subscription(request.protocols[protocol].metadata)
