"""What groups of the consumer protocol go through, whoever the broker is: tests to be imported where `topics` is one.

Records flow all the while. Every member of kohort writes down what it takes over and gives up in a ledger, which
fails where a partition would have two owners.
"""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer as Confluent

import kohort
from client.conftest import Topics, until
from client.readers import Reader
from kohort.client.admin_types import NewTopic
from kohort.client.types import TopicPartition
from kohort.protocol.errors import ErrorCode, KafkaError

PARTITIONS = 6
_numbers = itertools.count()


class Ledger:
    """Who owns what. Listeners are called before a partition is read and after it is not read any more."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owners: dict[TopicPartition, str] = {}
        self.twice: list[str] = []
        self.moves: list[tuple[str, str, TopicPartition]] = []

    def took(self, name: str, partitions: list[TopicPartition]) -> None:
        with self._lock:
            for tp in partitions:
                if (other := self._owners.get(tp)) is not None:
                    self.twice.append(f"{tp} is {other}'s and {name}'s")
                self._owners[tp] = name
                self.moves.append((name, "+", tp))

    def gave(self, name: str, partitions: list[TopicPartition]) -> None:
        with self._lock:
            for tp in partitions:
                if self._owners.get(tp) == name:
                    del self._owners[tp]
                self.moves.append((name, "-", tp))


class Group:
    """Members that read one topic; `gone` are remembered with what they read."""

    def __init__(self, topics: Topics, partitions: int = PARTITIONS) -> None:
        self.topics = topics
        self.partitions = partitions
        self.topic = topics.make(partitions)
        self.group_id = f"modern-{next(_numbers)}-{os.getpid()}"
        self.ledger = Ledger()
        self.members: list[Any] = []
        self.gone: list[Any] = []
        self.produced = 0
        self._flowing = threading.Event()
        self._flow: threading.Thread | None = None

    # -- members

    def consumer(self, **settings: Any) -> kohort.Consumer:
        given = {"group_protocol": "consumer", "auto_offset_reset": "earliest", "metadata_max_age_ms": 500, **settings}
        return kohort.Consumer(bootstrap_servers=self.topics.servers, group_id=self.group_id, **given)

    def add(self, subscription: Any = None, **settings: Any) -> Reader:
        name = f"m{next(_numbers)}"
        consumer = self.consumer(**settings)
        consumer.subscribe(
            subscription or self.topic,
            on_partitions_assigned=lambda partitions: self.ledger.took(name, partitions),
            on_partitions_revoked=lambda partitions: self.ledger.gave(name, partitions),
        )
        reader = Reader(
            lambda: [int(record.value) for record in consumer.poll(0.05)],
            consumer.close,
            lambda: len(consumer.assignment()),
        )
        reader.name, reader.consumer = name, consumer
        self.members.append(reader)
        return reader

    def add_librdkafka(self) -> Reader:
        settings = {"group.protocol": "consumer", "auto.offset.reset": "earliest"}
        consumer = Confluent({"bootstrap.servers": self.topics.servers, "group.id": self.group_id, **settings})
        consumer.subscribe([self.topic])
        reader = Reader(
            lambda: [int(message.value()) for message in consumer.consume(100, 0.05) if not message.error()],
            consumer.close,
            lambda: len(consumer.assignment()),
        )
        reader.librdkafka = True
        self.members.append(reader)
        return reader

    def add_process(self) -> Process:
        self.members.append(Process(self.topics.servers, self.topic, self.group_id))
        return self.members[-1]

    def end(self, member: Any, how: str = "stop") -> None:
        self.members.remove(member)
        self.gone.append(member)
        getattr(member, how)()

    def settled(self, partitions: int | None = None) -> bool:
        owned = [member.owned for member in self.members]
        return sum(owned) == (partitions or self.partitions) and max(owned) - min(owned) <= 1

    def wait(self, partitions: int | None = None) -> None:
        until(lambda: self.settled(partitions), "equal shares")

    # -- records

    def flow(self) -> None:
        """Records are produced until `check`."""

        def produce() -> None:
            while not self._flowing.wait(0.02):
                self.topics.produce(self.topic, self.partitions, self.partitions)
                self.produced += self.partitions

        self._flow = threading.Thread(target=produce, daemon=True)
        self._flow.start()

    def stop_flow(self) -> None:
        self._flowing.set()
        if self._flow is not None:
            self._flow.join()

    def values(self) -> list[int]:
        return [value for member in (*self.gone, *self.members) for value in member.values]

    def check(self, repeats: bool = False) -> None:
        """Everything was read, nothing twice, and nothing had two owners."""
        self.stop_flow()
        until(lambda: len(set(self.values())) == self.produced, f"{self.produced} records")
        assert set(self.values()) == set(range(self.produced))
        if not repeats:
            values = sorted(self.values())
            assert len(values) == self.produced, [a for a, b in itertools.pairwise(values) if a == b][:10]
        assert self.ledger.twice == []

    def close(self) -> None:
        self.stop_flow()
        for member in list(self.members):
            self.end(member)


PROGRAM = """
import sys, threading, kohort
servers, topic, group = sys.argv[1:4]
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
settings = dict(auto_offset_reset="earliest", bootstrap_servers=servers, group_id=group, group_protocol="consumer")
with kohort.Consumer(**settings) as c:
    c.subscribe(topic, on_partitions_lost=lambda partitions: print("L", len(partitions), flush=True))
    owned = -1
    while not ended.is_set():
        for record in c.poll(0.1):
            print("R", record.value.decode(), flush=True)
        if len(c.assignment()) != owned:
            owned = len(c.assignment())
            print("A", owned, flush=True)
