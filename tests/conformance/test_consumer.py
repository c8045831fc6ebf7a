"""kohort's consumer in groups with Java, librdkafka and kafka-python members, on a real Kafka and on kohort."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import kohort
from apache_kafka import ApacheKafka, java_command, run_java
from broker_process import free_ports
from client.conftest import Topics, until
from client.readers import Reader, check_all_read_once, confluent_reader, kafka_python_reader, kohort_reader
from kohort.client.errors import KafkaError
from kohort.client.types import TopicPartition

PARTITIONS = 6
JAVA_ASSIGNORS = {
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "roundrobin": "org.apache.kafka.clients.consumer.RoundRobinAssignor",
    "sticky": "org.apache.kafka.clients.consumer.StickyAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}
_groups = itertools.count()


class Process:
    """A consumer in a process of its own that prints `R value` and `A count`: can be killed as well as stopped."""

    def __init__(self, command: list[str]) -> None:
        self.values: list[int] = []
        self.owned = 0
        self.librdkafka = False
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

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._thread.join(60)

    def kill(self) -> None:
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait(60)
        self._thread.join(60)
        self.owned = 0


def java_reader(classes: Path, servers: str, topic: str, group: str, strategy: str, *settings: str) -> Process:
    arguments = [
        servers,
        topic,
        group,
        JAVA_ASSIGNORS[strategy],
        "heartbeat.interval.ms=100",
        "session.timeout.ms=6000",
        *settings,
    ]
    return Process(java_command("GroupMember", *arguments, extra_class_path=[classes]))


KOHORT_PROGRAM = """
import sys, threading, kohort
servers, topic, group, strategy = sys.argv[1:5]
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
settings = dict(auto_offset_reset="earliest", session_timeout_ms=6000, heartbeat_interval_ms=100)
settings |= dict(bootstrap_servers=servers, group_id=group, partition_assignment_strategy=strategy)
with kohort.Consumer(**settings) as c:
    c.subscribe(topic)
    owned = -1
    while not ended.is_set():
        for record in c.poll(0.1):
            print("R", record.value.decode(), flush=True)
        if len(c.assignment()) != owned:
            owned = len(c.assignment())
            print("A", owned, flush=True)
