"""Transactions: the same steps on a real Apache Kafka and on kohort have the same outcome; Kafka's clients and tools.

CONCURRENT_TRANSACTIONS is waited out on both sides, as how long markers take is nobody's promise. Producer ids are
compared by the order of their appearance.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kohort
from apache_kafka import ApacheKafka, run_java
from cli.conftest import CommandLine
from kohort.protocol import messages as m
from kohort.protocol.errors import ErrorCode
from transactional import TxnProducer, describe, fetch_offset, read
from wire import WireClient

LIMIT_S = 180
WAIT = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,  # of a topic that is new
}


class Live:
    """A broker behind a socket, as TxnProducer knows a world."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._clients: list[WireClient] = []
        self.ids: list[int] = []

    @property
    def now_ms(self) -> int:
        return int(time.time() * 1000)

    def connect(self) -> WireClient:
        self._clients.append(WireClient(self.address))
        self._clients[-1].socket.settimeout(LIMIT_S)
        return self._clients[-1]

    def advance(self, ms: int) -> None:
        pass

    def close(self) -> None:
        for client in self._clients:
            client.close()

    def name_of(self, producer_id: int) -> int:
        """The ids are the broker's own; that it is another one counts."""
        if producer_id not in self.ids:
            self.ids.append(producer_id)
        return self.ids.index(producer_id)

    def ready(self, key_type: int, key: str) -> None:
        request = m.FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        deadline = time.monotonic() + LIMIT_S
        while self.connect().call(request, 4).coordinators[0].error_code:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def settled(side: Live, name: str) -> None:
    """Until the markers are written: what a late record meets before that is a race, also in Kafka."""
    deadline = time.monotonic() + LIMIT_S
    while describe(side, name).transaction_state.startswith("Prepare"):  # type: ignore[arg-type]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def waited(step: Callable[[], ErrorCode]) -> ErrorCode:
    deadline = time.monotonic() + LIMIT_S
    while (code := step()) in WAIT and time.monotonic() < deadline:
        time.sleep(0.05)
    return code


@pytest.fixture(scope="module")
def broker() -> Iterator[kohort.Broker]:
    with kohort.Broker(config={"offsets.topic.num.partitions": 5, "log.retention.ms": -1}) as running:
        yield running


@pytest.fixture
def both(apache_kafka: ApacheKafka, broker: kohort.Broker) -> Iterator[list[Live]]:
    sides = [Live(apache_kafka.bootstrap_servers), Live(broker.bootstrap_servers)]
    yield sides
    for side in sides:
        side.close()


def make_topic(side: Live, name: str, partitions: int = 2) -> None:
    kind = m.CreateTopicsRequest
    topic = kind.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    assert side.connect().call(kind(topics=[topic], timeout_ms=30_000), 7).topics[0].error_code == 0
    side.ready(1, name)
    side.ready(0, name)


STEPS = ("init", "keep", "send", "send", "other", "offset", "late", "commit", "commit", "abort", "again", "odd epoch")


def run(side: Live, name: str, tv: int, steps: list[str]) -> list[Any]:
    """Each step with its outcome: the code, and who the producer is then."""
    make_topic(side, name)
    producer = TxnProducer(side, name, tv=tv)  # type: ignore[arg-type]
    outcomes: list[Any] = [("init", waited(producer.init).name)]
    before = (producer.id, producer.epoch)
    for number, step in enumerate(steps):
        value = f"{name}-{number}".encode()
        now = (producer.id, producer.epoch)
        if step == "init":
            code = waited(producer.init)
        elif step == "keep":
            code = waited(lambda: producer.init(keep=True))
        elif step in ("send", "other", "late"):
            partition, enlist = int(step == "other"), step != "late"
            code = waited(lambda p=partition, e=enlist, v=value: producer.send(v, name, p, enlist=e))
        elif step == "offset":
            code = waited(lambda n=number: producer.commit_offset(name, n, name))
        elif step in ("again", "odd epoch"):
            producer.id, producer.epoch = before if step == "again" else (producer.id, producer.epoch + 3)
            code = waited(lambda: producer.end(True))
            producer.id, producer.epoch = now if code or tv < 2 else (producer.id, producer.epoch)
        else:
            code = waited(lambda c=step == "commit": producer.end(c))
        if step in ("commit", "abort"):
            before = now
            settled(side, name)
        outcomes.append((step, code.name, side.name_of(producer.id), producer.epoch))
    waited(producer.init)
    outcomes += [read(side, name, p) for p in (0, 1)]  # type: ignore[arg-type]
    row = describe(side, name)  # type: ignore[arg-type]
    outcomes.append((row.transaction_state, row.producer_epoch, fetch_offset(side, name, name).committed_offset))  # type: ignore[arg-type]
    return outcomes


