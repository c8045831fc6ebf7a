"""Groups of other people's clients: nothing skipped, nothing twice in an assignment, nothing below a commit again."""

import subprocess
import sys
import textwrap

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as KafkaPythonRoundRobin

import kohort
from broker.group_members import (
    LIMIT_S,
    TOPIC,
    AiokafkaMember,
    ConfluentMember,
    KafkaPythonMember,
    Ledger,
    Member,
    until,
)

PARTITIONS = 6
CONFIG = {
    "group.initial.rebalance.delay.ms": 100,
    "group.min.session.timeout.ms": 1_000,
    "offsets.topic.num.partitions": 4,
}


class Topic:
    """The topic that everybody reads; `produce` adds records to each of its partitions."""

    def __init__(self, servers: str) -> None:
        self.partitions, self.per_partition = PARTITIONS, 0
        self.admin = AdminClient({"bootstrap.servers": servers})
        self.admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(LIMIT_S)
        self.producer = ck.Producer({"bootstrap.servers": servers, "linger.ms": 1})

    def produce(self, more: int) -> None:
        for _ in range(more):
            for partition in range(self.partitions):
                self.producer.produce(TOPIC, b"x", partition=partition)
        assert self.producer.flush(LIMIT_S) == 0
        self.per_partition += more

    def all_read(self, ledger: Ledger) -> None:
        until(lambda: ledger.has_all(self.partitions, self.per_partition), "every record to be read")


def settled(*members: Member) -> None:
    """All partitions are owned, by these members, each once."""

    def is_settled() -> bool:
        broken = [member.error for member in members if member.error is not None]
        assert not broken, broken
        owned = [p for member in members for p in member.assigned]
        return sorted(owned) == list(range(PARTITIONS)) and all(member.assigned for member in members)

    until(is_settled, "the partitions to be shared out")


def rebalances(broker: kohort.Broker) -> int:
    story = broker._running.story("g")
    return sum(event.type == "RebalanceStarted" for event in story)


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_members_join_and_leave(strategy: str) -> None:
    with kohort.Broker(config=CONFIG) as broker:
        topic, ledger = Topic(broker.bootstrap_servers), Ledger()

        def join(name: str) -> ConfluentMember:
            options = {"partition.assignment.strategy": strategy}
            return ConfluentMember(name, broker.bootstrap_servers, ledger, **options)

        topic.produce(50)
        a = join("a")
        settled(a)
        b = join("b")
        settled(a, b)
        topic.produce(50)
        c = join("c")
        settled(a, b, c)
        topic.produce(50)
        a.leave()
        settled(b, c)
        topic.produce(50)
        topic.all_read(ledger)
        b.leave()
        c.leave()
    assert ledger.violations == []
    assert ledger.duplicates() == 0


def test_different_clients_in_one_group() -> None:
    """confluent-kafka, kafka-python and aiokafka share a topic; they agree on round robin, which all of them know."""
    with kohort.Broker(config=CONFIG) as broker:
        topic, ledger, servers = Topic(broker.bootstrap_servers), Ledger(), broker.bootstrap_servers
        topic.produce(30)
        a = KafkaPythonMember("kafka-python", servers, ledger)
        settled(a)
        b = AiokafkaMember("aiokafka", servers, ledger)
        settled(a, b)
        c = ConfluentMember("confluent", servers, ledger, **{"partition.assignment.strategy": "range,roundrobin"})
        settled(a, b, c)
        topic.produce(30)
        a.leave()
        settled(b, c)
        topic.produce(30)
        b.leave()
        settled(c)
        topic.produce(30)
        topic.all_read(ledger)
        c.leave()
    assert ledger.violations == []
    assert ledger.duplicates() == 0


def test_a_group_of_kafka_python() -> None:
    with kohort.Broker(config=CONFIG) as broker:
        topic, ledger, servers = Topic(broker.bootstrap_servers), Ledger(), broker.bootstrap_servers
        topic.produce(30)
        chosen = {"partition_assignment_strategy": [KafkaPythonRoundRobin]}
        a = KafkaPythonMember("a", servers, ledger, **chosen)
        b = KafkaPythonMember("b", servers, ledger, **chosen)
        settled(a, b)
        topic.produce(30)
        a.leave()
        settled(b)
        topic.all_read(ledger)
        b.leave()
    assert ledger.violations == []
    assert ledger.duplicates() == 0


