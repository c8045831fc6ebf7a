"""Plays a sequence of requests about KIP-848 groups against a broker and writes down every answer, field by field.

Two brokers that behave alike give equal transcripts: topic ids are replaced by names, lists that Kafka leaves to its
hashes are sorted, words are left out. After every request the group is described.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random
from typing import Any

from kafka_socket import KafkaSocket
from kohort.assignors import Assignment, Subscription, decode_assignment, encode_assignment, encode_subscription
from kohort.protocol import messages as m
from kohort.protocol.errors import ErrorCode

Names = dict[str, list[int]]
QUIET_S = 0.5
_Heartbeat = m.ConsumerGroupHeartbeatRequest


class Play:
    """One group at one broker. Members have short ids, so that Java's hashes have them in the order of the alphabet."""

    def __init__(self, connection: KafkaSocket, group_id: str, topic_ids: dict[str, bytes]) -> None:
        self.connection = connection
        self.group_id = group_id
        self.ids = topic_ids
        self.names = {topic_id: name for name, topic_id in topic_ids.items()}
        self.lines: list[str] = []
        self.epochs: dict[str, int] = {}
        self.owned: dict[str, Names] = {}
        self.described = True
        self.brief = False  # where ids are made by the broker who gets which partition is left to its hashes
        self.others: list[KafkaSocket] = []

    def close(self) -> None:
        for connection in self.others:
            connection.close()

    def another(self) -> KafkaSocket:
        """A connection on which a request may wait."""
        host, port = self.connection.socket.getpeername()[:2]
        self.others.append(KafkaSocket(f"{host}:{port}"))
        return self.others[-1]

    def _call(self, label: str, message: Any, version: int, *, describe: bool = True) -> Any:
        answer = self.connection.call(message, version)
        self.lines.append(f"{label} v{version}")
        self.lines.append(f"   {self._plain(answer)}")
        if describe:
            self.describe()
        return answer

    def describe(self) -> None:
        if not self.described:
            return
        answer = self.connection.call(m.ConsumerGroupDescribeRequest(group_ids=[self.group_id]), 1)
        group = answer.groups[0]
        if self.brief:
            rows = sorted(
                (row.member_epoch, _count(row.assignment), _count(row.target_assignment), row.member_type)
                for row in group.members
            )
            self.lines.append(f"   = {group.group_state} {group.group_epoch} {group.assignment_epoch} {rows}")
            return
        group.members.sort(key=lambda member: member.member_id)
        self.lines.append(f"   = {self._plain(group)}")

    def _plain(self, value: Any) -> Any:
        if isinstance(value, m.Struct):
            fields = {name: self._plain(getattr(value, name)) for name in value.__slots__}
            if len(fields.get("member_id") or "") > 2:
                fields["member_id"] = "<made by the broker>"
            return {k: v for k, v in fields.items() if k not in ("error_message", "throttle_time_ms", "unknown_tags")}
        if isinstance(value, list):
            rows = [self._plain(item) for item in value]
            return sorted(rows, key=str)
        if isinstance(value, bytes):
            return self.names.get(value, "?" if len(value) == 16 else value)
        return int(value) if isinstance(value, ErrorCode) else value

    # ---- the consumer protocol

    def heartbeat(self, who: str, epoch: int, owned: Names | None = None, *, version: int = 1, **fields: Any) -> Any:
        message = self._heartbeat(who, epoch, owned, fields)
        if self.brief:
            answer = self.connection.call(message, version)
            given = None if answer.assignment is None else _count(answer.assignment)
            self.lines.append(f"{who} {epoch} {fields} -> {answer.error_code} {answer.member_epoch} {given}")
            self.describe()
        else:
            answer = self._call(f"{who} {epoch} {owned} {fields}", message, version)
        self._learn(who, answer)
        return answer

    def _heartbeat(self, who: str, epoch: int, owned: Names | None, fields: dict[str, Any]) -> Any:
        rows = None
        if owned is not None:
            make = _Heartbeat.TopicPartitions
            rows = [make(topic_id=self.ids[name], partitions=numbers) for name, numbers in owned.items()]
        return _Heartbeat(group_id=self.group_id, member_id=who, member_epoch=epoch, topic_partitions=rows, **fields)

    def _learn(self, who: str, answer: Any) -> None:
        if not answer.error_code:
            self.epochs[who] = answer.member_epoch
            if answer.assignment is not None:
                given = {self.names[row.topic_id]: sorted(row.partitions) for row in answer.assignment.topic_partitions}
                self.owned[who] = dict(sorted(given.items()))

    def until(self, count: int, *members: str) -> None:
        """Heartbeats until they have so many partitions and nothing changes any more: a broker hears of topics, and
        holds them against expressions, when it does."""
        until, quiet_since, before = time.monotonic() + 30, time.monotonic(), None
        while time.monotonic() < until:
            for who in members:
                owned = self.owned.get(who, {})
                answer = self.connection.call(self._heartbeat(who, self.epochs[who], owned, {}), 1)
                assert not answer.error_code, answer
                self._learn(who, answer)
            now = [(who, self.epochs[who], self.owned.get(who, {})) for who in members]
            found = sum(len(numbers) for _, _, owned in now for numbers in owned.values())
            if now != before:
                before, quiet_since = now, time.monotonic()
            elif found == count and time.monotonic() - quiet_since > QUIET_S:
                break
            time.sleep(0.05)
        self.lines.append(f"until {count}: {before}")
        self.settle(*members)

    # ---- topics

    def topic(self, label: str, partitions: int) -> str:
        name = f"{self.group_id}-{label}"
        kind = m.CreateTopicsRequest.CreatableTopic
        row = kind(name=name, num_partitions=partitions, replication_factor=1)
        answer = self.connection.call(m.CreateTopicsRequest(topics=[row], timeout_ms=30_000), 7)
        assert not answer.topics[0].error_code, answer
        topic_id = answer.topics[0].topic_id
        self.ids, self.names = {**self.ids, name: topic_id}, {**self.names, topic_id: name}
        self._known(name, partitions)
        return name

    def _known(self, name: str, partitions: int) -> None:
        """Until a group would get them: Kafka's coordinator hears of a topic later than its clients."""
        for number in range(200):
            probe = Play(self.connection, f"{name}-{partitions}-{number}", self.ids)
            probe.join("a", [name])
            if len(probe.owned["a"].get(name, ())) == partitions:
                return
            time.sleep(0.05)
        raise AssertionError(f"{name} did not get known")

    def grow(self, name: str, count: int) -> None:
        row = m.CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=count, assignments=None)
        answer = self.connection.call(m.CreatePartitionsRequest(topics=[row], timeout_ms=30_000), 3)
        assert not answer.results[0].error_code, answer
        self._known(name, count)

    def delete_topic(self, name: str) -> None:
        row = m.DeleteTopicsRequest.DeleteTopicState(name=name)
        answer = self.connection.call(m.DeleteTopicsRequest(topics=[row], timeout_ms=30_000), 6)
        assert not answer.responses[0].error_code, answer

    def join(self, who: str, topics: list[str] | None = None, **fields: Any) -> Any:
        fields.setdefault("rebalance_timeout_ms", 60_000)
        return self.heartbeat(who, 0, {}, subscribed_topic_names=["t0"] if topics is None else topics, **fields)

    def beat(self, who: str, **fields: Any) -> Any:
        return self.heartbeat(who, self.epochs.get(who, 1), **fields)

    def acknowledge(self, who: str, **fields: Any) -> Any:
        return self.heartbeat(who, self.epochs.get(who, 1), self.owned.get(who, {}), **fields)

    def settle(self, *members: str) -> None:
        for _ in range(4):
            for who in members:
                self.acknowledge(who)

    # ---- offsets and tools

    def commit(self, who: str, epoch: int, partition: int = 0, version: int = 9) -> None:
        row = m.OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=partition, committed_offset=7)
        topic = m.OffsetCommitRequest.OffsetCommitRequestTopic(name="t0", partitions=[row])
        message = m.OffsetCommitRequest(
            group_id=self.group_id, member_id=who, generation_id_or_member_epoch=epoch, topics=[topic]
        )
        self._call(f"commit {who} {epoch} {partition}", message, version)

    def fetch(self, who: str | None, epoch: int) -> None:
        make = m.OffsetFetchRequest.OffsetFetchRequestGroup
        row = make(group_id=self.group_id, member_id=who, member_epoch=epoch, topics=None)
        self._call(f"fetch {who} {epoch}", m.OffsetFetchRequest(groups=[row]), 9, describe=False)

    def delete_offsets(self) -> None:
        row = m.OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=0)
        topics = [m.OffsetDeleteRequest.OffsetDeleteRequestTopic(name=name, partitions=[row]) for name in ("t0", "t1")]
        self._call("delete offsets", m.OffsetDeleteRequest(group_id=self.group_id, topics=topics), 0)

    def tools(self) -> None:
        listed = self.connection.call(m.ListGroupsRequest(types_filter=["consumer"]), 5)
        mine = [self._plain(row) for row in listed.groups if row.group_id == self.group_id]
        self.lines.append(f"listed {mine}")
        self._call("describe", m.DescribeGroupsRequest(groups=[self.group_id]), 6, describe=False)
        self._call("delete", m.DeleteGroupsRequest(groups_names=[self.group_id]), 2)

    def wait_for_members(self, count: int) -> None:
        """Until so many are left; how that came about shows in what follows."""
        until = time.monotonic() + 30
        while time.monotonic() < until:
            answer = self.connection.call(m.ConsumerGroupDescribeRequest(group_ids=[self.group_id]), 1)
            if len(answer.groups[0].members) == count:
                break
            time.sleep(0.05)
        self.describe()

    def configure(self, **configs: int) -> None:
        kind = m.IncrementalAlterConfigsRequest
        rows = [
            kind.AlterableConfig(name=f"consumer.{name.replace('_', '.')}", value=str(value))
            for name, value in configs.items()
        ]
        resource = kind.AlterConfigsResource(resource_type=32, resource_name=self.group_id, configs=rows)
        self._call(f"configure {configs}", kind(resources=[resource]), 1, describe=False)
        time.sleep(0.3)  # Kafka's brokers hear of it later

    # ---- the classic protocol

    def old_join_message(
        self,
        who: str,
        owned: Names | None = None,
        *,
        instance: str | None = None,
        kind: str = "consumer",
        said: bytes | None = None,
        session_ms: int = 30_000,
    ) -> Any:
        if said is None:
            said = encode_subscription(Subscription(["t0"], owned_partitions=owned or {}))
        return m.JoinGroupRequest(
            group_id=self.group_id,
            member_id=who,
            group_instance_id=instance,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=30_000,
            protocol_type=kind,
            protocols=[m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=said)],
        )

    def old_join(
        self, who: str, owned: Names | None = None, *, instance: str | None = None, version: int = 0, **said: Any
    ) -> Any:
        message = self.old_join_message(who, owned, instance=instance, **said)
        answer = self.connection.call(message, version or (3 if instance is None else 5))
        return self._old_joined(who, owned, answer)

    def _old_joined(self, who: str, owned: Names | None, answer: Any) -> Any:
        shown = (answer.error_code, answer.generation_id, answer.protocol_name, answer.protocol_type)
        self.lines.append(f"classic join {'new' if not who else 'known'} {'' if self.brief else owned}")
        self.lines.append(f"   {shown}")
        if not answer.error_code:
            self.epochs[answer.member_id] = answer.generation_id
        return answer

    def parked_join(self, who: str = "", owned: Names | None = None) -> KafkaSocket:
        """One that waits; `answer_of` its connection has the answer."""
        connection = self.another()
        connection.send(self.old_join_message(who, owned), 3)
        return connection

    def parked_sync(self, who: str) -> KafkaSocket:
        connection = self.another()
        connection.send(self.old_sync_message(who, "consumer", {}), 5)
        return connection

    def answer_of(self, connection: KafkaSocket) -> Any:
        answer = connection.receive()
        shown = {name: self._plain(getattr(answer, name)) for name in ("error_code", "protocol_name", "protocol_type")}
        self.lines.append(f"waited for {type(answer).__name__} -> {shown} {getattr(answer, 'generation_id', '')}")
        return answer

    def wait_for_classic(self, state: str, members: int) -> None:
        until = time.monotonic() + 30
        while time.monotonic() < until:
            group = self.connection.call(m.DescribeGroupsRequest(groups=[self.group_id]), 5).groups[0]
            if group.group_state == state and len(group.members) == members:
                break
            time.sleep(0.02)
        self.lines.append(f"{group.group_state} with {len(group.members)}")

    def old_sync_message(self, who: str, kind: str, given: dict[str, bytes]) -> Any:
        row = m.SyncGroupRequest.SyncGroupRequestAssignment
        return m.SyncGroupRequest(
            group_id=self.group_id,
            member_id=who,
            generation_id=self.epochs[who],
            protocol_type=kind,
            protocol_name="range",
            assignments=[row(member_id=member_id, assignment=data) for member_id, data in given.items()],
        )

    def old_sync(self, who: str, given: Names | None = None, *, others: dict[str, Names] | None = None) -> Any:
        rows = {who: encode_assignment(Assignment(given))} if given is not None else {}
        rows |= {name: encode_assignment(Assignment(names)) for name, names in (others or {}).items()}
        answer = self.connection.call(self.old_sync_message(who, "consumer", rows), 5)
        self.old_synced(who, answer)
        return answer

    def old_synced(self, who: str, answer: Any) -> None:
        partitions = decode_assignment(answer.assignment).partitions if answer.assignment else {}
        self.owned[who] = {name: sorted(numbers) for name, numbers in partitions.items()}
        self.lines.append(f"classic sync -> {answer.error_code} {'' if self.brief else self.owned[who]}")

    def old_beat(self, who: str, generation: int = 0) -> int:
        message = m.HeartbeatRequest(group_id=self.group_id, member_id=who, generation_id=self.epochs[who] + generation)
        answer = self.connection.call(message, 4)
        self.lines.append(f"classic heartbeat {generation:+d} -> {answer.error_code}")
        return int(answer.error_code)

    def old_leave(self, who: str) -> None:
        identity = m.LeaveGroupRequest.MemberIdentity(member_id=who)
        answer = self.connection.call(m.LeaveGroupRequest(group_id=self.group_id, members=[identity]), 5)
        self.lines.append(f"classic leave -> {answer.error_code} {[row.error_code for row in answer.members]}")

    def shown_classic(self) -> None:
        answer = self.connection.call(m.DescribeGroupsRequest(groups=[self.group_id]), 6)
        group = answer.groups[0]
        self.lines.append(f"classic group {group.group_state} {group.protocol_data} {len(group.members)}")