@pytest.mark.parametrize("tv", [0, 2])
@pytest.mark.parametrize(
    "steps",
    [
        ["send", "other", "commit", "send", "abort", "send", "commit"],
        ["send", "offset", "commit", "offset", "abort", "offset", "commit"],
        ["commit", "abort", "send", "commit", "commit", "again", "abort", "again", "abort"],
        ["send", "abort", "again", "abort", "commit", "send", "again", "commit", "again"],
        ["late", "send", "late", "commit", "late", "abort"],
        ["send", "init", "send", "keep", "send", "commit", "keep", "init", "again"],
        ["send", "odd epoch", "commit", "odd epoch", "keep", "send", "abort"],
    ],
    ids=lambda steps: "-".join(steps)[:60],
)
def test_the_same_steps_have_the_same_outcome(both: list[Live], steps: list[str], tv: int) -> None:
    name = f"steps-{tv}-{abs(hash(tuple(steps))) % 10**8}"
    theirs, ours = (run(side, name, tv, steps) for side in both)
    assert ours == theirs


@pytest.mark.parametrize("seed", range(8))
def test_random_steps_have_the_same_outcome(both: list[Live], seed: int) -> None:
    generator = random.Random(seed)
    steps = generator.choices(STEPS, k=25)
    theirs, ours = (run(side, f"random-{seed}", 2 * (seed % 2), steps) for side in both)
    assert ours == theirs


def test_the_log_is_read_by_kafkas_formatter(broker: kohort.Broker, jdk: None) -> None:
    shown = kohort.Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="shown")
    with shown as producer, producer.transaction():
        producer.send("shown", b"a")
    done = run_java(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        "--bootstrap-server", broker.bootstrap_servers, "--topic", "__transaction_state", "--from-beginning",
        "--formatter", "org.apache.kafka.tools.consumer.TransactionLogMessageFormatter", "--timeout-ms", "8000",
        timeout=LIMIT_S,
    )  # fmt: skip
    shape = r'"transactionalId":"shown"\}\},"value":\{"version":1,"data":\{[^}]*?"transactionStatus":(\d)'
    found = re.findall(shape, done.stdout)
    assert found == ["0", "1", "2", "4"], done.stdout  # Empty, Ongoing, PrepareCommit, CompleteCommit


def test_kafkas_copier_writes_every_record_once(broker: kohort.Broker, jdk: None, tmp_path: Path) -> None:
    """The Java client by TV2, with random aborts: read, process, write."""
    count = 300
    broker.create_topic("copy-in", 1)
    broker.create_topic("copy-out", 1)
    with kohort.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for i in range(count):
            producer.send("copy-in", str(i), key=str(i))
    run_java(
        "org.apache.kafka.tools.TransactionalMessageCopier",
        "--transactional-id", "copier", "--broker-list", broker.bootstrap_servers, "--input-topic", "copy-in",
        "--input-partition", "0", "--output-topic", "copy-out", "--max-messages", str(count), "--consumer-group",
        "copiers", "--transaction-size", "20", "--transaction-timeout", "60000", "--enable-random-aborts",
        "--group-mode", "--use-group-metadata",
        timeout=LIMIT_S,
    )  # fmt: skip
    settings = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
    found: list[bytes] = []
    with kohort.Consumer(bootstrap_servers=broker.bootstrap_servers, **settings) as consumer:
        consumer.assign([kohort.TopicPartition("copy-out", 0)])
        while len(found) < count:
            found += [record.value for record in consumer.poll(5)]
    assert sorted(found, key=int) == [str(i).encode() for i in range(count)]
    assert broker.committed("copiers") == {("copy-in", 0): count}
    used = {request.api: request.version for request in broker.requests("EndTxn")}
    assert used["EndTxn"] == 5, "the Java client speaks TV2 where the feature is finalized"


