"""Plays one sequence of group requests against a broker and writes down, in order, everything that came back.

Two brokers that behave alike give equal transcripts: ids, which differ by nature, are replaced by names, and nothing
depends on time. After each request the broker is asked to describe the group until everything sent before has been
handled: three equal answers in a row, since a broker may pick up two sockets that are ready in any order. JoinGroup and
SyncGroup may stay unanswered; their answers are written down at the step that brings them.
"""

from __future__ import annotations

import select
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kafka_socket import KafkaSocket
from kohort.protocol import schema
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import ApiVersionsRequest, DescribeGroupsRequest, MetadataRequest

PARKING = ("JoinGroupRequest", "SyncGroupRequest")
WAIT_LIMIT_S = 30
BARRIERS = 3


@dataclass
class Actor:
    """A client of the sequence: the member ids it was given, and what it last learned of its group."""

    name: str
    ids: list[str] = field(default_factory=list)
    generation: int = -1
    protocol: str | None = None
    is_leader: bool = False
    members: list[str] = field(default_factory=list)

    @property
    def member_id(self) -> str:
        return self.ids[-1] if self.ids else ""


class View:
    """What requests are built from: the state of one play. Names in, this broker's ids out."""

    def __init__(self, group_id: str, topic_ids: dict[str, bytes]) -> None:
        self.group_id = group_id
        self.topic_ids = topic_ids
        self.actors: dict[str, Actor] = {}

    def actor(self, name: str) -> Actor:
        return self.actors.setdefault(name, Actor(name))


@dataclass(frozen=True)
class Step:
    """One request by one actor, or, without a `build`, a wait for `until(described group, parked requests)`."""

    label: str
    actor: str
    version: int = 0
    build: Callable[[View], Any] | None = None
    until: Callable[[Any, int], bool] | None = None


@dataclass(frozen=True)
class Sequence:
    name: str
    group_id: str
    steps: list[Step]


@dataclass
class Parked:
    number: int
    actor: str
    version: int
    connection: KafkaSocket


class LeaderOpen(Exception):
    """The leader is gone and several members remain: Kafka takes the first of a hash map, so the play ends here."""