print("A 0", flush=True)
"""


class Process:
    """A member in a process of its own, which can be killed and held still."""

    librdkafka = False

    def __init__(self, *arguments: str) -> None:
        self.values: list[int] = []
        self.owned = self.lost = 0
        command = [sys.executable, "-c", PROGRAM, *arguments]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            kind, _, number = line.strip().partition(" ")
            if kind == "R":
                self.values.append(int(number))
            elif kind == "A":
                self.owned = int(number)
            elif kind == "L":
                self.lost += int(number)

    def hold_still(self) -> None:
        os.kill(self._process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._thread.join(60)
        self.owned = 0

    def kill(self) -> None:
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait(60)
        self._thread.join(60)
        self.owned = 0


@pytest.fixture
def make_group(topics: Topics) -> Iterator[Callable[..., Group]]:
    made: list[Group] = []

    def make(partitions: int = PARTITIONS) -> Group:
        made.append(Group(topics, partitions))
        return made[-1]

    yield make
    for group in made:
        group.close()


@pytest.fixture
def broker_matches() -> Callable[[], None]:
    """Skips where the broker has no RE2."""
    return lambda: None


@pytest.fixture
def group(make_group: Callable[..., Group]) -> Group:
    return make_group()


# -- members come and go -----------------------------------------------------------------------------------------------


def test_members_come_and_go_while_records_flow(group: Group) -> None:
    group.flow()
    first = group.add()
    group.wait()
    group.add()
    group.wait()
    group.add()
    group.wait()
    group.end(first)
    group.wait()
    group.add()
    group.wait()
    group.check()


def test_a_member_of_librdkafka_in_the_same_group(group: Group) -> None:
    group.flow()
    ours, theirs = group.add(), group.add_librdkafka()
    group.wait()
    group.add()
    group.wait()
    group.end(theirs)
    group.wait()
    group.end(ours)
    group.add_librdkafka()
    group.wait()
    group.check(repeats=True)


def test_a_crash(group: Group) -> None:
    group.flow()
    crashing = group.add_process()
    group.add()
    group.wait()
    until(lambda: len(crashing.values) > 20, "the process reads")
    group.end(crashing, "kill")
    group.wait()
    group.check(repeats=True)


def test_a_member_that_was_held_still_has_lost_its_partitions_and_joins_anew(group: Group) -> None:
    group.flow()
    still = group.add_process()
    other = group.add()
    group.wait()
    still.hold_still()
    until(lambda: other.owned == PARTITIONS, "the other takes over")
    still.go_on()
    until(lambda: still.lost == PARTITIONS // 2, "it hears that its partitions are lost")
    group.wait()
    group.check(repeats=True)


def test_those_who_keep_their_partitions_read_on(group: Group) -> None:
    """Between two reads of a partition that stays there is no gap that looks like a rebalance."""
    reads: list[tuple[float, TopicPartition]] = []
    consumer = group.consumer()
    slow = threading.Event()

    def give_up(partitions: list[TopicPartition]) -> None:
        slow.set()

    with consumer:
        consumer.subscribe(group.topic, on_partitions_revoked=give_up)

        def poll() -> None:
            now = time.monotonic()
            reads.extend((now, record.topic_partition) for record in consumer.poll(0.02))

        until(lambda: len(consumer.assignment()) == PARTITIONS, "the first assignment", poll)
        group.flow()
        until(lambda: len(reads) > 50, "reading", poll)
        began = time.monotonic()
        other = group.add()
        until(lambda: other.owned == 3 and len(consumer.assignment()) == 3, "the hand-over", poll)
        ended = time.monotonic()
        kept = consumer.assignment()
        group.stop_flow()
    assert slow.is_set()
    assert {tp for at, tp in reads if began <= at <= ended} >= kept


# -- static members ----------------------------------------------------------------------------------------------------


def test_a_static_member_that_comes_back_moves_nothing(group: Group) -> None:
    group.flow()
    other, static = group.add(), group.add(group_instance_id="one")
    group.wait()
    before = static.consumer.assignment()
    moves = len(group.ledger.moves)
    group.end(static)
    back = group.add(group_instance_id="one")
    until(lambda: back.owned == PARTITIONS // 2, "it has its partitions again")
    assert back.consumer.assignment() == before
    assert [move for move in group.ledger.moves[moves:] if move[0] == other.name] == []
    group.check()


def test_a_static_member_that_leaves_for_good(group: Group) -> None:
    other = group.add()
    leaving = group.consumer(group_instance_id="one")
    leaving.subscribe(group.topic)
    until(lambda: len(leaving.assignment()) == 3 and other.owned == 3, "equal shares", lambda: leaving.poll(0.05))
    leaving.close(leave_group=True)
    until(lambda: other.owned == PARTITIONS, "the other takes over at once")


def test_an_instance_id_that_is_in_use(group: Group) -> None:
    group.add(group_instance_id="one")
    group.wait()
    with group.consumer(group_instance_id="one") as second:
        second.subscribe(group.topic)
        with pytest.raises(KafkaError, match=r"still held in group .* close that one") as raised:
            until(lambda: False, "the refusal", lambda: second.poll(0.2))
    assert raised.value.code is ErrorCode.UNRELEASED_INSTANCE_ID


# -- topics ------------------------------------------------------------------------------------------------------------


def test_a_topic_that_grows(make_group: Callable[..., Group]) -> None:
    group = make_group(2)
    group.add()
    group.add()
    group.wait()
    with kohort.Admin(bootstrap_servers=group.topics.servers) as admin:
        admin.create_partitions({group.topic: 6})
    group.partitions = 6
    group.wait()
    group.flow()
    until(lambda: group.produced > 60, "records")
    group.check()


def test_a_topic_that_is_made_anew(make_group: Callable[..., Group]) -> None:
    group = make_group(2)
    member = group.add(allow_auto_create_topics=False)
    group.wait()
    group.topics.produce(group.topic, 10, 2)
    until(lambda: len(member.values) == 10, "the records of the first")
    with kohort.Admin(bootstrap_servers=group.topics.servers) as admin:
        admin.delete_topics([group.topic])
        until(lambda: group.topic not in admin.list_topics(), "it is gone")
        until(lambda: member.owned == 0, "nothing is assigned")
        admin.create_topics([NewTopic(group.topic, 2, 1)])
    group.wait()
    group.topics.produce(group.topic, 10, 2)
    until(lambda: member.values[10:] and set(member.values[10:]) == set(range(10, 20)), "the records of the second")


@pytest.mark.parametrize("by", ["broker", "client"])
def test_patterns(make_group: Callable[..., Group], by: str, broker_matches: Callable[[], None]) -> None:
    if by == "broker":
        broker_matches()
    group = make_group(2)
    name = f"{group.topic}-and-more"
    expression = f"{group.topic}(-and.*)?"
    member = group.add(kohort.SubscriptionPattern(expression) if by == "broker" else re.compile(expression))
    group.wait()
    with kohort.Admin(bootstrap_servers=group.topics.servers) as admin:
        admin.create_topics([NewTopic(name, 2, 1), NewTopic(f"not-{name}", 2, 1)])
    member2 = group.add(kohort.SubscriptionPattern(expression) if by == "broker" else re.compile(expression))
    group.wait(4)
    found = member.consumer.assignment() | member2.consumer.assignment()
    assert {tp.topic for tp in found} == {group.topic, name}
    assert group.ledger.twice == []


# -- moving between the protocols --------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_group_moves_to_the_protocol_and_back(group: Group, strategy: str) -> None:
    """Each member is stopped and started with the other protocol, while records flow."""
    classic = {
        "group_protocol": "classic",
        "partition_assignment_strategy": strategy,
        "heartbeat_interval_ms": 200,
        "session_timeout_ms": 6_000,
    }
    modern = {"group_protocol": "consumer"}
    group.flow()
    for settings in (classic, modern, classic):
        before = list(group.members)
        for number in range(2):
            if before:
                group.end(before.pop())
            group.add(**settings)
            until(lambda: sum(member.owned for member in group.members) == PARTITIONS, "all are owned")
            assert number < 2
    group.wait()
    group.check()


def test_members_of_both_protocols_in_one_group(group: Group) -> None:
    """A classic member that speaks of what it owns is served from the state of the new protocol."""
    classic = {
        "group_protocol": "classic",
        "partition_assignment_strategy": "cooperative-sticky",
        "heartbeat_interval_ms": 200,
        "session_timeout_ms": 6_000,
    }
    group.flow()
    group.add(**classic)
    group.wait()
    group.add()
    group.wait()
    group.add(**classic)
    group.wait()
    group.check()


# -- refusals ----------------------------------------------------------------------------------------------------------


def refused(consumer: kohort.Consumer, subscription: Any) -> KafkaError:
    with consumer:
        consumer.subscribe(subscription)
        with pytest.raises(KafkaError) as raised:
            until(lambda: False, "the refusal", lambda: consumer.poll(0.2))
    return raised.value


def test_an_assignor_that_the_broker_does_not_have(group: Group) -> None:
    error = refused(group.consumer(group_remote_assignor="nonsense"), group.topic)
    assert error.code is ErrorCode.UNSUPPORTED_ASSIGNOR and "group.consumer.assignors" in str(error)


def test_an_expression_that_is_none(group: Group) -> None:
    error = refused(group.consumer(), kohort.SubscriptionPattern("orders-(?=x)"))
    assert error.code is ErrorCode.INVALID_REGULAR_EXPRESSION and "RE2" in str(error)


def test_a_member_that_changes_to_an_expression_that_is_none(group: Group) -> None:
    """It gives everything up, says why, and can go on when it subscribes to something else."""
    with group.consumer() as consumer:
        consumer.subscribe(group.topic)
        until(lambda: len(consumer.assignment()) == PARTITIONS, "the assignment", lambda: consumer.poll(0.05))
        consumer.subscribe(kohort.SubscriptionPattern("("))
        with pytest.raises(KafkaError, match="RE2"):
            until(lambda: False, "the refusal", lambda: consumer.poll(0.2))
        consumer.subscribe(group.topic)
        until(lambda: len(consumer.assignment()) == PARTITIONS, "the assignment", lambda: consumer.poll(0.05))


def test_the_names_of_the_assignors(group: Group) -> None:
    for name in ("uniform", "range"):
        with group.consumer(group_remote_assignor=name) as consumer:
            consumer.subscribe(group.topic)
            until(lambda c=consumer: len(c.assignment()) == PARTITIONS, name, lambda c=consumer: c.poll(0.05))


# -- offsets -----------------------------------------------------------------------------------------------------------


def test_commits_while_the_epoch_changes(group: Group) -> None:
    """Others join and leave: every commit of those who stay succeeds, with whatever epoch it was sent."""
    group.flow()
    with group.consumer(enable_auto_commit=False) as consumer:
        consumer.subscribe(group.topic)
        until(lambda: len(consumer.assignment()) == PARTITIONS, "the first assignment", lambda: consumer.poll(0.05))
        commits = 0
        for _ in range(3):
            other = group.add()

            def read_and_commit() -> None:
                nonlocal commits
                if consumer.poll(0.01):
                    consumer.commit()
                    commits += 1

            until(lambda: len(consumer.assignment()) == 3, "the hand-over", read_and_commit)
            group.end(other)
            until(lambda: len(consumer.assignment()) == PARTITIONS, "all again", read_and_commit)
        assert commits > 10
        kept = sorted(consumer.assignment())
        found = consumer.committed(kept)
        assert all(found[tp] is not None for tp in kept)
        assert consumer.group_metadata().generation_id > 0


__all__ = [name for name in dir() if name.startswith("test_")] + ["broker_matches", "group", "make_group"]