print("A 0", flush=True)
"""


def kohort_process(servers: str, topic: str, group: str, strategy: str) -> Process:
    return Process([sys.executable, "-c", KOHORT_PROGRAM, servers, topic, group, strategy])


# -- where -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["Apache Kafka", "kohort"])
def servers(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "Apache Kafka":
        yield request.getfixturevalue("apache_kafka").bootstrap_servers
        return
    request.getfixturevalue("jdk")
    with kohort.Broker(config={"group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 100}) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="module")
def topics(servers: str) -> Iterator[Topics]:
    with kohort.Admin(bootstrap_servers=servers) as admin:
        yield Topics(servers, admin)


@dataclass
class Group:
    """Members of one group reading one topic; who has gone is remembered with what it read."""

    servers: str
    topic: str
    group_id: str
    strategy: str
    members: list[Reader | Process] = field(default_factory=list)
    gone: list[Reader | Process] = field(default_factory=list)

    def add(self, make: Callable[..., Reader | Process], *first: object) -> Reader | Process:
        self.members.append(make(*first, self.servers, self.topic, self.group_id, self.strategy))
        return self.members[-1]

    def end(self, member: Reader | Process, how: str = "stop") -> None:
        self.members.remove(member)
        self.gone.append(member)
        getattr(member, how)()

    def values(self) -> list[int]:
        return sorted(value for member in (*self.gone, *self.members) for value in member.values)

    def settled(self) -> bool:
        owned = [member.owned for member in self.members]
        return sum(owned) == PARTITIONS and max(owned) - min(owned) <= 1


@pytest.fixture
def group(servers: str, topics: Topics, request: pytest.FixtureRequest) -> Iterator[Group]:
    made = Group(servers, topics.make(PARTITIONS), f"group-{next(_groups)}-{os.getpid()}", "range")
    yield made
    for member in list(made.members):
        made.end(member)


# -- what must hold --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", list(JAVA_ASSIGNORS))
def test_rolling_restart_of_a_mixed_group(group: Group, topics: Topics, java_classes: Path, strategy: str) -> None:
    """Every member is replaced in turn by a clean stop and a new start: nothing is skipped, nothing is read twice."""
    group.strategy = strategy
    group.add(kohort_reader)
    group.add(java_reader, java_classes)
    if strategy != "sticky":  # librdkafka has no (eager) sticky assignor
        group.add(confluent_reader)
    if strategy in ("range", "roundrobin"):
        group.add(kafka_python_reader)
    until(group.settled, "equal shares")
    produced = 0
    for make in ((kohort_reader,), (java_reader, java_classes), (kohort_reader,)):
        topics.produce(group.topic, 300, PARTITIONS)
        produced += 300
        until(lambda total=produced: len(set(group.values())) == total, f"{produced} records")
        group.end(group.members[0])
        group.add(*make)
        until(group.settled, "equal shares")
    topics.produce(group.topic, 300, PARTITIONS)
    until(lambda: len(set(group.values())) == produced + 300, "the last records")
    check_all_read_once([*group.gone, *group.members], produced + 300)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_crashes(group: Group, topics: Topics, java_classes: Path, strategy: str) -> None:
    """kill -9 of a kohort and of a Java member: the others take over; nothing is skipped, repeats are allowed."""
    group.strategy = strategy
    ours = group.add(kohort_process)
    theirs = group.add(java_reader, java_classes)
    group.add(kohort_reader)
    until(group.settled, "equal shares")
    topics.produce(group.topic, 300, PARTITIONS)
    until(lambda: len(set(group.values())) >= 300, "300 records")
    group.end(ours, "kill")
    topics.produce(group.topic, 300, PARTITIONS)
    until(lambda: set(group.values()) == set(range(600)), "all records after the first crash")
    group.end(theirs, "kill")
    topics.produce(group.topic, 300, PARTITIONS)
    until(lambda: set(group.values()) == set(range(900)), "all records after the second crash")


def test_cooperative_hand_over_does_not_stop_the_world(group: Group, topics: Topics, java_classes: Path) -> None:
    """While a Java member joins and its partitions move, those that stay keep being read: their timestamps show it."""
    done = threading.Event()

    def produce() -> None:
        while not done.is_set():
            topics.produce(group.topic, PARTITIONS, PARTITIONS)
            time.sleep(0.01)

    events: list[tuple[float, str, frozenset[TopicPartition]]] = []
    reads: list[tuple[float, TopicPartition]] = []
    settings = {"auto_offset_reset": "earliest", "partition_assignment_strategy": "cooperative-sticky"}
    consumer = kohort.Consumer(bootstrap_servers=group.servers, group_id=group.group_id, **settings)
    producer = threading.Thread(target=produce, daemon=True)
    with consumer:
        consumer.subscribe(
            group.topic,
            on_partitions_assigned=lambda ps: events.append((time.monotonic(), "assigned", frozenset(ps))),
            on_partitions_revoked=lambda ps: events.append((time.monotonic(), "revoked", frozenset(ps))),
        )

        def poll() -> None:
            records = consumer.poll(0.02)
            now = time.monotonic()
            reads.extend((now, record.topic_partition) for record in records)

        until(lambda: len(consumer.assignment()) == PARTITIONS, "the first assignment", poll)
        producer.start()
        until(lambda: len(reads) > 50, "reading", poll)
        group.strategy = "cooperative-sticky"
        java = group.add(java_reader, java_classes)
        until(lambda: java.owned == 3 and len(consumer.assignment()) == 3, "the hand-over", poll)
        done.set()
        producer.join()
        kept = consumer.assignment()
        story = consumer.story()
    ((revoked_at, _, moved),) = [event for event in events if event[1] == "revoked"][:1]
    assert len(moved) == 3 and not moved & kept
    joined_again = [at / 1000 for at, text in story if text.startswith("joins again")]
    began, ended = joined_again[0], events[-2][0] if events[-1][1] == "revoked" else events[-1][0]
    during = [tp for at, tp in reads if began <= at <= ended]
    assert ended - revoked_at > 0 and set(during) >= kept, "partitions that stay were read while the group rebalanced"
    assert not [tp for at, tp in reads if tp in moved and at > revoked_at + 0.5]


def test_group_tools_agree(group: Group, topics: Topics) -> None:
    group.add(kohort_reader)
    topics.produce(group.topic, 60, PARTITIONS)
    until(lambda: len(group.values()) == 60, "60 records")
    with kohort.Admin(bootstrap_servers=group.servers) as admin:
        until(lambda: sum(o.offset for o in admin.group_offsets(group.group_id).values() if o) == 60, "the commit")
        described = admin.describe_groups([group.group_id])[group.group_id]

    arguments = ["--bootstrap-server", group.servers, "--describe", "--group", group.group_id]
    printed = run_java("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", *arguments).stdout
    rows = [line.split() for line in printed.splitlines() if group.topic in line]
    assert {int(row[2]) for row in rows} == set(range(PARTITIONS))
    assert [row[5] for row in rows] == ["0"] * PARTITIONS
    assert {row[6] for row in rows} == {described.members[0].member_id}


# -- security ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def secure_kafka(jdk: None, certificate: Path) -> Iterator[dict[str, str]]:
    """bootstrap.servers by security.protocol; users alice (PLAIN), bob and eve (SCRAM)."""
    kafka = ApacheKafka()
    ports = dict(zip(("SASL_PLAINTEXT", "SSL", "SASL_SSL"), free_ports(3), strict=True))
    listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in {"PLAINTEXT": kafka.port, **ports}.items())
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    kafka.config |= {
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{kafka.controller_port}",
        "advertised.listeners": listeners,
        "listener.security.protocol.map": ",".join(f"{name}:{name}" for name in ("PLAINTEXT", *ports))
        + ",CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificate),
    }
    for name in ("sasl_plaintext", "sasl_ssl"):
        kafka.config |= {
            f"listener.name.{name}.plain.sasl.jaas.config": f'{login} user_alice="secret";',
            f"listener.name.{name}.scram-sha-256.sasl.jaas.config": f"{scram};",
            f"listener.name.{name}.scram-sha-512.sasl.jaas.config": f"{scram};",
        }
    with kafka:
        for user, password in (
            ("bob", "SCRAM-SHA-256=[password=secret2]"),
            ("eve", "SCRAM-SHA-512=[password=secret3]"),
        ):
            entity = ["--alter", "--entity-type", "users", "--entity-name", user, "--add-config", password]
            run_java("kafka.admin.ConfigCommand", "--bootstrap-server", kafka.bootstrap_servers, *entity)
        yield {name: f"127.0.0.1:{port}" for name, port in ports.items()}


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize(
    ("mechanism", "user", "password"),
    [("PLAIN", "alice", "secret"), ("SCRAM-SHA-256", "bob", "secret2"), ("SCRAM-SHA-512", "eve", "secret3")],
)
def test_sasl(
    secure_kafka: dict[str, str], certificate: Path, protocol: str, mechanism: str, user: str, password: str
) -> None:
    settings = {
        "bootstrap_servers": secure_kafka[protocol],
        "security_protocol": protocol,
        "ssl_cafile": str(certificate),
        "sasl_mechanism": mechanism,
        "sasl_username": user,
    }
    with kohort.Admin(**settings, sasl_password=password) as admin:
        assert 1 in admin.describe_cluster().nodes
    intruder = kohort.Admin(**settings, sasl_password="wrong", default_api_timeout_ms=5_000)
    with intruder, pytest.raises(KafkaError, match=r"refused sasl\.username"):
        intruder.describe_cluster()


def test_tls(secure_kafka: dict[str, str], certificate: Path) -> None:
    settings = {"bootstrap_servers": secure_kafka["SSL"], "security_protocol": "SSL"}
    with kohort.Admin(**settings, ssl_cafile=str(certificate)) as admin:
        admin.create_topics(["secure"])
    with kohort.Consumer(**settings, ssl_cafile=str(certificate), group_id="secure") as consumer:
        consumer.subscribe("secure")
        until(consumer.assignment, "an assignment", lambda: consumer.poll(0.2))
    stranger = kohort.Admin(**settings, default_api_timeout_ms=3_000)
    with stranger, pytest.raises(KafkaError, match="certificate verify failed"):
        stranger.describe_cluster()