def test_kohorts_producer_speaks_tv2_to_kafka_too(both: list[Live]) -> None:
    for side in both:
        make_topic(side, "own")
        settled(side, "own")
        with kohort.Producer(bootstrap_servers=side.address, transactional_id="own") as producer:
            for end in (producer.commit, producer.abort, producer.commit):
                producer.begin()
                producer.send("own", b"a", partition=0).result(LIMIT_S)
                producer.send_offsets({kohort.TopicPartition("own", 0): 1}, "own-group")
                end()
            producer.begin()
            producer.send("own", b"open", partition=1).result(LIMIT_S)
            with kohort.Admin(bootstrap_servers=side.address) as admin:
                one = admin.describe_transactions(["own"])["own"]
                assert one is not None
                assert (one.state, one.producer_epoch, len(one.partitions)) == ("Ongoing", 3, 1)
                committed = admin.group_offsets("own-group")[kohort.TopicPartition("own", 0)]
                assert committed is not None and committed.offset == 1
            producer.commit()


def test_the_command_line_on_kafka(apache_kafka: ApacheKafka) -> None:
    servers = apache_kafka.bootstrap_servers
    k = CommandLine(servers)
    assert k("topics", "create", "cli-txn", "--partitions", "1").code == 0
    with kohort.Producer(bootstrap_servers=servers, transactional_id="cli-txn") as producer:
        producer.begin()
        producer.send("cli-txn", b"a", partition=0).result(LIMIT_S)
        rows = k("transactions", "list", "--state", "Ongoing", "--match", "cli-txn").rows()
        assert [row[:2] for row in rows] == [["cli-txn", "Ongoing"]]
        (report,) = k("transactions", "describe", "cli-txn", "--json").json()
        assert report["partitions"] == [{"topic": "cli-txn", "partition": 0}] and report["start_ms"] is not None
        found = k("transactions", "list", "--hanging", "--topic", "cli-txn", "--older-than", "0s").out
        assert found.startswith("no transaction hangs")
        place = ("--topic", "cli-txn", "--partition", "0", "--start-offset", "0")
        assert "it does not hang" in k.refused("transactions", "abort", *place, code=1)
        assert k("transactions", "abort", "cli-txn").out.startswith("aborted the transaction of cli-txn in 1 partition")
        with pytest.raises(kohort.ProducerFencedError):
            producer.commit()
    assert "no such transactional id: never-was" in k.refused("transactions", "describe", "never-was", code=1)


def test_kafkas_tool_on_kohort(broker: kohort.Broker, jdk: None) -> None:
    def tool(*arguments: str) -> str:
        where = ("--bootstrap-server", broker.bootstrap_servers)
        return run_java("org.apache.kafka.tools.TransactionsCommand", *where, *arguments, timeout=LIMIT_S).stdout

    broker.create_topic("tool", 1)
    with kohort.Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="tool") as producer:
        producer.begin()
        producer.send("tool", b"a", partition=0).result(LIMIT_S)
        assert re.search(r"^tool\s+\d+\s+\d+\s+Ongoing", tool("list"), re.MULTILINE)
        assert re.search(r"\sOngoing\s.*tool-0", tool("describe", "--transactional-id", "tool"))
        assert re.search(
            r"^\d+\s+0\s.*\s0\s*$", tool("describe-producers", "--topic", "tool", "--partition", "0"), re.M
        )
        tool("abort", "--topic", "tool", "--partition", "0", "--start-offset", "0")
        held = broker._call(
            lambda running: running.core.topics.partition("tool", 0).log.producers.first_unstable_offset
        )
        assert held is None