class Player:
    """Holds the connections to one broker; `play` can be called any number of times."""

    def __init__(self, bootstrap_servers: str, topics: list[str]) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.control = KafkaSocket(bootstrap_servers)
        self.idle: list[KafkaSocket] = []
        self.topic_ids = self._topic_ids(topics)

    def close(self) -> None:
        for connection in (self.control, *self.idle):
            connection.close()

    def _topic_ids(self, topics: list[str]) -> dict[str, bytes]:
        wanted = [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
        answer = self.control.call(MetadataRequest(topics=wanted, allow_auto_topic_creation=False), 12)
        return {topic.name: topic.topic_id for topic in answer.topics}

    def connection(self) -> KafkaSocket:
        """One without a request in flight. A new one is answered once first: until then a broker may not look at it."""
        if self.idle:
            return self.idle.pop()
        connection = KafkaSocket(self.bootstrap_servers)
        connection.call(ApiVersionsRequest(), 0)
        return connection

    def begin(self, sequence: Sequence) -> Play:
        return Play(self, sequence)

    def before(self, play: Any, number: int) -> None:
        """A step that comes next."""

    def play(self, sequence: Sequence) -> list[str]:
        play = self.begin(sequence)
        try:
            for number, step in enumerate(sequence.steps):
                self.before(play, number)
                play.take(number, step)
        except LeaderOpen:
            play.lines.append("(which member leads is open from here on)")
        finally:
            for parked in play.parked:
                parked.connection.close()
        return play.lines


class Play:
    """One sequence under way against one broker."""

    def __init__(self, player: Player, sequence: Sequence) -> None:
        self.player = player
        self.group_id = sequence.group_id
        self.view = View(sequence.group_id, player.topic_ids)
        self.parked: list[Parked] = []
        self.names: dict[str, str] = {}
        self.made: Counter[str] = Counter()
        self.topics = {topic_id: name for name, topic_id in player.topic_ids.items()}
        self.leader: tuple[str, str | None] | None = None
        self.state = ""
        self.lines: list[str] = []

    def take(self, number: int, step: Step) -> None:
        self.lines.append(f"{number}. {step.actor}: {step.label} v{step.version}")
        if step.build is None:
            assert step.until is not None
            self._wait(step.until)
            answers = self._settle()
        else:
            connection = self.player.connection()
            connection.client_id = step.actor
            request = step.build(self.view)
            connection.send(request, step.version)
            if type(request).__name__ in PARKING:
                self.parked.append(Parked(number, step.actor, step.version, connection))
                answers = self._settle()
            else:
                answer = self._own(connection.receive())
                self.player.idle.append(connection)
                answers = [(number, step, answer), *self._settle()]
        for answered, of, answer in answers:
            self.lines.append(f"   -> {answered}. {self._show(answer, of.version)}")
        self.lines.append(f"   group {self._described}")

    def _own(self, answer: Any) -> Any:
        """Of all groups only those of this sequence; of a coordinator's address only that it is this broker."""
        if type(answer).__name__ == "ListGroupsResponse":
            answer.groups = [group for group in answer.groups if group.group_id.startswith(self.group_id)]
        if type(answer).__name__ == "FindCoordinatorResponse":
            for found in (answer, *answer.coordinators):
                if f"{found.host}:{found.port}" == self.player.bootstrap_servers:
                    found.node_id, found.host, found.port = 0, "<broker>", 0
        return answer

    def _describe(self) -> Any:
        return self.player.control.call(DescribeGroupsRequest(groups=[self.group_id]), 5).groups[0]

    def _barrier(self) -> Any:
        """Ask until the answer has stayed the same for as many questions as it takes to be sure."""
        answers = [self._describe() for _ in range(BARRIERS)]
        while any(answer != answers[-1] for answer in answers[-BARRIERS:]):
            answers.append(self._describe())
        return answers[-1]

    def _settle(self) -> list[tuple[int, Any, Any]]:
        """Let the broker finish what it was sent; the parked requests that this answered."""
        described = self._barrier()
        if described.group_state == "PreparingRebalance" and self.state in ("", "Empty", "Dead"):
            # The first rebalance of an empty group ends by a timer, even where its delay is 0 ms.
            self._wait(lambda group, _: group.group_state != "PreparingRebalance")
            described = self._barrier()
        self.state = described.group_state
        answers = self._collect()
        for parked, answer in answers:
            self._learn(parked, answer)
        for member in described.members:
            self._name(member.member_id, member.client_id)
        self._check_leader(described)
        self._described = self._show(described, 5)
        return [(parked.number, parked, answer) for parked, answer in answers]

    def _wait(self, until: Callable[[Any, int], bool]) -> None:
        deadline = time.monotonic() + WAIT_LIMIT_S
        while not until(self._describe(), len(self.parked) - len(self._readable())):
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"group {self.group_id} did not get there: {self._describe()}\n" + "\n".join(self.lines)
                )
            time.sleep(0.01)

    def _readable(self) -> list[Parked]:
        ready, _, _ = select.select([p.connection for p in self.parked], [], [], 0) if self.parked else ([], [], [])
        return [p for p in self.parked if p.connection in ready]

    def _collect(self) -> list[tuple[Parked, Any]]:
        answered = self._readable()
        self.parked = [p for p in self.parked if p not in answered]
        answers = [(p, p.connection.receive()) for p in answered]
        self.player.idle += [p.connection for p in answered]
        return answers

    def _learn(self, parked: Parked, answer: Any) -> None:
        """Keep what a joining client would keep."""
        if type(answer).__name__ != "JoinGroupResponse":
            return
        actor = self.view.actor(parked.actor)
        if answer.error_code not in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            return
        self._name(answer.member_id, actor.name)
        if answer.member_id not in actor.ids:
            actor.ids.append(answer.member_id)
        if answer.error_code == ErrorCode.NONE:
            actor.generation = answer.generation_id
            actor.protocol = answer.protocol_name
            actor.is_leader = answer.leader == answer.member_id
            actor.members = [member.member_id for member in answer.members]

    def _name(self, member_id: str, actor: str) -> None:
        """A step makes at most one new id, so the order of naming is the same on every broker."""
        if member_id not in self.names:
            self.made[actor] += 1
            self.names[member_id] = f"<{actor} {self.made[actor]}>"

    def _check_leader(self, described: Any) -> None:
        present = {member.member_id: member.group_instance_id for member in described.members}
        leaders = {a.member_id: a for a in self.view.actors.values() if a.is_leader}
        if self.leader is not None and self.leader[0] not in present:
            instance = self.leader[1]
            heir = next((m for m, i in present.items() if instance is not None and i == instance), None)
            if heir is None and len(present) > 1:
                raise LeaderOpen
            self.leader = (heir, instance) if heir is not None else None
        for member_id in leaders:
            if member_id in present:
                self.leader = (member_id, present[member_id])
        if self.leader is None and len(present) == 1:
            self.leader = next(iter(present.items()))

    # -- showing

    def _show(self, message: Any, version: int) -> str:
        return f"{type(message).__name__} {self._plain(message, version)}"

    def _plain(self, value: Any, version: int) -> Any:
        if isinstance(value, str):
            return self.names.get(value, value)
        if isinstance(value, bytes):
            return f"<{self.topics[value]}>" if value in self.topics else value
        if isinstance(value, list):
            return sorted_where_free([self._plain(item, version) for item in value])
        if hasattr(value, "unknown_tags"):
            fields = {
                f.name: self._plain(getattr(value, f.name), version) for f in fields_of(value) if version in f.versions
            }
            return fields | ({"unknown_tags": value.unknown_tags} if value.unknown_tags else {})
        return value


def fields_of(message: Any) -> tuple[schema.Field, ...]:
    root, dot, inner = type(message).__qualname__.partition(".")
    definition = schema.message(root)
    return definition.structs[inner].fields if dot else definition.root.fields


FREE_ORDER = ("member_id", "group_id", "name", "topic_id")
"""Lists of members, groups and topics come from hash maps in Kafka: their order means nothing."""


def sorted_where_free(items: list[Any]) -> list[Any]:
    for key in FREE_ORDER:
        if all(isinstance(item, dict) and key in item for item in items):
            return sorted(items, key=lambda item: (str(item[key]), repr(item)))
    if all(isinstance(item, dict) and "partition_index" in item for item in items):
        return sorted(items, key=lambda item: item["partition_index"])
    return items
