"""Members of other clients in groups of the consumer protocol on kohort: rolling restarts, kill -9, a topic that grows,
moves from one protocol to the other and back, while records flow. Nothing is skipped, no partition has two owners.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kohort
from apache_kafka import Unavailable, java_command
from client.conftest import until
from conformance.conftest import HERE, QUICK
from franz_go import build
from kafka_socket import KafkaSocket
from kohort.protocol.messages import ConsumerGroupDescribeRequest

PARTITIONS = 6
LIMIT_S = 420
Command = Callable[..., list[str]]
_groups = itertools.count()


@pytest.fixture(scope="module")
def broker() -> Iterator[kohort.Broker]:
    config = {"group.initial.rebalance.delay.ms": 0, "group.consumer.assignment.interval.ms": 100, **QUICK}
    config["group.consumer.session.timeout.ms"] = 6_000  # within which a JVM starts anew
    with kohort.Broker(config=config) as running:
        yield running


class Member:
    """A consumer in a process of its own; what it owned, when, and what it has read."""

    def __init__(self, name: str, command: list[str]) -> None:
        self.name = name
        self.values: set[int] = set()
        self.owned: dict[int, int] = {}  # partition -> since when
        self.periods: list[tuple[int, int, int, str]] = []  # partition, from, until, who
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            kind, *numbers = line.split()
            if kind == "R":
                self.values.add(int(numbers[0]))
            elif kind == "+":
                self.owned[int(numbers[0])] = int(numbers[1])
            elif kind == "-":
                self._gave_up(int(numbers[0]), int(numbers[1]))

    def _gave_up(self, partition: int, at_ms: int) -> None:
        since = self.owned.pop(partition, None)
        if since is not None:
            self.periods.append((partition, since, at_ms, self.name))

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._end(time.time_ns() // 1_000_000)

    def kill(self) -> None:
        at_ms = time.time_ns() // 1_000_000
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait(60)
        self._end(at_ms)

    def _end(self, at_ms: int) -> None:
        self._thread.join(60)
        for partition in list(self.owned):
            self._gave_up(partition, at_ms)


class Flow:
    """Numbers into a topic, spread over its partitions, until it is stopped."""

    def __init__(self, servers: str, topic: str) -> None:
        self.partitions = PARTITIONS
        self.count = 0
        self._stopping = threading.Event()
        self._servers, self._topic = servers, topic
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with kohort.Producer(bootstrap_servers=self._servers, metadata_max_age_ms=500) as producer:
            while not self._stopping.wait(0.02):
                try:
                    producer.send(self._topic, str(self.count).encode(), partition=self.count % self.partitions)
                except kohort.KafkaError:
                    continue  # it does not know of the topic's growth yet
                self.count += 1
            producer.flush()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(60)


class Group:
    def __init__(self, broker: kohort.Broker) -> None:
        self.broker = broker
        self.group_id = f"g{next(_groups)}"
        self.topic = f"t-{self.group_id}"
        broker.create_topic(self.topic, partitions=PARTITIONS)
        self.flow = Flow(broker.bootstrap_servers, self.topic)
        self.members: list[Member] = []
        self.gone: list[Member] = []

    def add(self, command: Command, protocol: str, *settings: str, expression: str = "") -> Member:
        name = f"{len(self.members) + len(self.gone)}-{protocol}"
        where = (self.broker.bootstrap_servers, expression or self.topic, self.group_id)
        self.members.append(Member(name, command(*where, protocol, *settings)))
        return self.members[-1]

    def end(self, member: Member, how: str = "stop") -> None:
        getattr(member, how)()
        self.members.remove(member)
        self.gone.append(member)

    def shared(self) -> None:
        """Until everybody has a fair share, and all of it together."""
        count, size = self.flow.partitions, len(self.members)
        fair = sorted(count // size + (one < count % size) for one in range(size))

        def is_shared() -> bool:
            owned = [set(member.owned) for member in self.members]
            return sorted(map(len, owned)) == fair and set().union(*owned) == set(range(count))

        until(is_shared, f"{count} partitions shared by {[(m.name, sorted(m.owned)) for m in self.members]}")

    def type(self) -> str:
        with kohort.Admin(bootstrap_servers=self.broker.bootstrap_servers) as admin:
            return next(one.type for one in admin.list_groups() if one.group_id == self.group_id)

    def described(self) -> Any:
        with KafkaSocket(self.broker.bootstrap_servers) as connection:
            return connection.call(ConsumerGroupDescribeRequest(group_ids=[self.group_id]), 1).groups[0]

    def check(self) -> None:
        """All that was written was read, and each partition had one owner at a time."""
        self.flow.stop()
        everybody = [*self.members, *self.gone]
        wanted = set(range(self.flow.count))
        until(lambda: set().union(*(m.values for m in everybody)) >= wanted, "everything is read")
        for member in list(self.members):
            self.end(member)
        periods = sorted(period for member in everybody for period in member.periods)
        for before, after in itertools.pairwise(periods):
            same = before[0] == after[0] and before[3] != after[3]
            assert not same or before[2] <= after[1], f"{before} and {after} overlap"

    def close(self) -> None:
        self.flow.stop()
        for member in list(self.members):
            self.end(member, "kill")


@pytest.fixture
def group(broker: kohort.Broker) -> Iterator[Group]:
    made = Group(broker)
    yield made
    made.close()


# -- the clients -----------------------------------------------------------------------------------------------------


def java(classes: Path) -> Command:
    def command(servers: str, topic: str, group_id: str, protocol: str, *further: str) -> list[str]:
        settings = ["metadata.max.age.ms=500", f"group.protocol={protocol}", "auto.commit.interval.ms=200", *further]
        assignor = "-"
        if protocol == "classic":
            assignor = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
            settings += ["heartbeat.interval.ms=100", "session.timeout.ms=6000"]
        arguments = (servers, topic, group_id, assignor, *settings)
        return java_command("GroupMember", *arguments, extra_class_path=[classes])

    return command


def python(client: str) -> Command:
    return lambda *arguments: [sys.executable, str(HERE / "python_member.py"), client, *arguments]


@pytest.fixture(scope="module")
def commands(request: pytest.FixtureRequest) -> Callable[[str], Command]:
    """How to start a member of a client; skips where that cannot be had."""

    def of(client: str) -> Command:
        if client == "java":
            return java(request.getfixturevalue("java_classes"))
        if client == "franz-go":
            try:
                made = build(HERE / "go" / "group_member.go")
            except Unavailable as unavailable:
                pytest.skip(str(unavailable))
            return lambda *arguments: [str(made), *arguments]
        return python(client)

    return of


# -- stories ---------------------------------------------------------------------------------------------------------

CLIENTS = ["java", "confluent", "franz-go", "kohort"]


@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize("client", CLIENTS)
def test_restarts_kills_and_growth(client: str, commands: Callable[[str], Command], group: Group) -> None:
    member = commands(client)
    for _ in range(3):
        group.add(member, "consumer")
    group.shared()
    for old in list(group.members):  # a rolling restart
        group.end(old)
        group.add(member, "consumer")
        group.shared()
    group.end(group.members[0], "kill")
    group.shared()
    with kohort.Admin(bootstrap_servers=group.broker.bootstrap_servers) as admin:
        admin.create_partitions({group.topic: PARTITIONS + 2})
    group.flow.partitions = PARTITIONS + 2
    group.shared()
    killed = group.members[0]
    group.add(member, "consumer")
    group.end(killed, "kill")  # while it hands over
    group.shared()
    group.check()


@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_group_moves_to_the_protocol_and_back(client: str, commands: Callable[[str], Command], group: Group) -> None:
    member = commands(client)
    for _ in range(2):
        group.add(member, "classic")
    group.shared()
    assert group.type() == "classic"
    for protocol in ("consumer", "classic"):
        for old in list(group.members):
            group.end(old)
            group.add(member, protocol)
            group.shared()
        assert group.type() == protocol
    group.end(group.members[0], "kill")
    group.shared()
    group.check()


@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize("client", ["java", "confluent", "kohort"])
def test_expressions_instance_ids_and_assignors(client: str, commands: Callable[[str], Command], group: Group) -> None:
    """A static member that is restarted finds what it had, and nobody else notices."""
    pytest.importorskip("re2")
    member = commands(client)

    def add(instance_id: str) -> Member:
        settings = (f"group.instance.id={instance_id}", "group.remote.assignor=range")
        return group.add(member, "consumer", *settings, expression=f"^{group.topic}")

    one, two = add("one"), add("two")
    group.shared()
    had, epoch, given_up = set(one.owned), group.described().group_epoch, len(two.periods)
    described = group.described()
    assert (described.assignor_name, {row.instance_id for row in described.members}) == ("range", {"one", "two"})
    assert {row.subscribed_topic_regex.strip("()") for row in described.members} == {f"^{group.topic}"}
    group.end(one)
    again = add("one")
    group.shared()
    assert set(again.owned) == had
    assert group.described().group_epoch == epoch
    assert len(two.periods) == given_up, "two has given up nothing"
    group.check()


@pytest.mark.timeout(LIMIT_S)
def test_members_of_all_clients_in_one_group(commands: Callable[[str], Command], group: Group) -> None:
    """Java and ours at first, then the others; members of the classic protocol among them."""
    for client in CLIENTS:
        group.add(commands(client), "consumer")
    group.shared()
    for client in ("java", "kohort"):
        group.add(commands(client), "classic")
    group.shared()
    group.end(group.members[0], "kill")
    group.shared()
    for _ in range(3):
        group.end(group.members[0])
        group.shared()
    assert group.type() == "classic"
    group.check()