def _count(assignment: Any) -> int:
    return sum(len(row.partitions) for row in assignment.topic_partitions)


SCRIPTS: dict[str, Callable[[Play], None]] = {}


def script(function: Callable[[Play], None]) -> Callable[[Play], None]:
    SCRIPTS[function.__name__] = function
    return function


def random_play(play: Play, seed: int) -> None:
    """Members that come, go, lie about their epochs and about what they have."""
    random = Random(seed)
    for _ in range(40):
        who = random.choice("abcd")
        static = {"instance_id": f"i-{who}"} if who in "cd" else {}
        instance = static if random.random() < 0.8 else {}
        match random.randrange(12):
            case 0 | 1:
                topics = random.choice([["t0"], ["t0"], ["t0", "missing"], ["missing"]])
                play.join(who, topics, **static)
            case 2 | 3 | 4:
                play.beat(who, **instance)
            case 5 | 6:
                play.acknowledge(who, **instance)
            case 7:
                epoch = play.epochs.get(who, 1) + random.choice([-1, 1, -2])
                owned = random.choice([None, {}, play.owned.get(who, {}), {"t0": [0, 5]}])
                if epoch != 0 and epoch >= -2:
                    play.heartbeat(who, epoch, owned, **instance)
            case 8:
                play.heartbeat(who, random.choice([-1, -1, -2]), **instance)
            case 9:
                play.commit(who, play.epochs.get(who, 1) + random.choice([-1, 0, 0, 1]), random.randrange(6))
            case 10:
                play.fetch(*random.choice([(None, -1), (who, -1), (who, play.epochs.get(who, 1))]))
            case 11:
                play.beat(who, subscribed_topic_names=random.choice([["t0"], ["missing"], []]), **instance)
