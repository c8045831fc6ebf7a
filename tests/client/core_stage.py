"""A consumer's core on a stage: virtual time, several scripted brokers, and a list of what is on its way to each."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

from kohort.assignors import Assignment, encode_assignment
from kohort.client import effects as fx
from kohort.client import events as ev
from kohort.client.config import Config
from kohort.client.consumer_core import ConsumerCore
from kohort.client.errors import NotConnectedError
from kohort.client.types import TopicPartition
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import (
    FindCoordinatorResponse,
    HeartbeatResponse,
    JoinGroupResponse,
    MetadataResponse,
    OffsetCommitResponse,
    OffsetFetchResponse,
    SyncGroupResponse,
)

NODES = {1: ("one", 9092), 2: ("two", 9092), 3: ("three", 9092)}


class CoreStage:
    """Connections open at once unless their host is `down`; requests wait in `sent` until the test answers them."""

    def __init__(self, topics: dict[str, int] | None = None, fetching: bool = False, **settings: Any) -> None:
        self.now_ms = 1_000
        self.topics = topics or {"orders": 2}
        values = {"bootstrap_servers": "one:9092", "group_id": "g", "enable_auto_commit": False, **settings}
        self.core = ConsumerCore(Config(values), Random(7).random, fetching=fetching)
        self.down: set[str] = set()
        self.hosts: dict[int, str] = {}
        self.opened: list[str] = []
        self.sent: list[fx.Transmit] = []
        self.effects: list[fx.Effect] = []
        self.log: list[tuple[int, ev.Event]] = []

    def do(self, event: ev.Event) -> list[fx.Effect]:
        self.log.append((self.now_ms, event))
        effects = self.core.handle(event, self.now_ms)
        for effect in effects:
            if isinstance(effect, fx.Connect):
                self._connect(effect)
            elif isinstance(effect, fx.Disconnect):
                self._gone(effect.link_id)
            elif isinstance(effect, fx.Transmit):
                self.sent.append(effect)
            elif not isinstance(effect, fx.Report):
                self.effects.append(effect)
        return effects

    def _connect(self, effect: fx.Connect) -> None:
        self.opened.append(effect.host)
        if effect.host in self.down:
            self.do(ev.Disconnected(effect.link_id, NotConnectedError(f"{effect.host} is down")))
        else:
            self.hosts[effect.link_id] = effect.host
            self.do(ev.Connected(effect.link_id))

    def _gone(self, link_id: int) -> None:
        self.hosts.pop(link_id, None)
        self.sent = [one for one in self.sent if one.link_id != link_id]

    def stop(self, host: str) -> None:
        """A broker goes away with all of its connections."""
        self.down.add(host)
        for link_id in [link_id for link_id, name in self.hosts.items() if name == host]:
            self._gone(link_id)
            self.do(ev.Disconnected(link_id, NotConnectedError(f"{host} closed the connection")))

    def of(self, kind: type) -> list[Any]:
        found = [effect for effect in self.effects if isinstance(effect, kind)]
        self.effects = [effect for effect in self.effects if not isinstance(effect, kind)]
        return found

    def waiting(self, api: str) -> list[fx.Transmit]:
        return [one for one in self.sent if type(one.request).__name__ == f"{api}Request"]

    def host_of(self, api: str) -> str:
        (one,) = self.waiting(api)
        return self.hosts[one.link_id]

    def answer(self, api: str, response: Any) -> Any:
        """The oldest request of this api gets its answer."""
        one = self.waiting(api)[0]
        self.sent.remove(one)
        self.do(ev.Answered(one.token, response))
        return one.request

    def pass_time(self, ms: int, polling: bool = True) -> None:
        end_ms = self.now_ms + ms
        while (due_ms := self.core.next_deadline()) is not None and due_ms <= end_ms:
            self.now_ms = max(self.now_ms + 1, due_ms)
            self.do(ev.Tick())
            if polling:
                self.do(ev.Poll())
            self.metadata_if_asked()
        self.now_ms = max(self.now_ms, end_ms)

    # -- answers

    def metadata_if_asked(self) -> None:
        while self.waiting("Metadata"):
            self.metadata()

    def metadata(self, nodes: Iterable[int] = NODES) -> None:
        make = MetadataResponse
        self.answer(
            "Metadata",
            make(
                brokers=[make.MetadataResponseBroker(node_id=n, host=NODES[n][0], port=NODES[n][1]) for n in nodes],
                topics=[
                    make.MetadataResponseTopic(
                        name=name,
                        partitions=[
                            make.MetadataResponsePartition(partition_index=p, leader_id=1, leader_epoch=0)
                            for p in range(count)
                        ],
                    )
                    for name, count in self.topics.items()
                ],
            ),
        )

    def coordinator(self, node_id: int, error: ErrorCode = ErrorCode.NONE) -> None:
        host, port = NODES[node_id]
        found = FindCoordinatorResponse.Coordinator(key="g", node_id=node_id, host=host, port=port, error_code=error)
        self.answer("FindCoordinator", FindCoordinatorResponse(coordinators=[found]))

    def joined(self, generation: int = 1, member_id: str = "m1") -> None:
        answer = JoinGroupResponse(
            generation_id=generation,
            protocol_type="consumer",
            protocol_name="range",
            leader="other",
            member_id=member_id,
        )
        self.answer("JoinGroup", answer)

    def synced(self, *partitions: int) -> None:
        assignment = encode_assignment(Assignment({"orders": partitions}))
        self.answer(
            "SyncGroup", SyncGroupResponse(protocol_type="consumer", protocol_name="range", assignment=assignment)
        )

    def heartbeat(self, code: ErrorCode = ErrorCode.NONE) -> None:
        self.answer("Heartbeat", HeartbeatResponse(error_code=code))

    def committed(self, code: ErrorCode = ErrorCode.NONE) -> None:
        (one, *_) = self.waiting("OffsetCommit")
        make = OffsetCommitResponse
        topics = [
            make.OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    make.OffsetCommitResponsePartition(partition_index=p.partition_index, error_code=code)
                    for p in topic.partitions
                ],
            )
            for topic in one.request.topics
        ]
        self.answer("OffsetCommit", make(topics=topics))

    def offsets(self, **offsets: int) -> None:
        (one, *_) = self.waiting("OffsetFetch")
        make = OffsetFetchResponse
        (group,) = one.request.groups
        topics = [
            make.OffsetFetchResponseTopics(
                name=topic.name,
                partitions=[
                    make.OffsetFetchResponsePartitions(
                        partition_index=p, committed_offset=offsets.get(f"{topic.name}_{p}", -1), metadata=""
                    )
                    for p in topic.partition_indexes
                ],
            )
            for topic in group.topics
        ]
        self.answer("OffsetFetch", make(groups=[make.OffsetFetchResponseGroup(group_id="g", topics=topics)]))

    # -- whole stretches

    def subscribe(self) -> None:
        self.do(ev.Subscribe(frozenset({"orders"})))
        self.do(ev.Poll())
        self.metadata_if_asked()

    def stable(self, coordinator: int = 2, *partitions: int) -> None:
        self.subscribe()
        self.coordinator(coordinator)
        self.joined()
        self.synced(*(partitions or (0, 1)))
        self.do(ev.Poll())
        assert self.of(fx.Assign)
        self.do(ev.ActionDone())
        self.do(ev.Poll())
        self.effects.clear()


def tp(partition: int, topic: str = "orders") -> TopicPartition:
    return TopicPartition(topic, partition)