def test_a_rolling_restart_of_static_members_is_no_rebalance() -> None:
    with kohort.Broker(config=CONFIG) as broker:
        topic, ledger = Topic(broker.bootstrap_servers), Ledger()

        def join(name: str) -> ConfluentMember:
            return ConfluentMember(name, broker.bootstrap_servers, ledger, **{"group.instance.id": name})

        topic.produce(30)
        members = {name: join(name) for name in ("a", "b", "c")}
        settled(*members.values())
        before = rebalances(broker)
        for name in members:
            owned = set(members[name].assigned)
            members[name].leave()
            topic.produce(10)
            members[name] = join(name)
            until(lambda name=name, owned=owned: members[name].assigned == owned, f"{name} to be back")
        topic.all_read(ledger)
        assert rebalances(broker) == before
        for member in members.values():
            member.leave()
    assert ledger.violations == []
    assert ledger.duplicates() == 0


CRASHER = """
import sys
import confluent_kafka as ck
consumer = ck.Consumer({"bootstrap.servers": sys.argv[1], "group.id": "g", "auto.offset.reset": "earliest",
    "enable.auto.commit": False, "session.timeout.ms": 1500, "heartbeat.interval.ms": 300})
consumer.subscribe(["orders"])
while True:
    message = consumer.poll(1)
    if message is not None and message.error() is None:
        print(message.partition(), message.offset(), flush=True)
"""


def test_a_member_crashes() -> None:
    """Killed, it is missed after its session; what it had read and not committed is read again, by another."""
    with kohort.Broker(config=CONFIG) as broker:
        topic, ledger = Topic(broker.bootstrap_servers), Ledger()
        topic.produce(30)
        a = ConfluentMember("a", broker.bootstrap_servers, ledger)
        settled(a)
        command = [sys.executable, "-c", textwrap.dedent(CRASHER), broker.bootstrap_servers]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        until(lambda: 0 < len(a.assigned) < PARTITIONS, "the other one to join")
        topic.produce(30)
        assert process.stdout is not None
        lost = [process.stdout.readline().split() for _ in range(10)]
        process.kill()
        process.communicate(timeout=LIMIT_S)
        settled(a)
        topic.all_read(ledger)
        a.leave()
    assert ledger.violations == []
    read = ledger.offsets()
    assert all(int(offset) in read[int(partition)] for partition, offset in lost)


def test_the_broker_restarts_in_the_middle(tmp_path) -> None:
    """Shorter than their sessions: the members stay members, and go on where they were."""
    broker = kohort.Broker(data_dir=tmp_path, config=CONFIG)
    broker.start()
    try:
        topic, ledger, servers = Topic(broker.bootstrap_servers), Ledger(), broker.bootstrap_servers
        topic.produce(50)
        a, b = (ConfluentMember(name, servers, ledger) for name in ("a", "b"))
        settled(a, b)
        topic.produce(50)
        port = broker.port
        for _ in range(2):
            broker.stop()
            broker = kohort.Broker(data_dir=tmp_path, port=port, config=CONFIG)
            broker.start()
            topic.produce(50)
            topic.all_read(ledger)
        c = ConfluentMember("c", servers, ledger)
        settled(a, b, c)
        topic.produce(20)
        topic.all_read(ledger)
        for member in (a, b, c):
            member.leave()
    finally:
        broker.stop()
    assert ledger.violations == []


def test_a_topic_grows_under_the_group() -> None:
    with kohort.Broker(config=CONFIG) as broker:
        topic, ledger = Topic(broker.bootstrap_servers), Ledger()
        a = ConfluentMember("a", broker.bootstrap_servers, ledger)
        b = ConfluentMember("b", broker.bootstrap_servers, ledger)
        settled(a, b)
        topic.produce(10)
        topic.admin.create_partitions([NewPartitions(TOPIC, PARTITIONS + 2)])[TOPIC].result(LIMIT_S)
        until(lambda: len(a.assigned) + len(b.assigned) == PARTITIONS + 2, "the new partitions to be assigned")
        topic.all_read(ledger)
        a.leave()
        b.leave()
    assert ledger.violations == []
    assert ledger.duplicates() == 0
