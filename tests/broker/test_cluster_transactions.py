"""Transactions over several brokers: coordinators and leaders die, stand still, move; nothing is seen by half."""

import contextlib
import random
import socket
import threading
import time

import pytest

import kohort
from kohort.broker.peers import Peers
from kohort.client import KafkaError, ProducerFencedError, TopicPartition
from kohort.cluster import loading
from kohort.cluster.snapshots import Damaged
from kohort.coordinator.records import partition_for
from kohort.coordinator.shard import Life
from kohort.coordinator.transactions.records import TRANSACTIONS_TOPIC
from kohort.protocol import messages
from kohort.protocol.apis import ApiKey
from kohort.protocol.errors import ErrorCode
from kohort.protocol.frames import FrameSplitter, decode_response, encode_request
from kohort.protocol.uuids import to_base64
from transactional import TxnProducer

LIMIT_S = 60
NONE = ErrorCode.NONE
BOTH = pytest.mark.parametrize("tv", [0, 2])
AGAIN = {
    ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}  # fmt: skip
PARTITIONS = 5
CONFIG = {"transaction.state.log.num.partitions": 6, "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200}


@pytest.fixture
def cluster():
    with kohort.Cluster(3, CONFIG) as cluster:
        cluster.create_topic("t", PARTITIONS)
        cluster.move("t", 0, 1)
        cluster.move("t", 1, 2)
        yield cluster


def txn_partition(transactional_id="tx"):
    return partition_for(transactional_id, CONFIG["transaction.state.log.num.partitions"])


def txn_coordinator(cluster, transactional_id="tx"):
    return cluster.leader_of(TRANSACTIONS_TOPIC, txn_partition(transactional_id))


class Wire:
    """Each request to the broker whose business it is, on a connection of its own."""

    now_ms = 0

    def __init__(self, cluster, transactional_id="tx", group="g"):
        self.cluster = cluster
        self.transactional_id = transactional_id
        self.group = group

    def connect(self):
        return self

    def advance(self, seconds):
        pass

    def call(self, request, version):
        return call(self.cluster.brokers[self._where(request)], request, version)

    def _where(self, request):
        cluster = self.cluster
        if isinstance(request, messages.ProduceRequest):
            topic = request.topic_data[0]
            return cluster.leader_of(topic.name, topic.partition_data[0].index)
        if isinstance(request, messages.TxnOffsetCommitRequest):
            return cluster.coordinator_of(self.group)
        if isinstance(request, messages.FindCoordinatorRequest):
            return cluster._awake()[0].node_id
        return txn_coordinator(cluster, self.transactional_id)


def call(broker, request, version):
    host, port = broker.bootstrap_servers.split(":")
    with socket.create_connection((host, int(port)), LIMIT_S) as connection:
        connection.sendall(b"".join(encode_request(1, "test", version, request)))
        frames = FrameSplitter()
        while True:
            data = connection.recv(65536)
            assert data, f"{type(request).__name__}: the connection was closed"
            for frame in frames.feed(data):
                return decode_response(frame, version, ApiKey(request.API_KEY).response)


def until_done(step, *args, **options):
    """As clients do it: again where the error says so."""
    deadline = time.monotonic() + LIMIT_S
    while (code := step(*args, **options)) in AGAIN:
        assert time.monotonic() < deadline, code.name
        time.sleep(0.02)
    return code


def begun(cluster, tv, **options):
    producer = TxnProducer(Wire(cluster, options.get("transactional_id", "tx")), tv=tv, **options)
    producer.world.now_ms = int(time.time() * 1000)
    until_found(cluster)
    assert until_done(producer.init) is NONE
    return producer


def until_found(cluster, key="tx", key_type=1):
    deadline = time.monotonic() + LIMIT_S
    request = messages.FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
    while call(cluster._awake()[0], request, 4).coordinators[0].error_code:
        assert time.monotonic() < deadline, "no coordinator"
        time.sleep(0.02)


def read(cluster, topic="t", isolation="read_committed"):
    """All there is for such a consumer, up to the end that it is told of."""
    partitions = [TopicPartition(topic, n) for n in range(PARTITIONS)]
    settings = {"isolation_level": isolation, "auto_offset_reset": "earliest"}
    with kohort.Consumer(bootstrap_servers=cluster.bootstrap_servers, **settings) as consumer:
        ends = consumer.end_offsets(partitions)
        consumer.assign(partitions)
        found, deadline = [], time.monotonic() + LIMIT_S
        while any(consumer.position(tp) < ends[tp] for tp in partitions):
            assert time.monotonic() < deadline
            found += [record.value.decode() for record in consumer.poll(0.5)]
        return sorted(found)


def until_read(cluster, expected, topic="t"):
    deadline = time.monotonic() + LIMIT_S
    while (found := read(cluster, topic)) != expected:
        assert time.monotonic() < deadline, (found, expected)
        time.sleep(0.05)


def write_everywhere(producer, prefix):
    values = [f"{prefix}{n}" for n in range(PARTITIONS)]
    for n, value in enumerate(values):
        assert until_done(producer.send, value.encode(), "t", n) is NONE
    return values


def hold_markers(cluster, monkeypatch):
    """What any broker wants to tell another of the end of a transaction does not leave, until the switch is off."""
    held = {"on": True}
    real = Peers.ask

    def ask(peers, node_id, request, version, asker, now_ms):
        if held["on"] and isinstance(request, messages.WriteTxnMarkersRequest):
            asker.heard(None, now_ms)
        else:
            real(peers, node_id, request, version, asker, now_ms)

    monkeypatch.setattr(Peers, "ask", ask)
    return held


@BOTH
def test_what_is_written_to_several_brokers_is_seen_whole_or_not_at_all(cluster, tv):
    producer = begun(cluster, tv)
    values = write_everywhere(producer, "a")
    assert read(cluster) == [] and read(cluster, isolation="read_uncommitted") == values
    assert until_done(producer.end) is NONE
    until_read(cluster, values)
    write_everywhere(producer, "b")
    assert until_done(producer.end, commit=False) is NONE
    assert until_done(producer.send, b"c", "t", 3) is NONE
    assert until_done(producer.end) is NONE
    until_read(cluster, [*values, "c"])


@BOTH
def test_offsets_count_when_the_transaction_is_committed_wherever_the_group_is(cluster, tv):
    groups = [f"g{n}" for n in range(8)]
    for group in groups:
        until_found(cluster, group, 0)
    assert len({cluster.coordinator_of(group) for group in groups}) == 3
    producer = begun(cluster, tv)
    for commit, offset in ((True, 5), (False, 9)):
        for group in groups:
            producer.world.group = group
            assert until_done(producer.commit_offset, group, offset) is NONE
        assert until_done(producer.end, commit=commit) is NONE
        deadline = time.monotonic() + LIMIT_S
        while any(cluster.committed(group) != {("t", 0): 5} for group in groups):
            assert time.monotonic() < deadline, [cluster.committed(group) for group in groups]
            time.sleep(0.02)


def test_offsets_before_there_was_any_group(cluster):
    producer = begun(cluster, 0)
    assert until_done(producer.commit_offset, "g", 3) is NONE
    assert until_done(producer.end) is NONE
    deadline = time.monotonic() + LIMIT_S
    while cluster.committed("g") != {("t", 0): 3}:
        assert time.monotonic() < deadline
        time.sleep(0.02)


@BOTH
@pytest.mark.parametrize("commit", [True, False])
def test_the_coordinator_is_killed_between_the_end_and_its_markers(cluster, tv, commit, monkeypatch):
    producer = begun(cluster, tv)
    values = write_everywhere(producer, "a")
    held = hold_markers(cluster, monkeypatch)
    assert until_done(producer.end, commit=commit) is NONE
    assert read(cluster) != values
    cluster.kill(txn_coordinator(cluster))
    held["on"] = False
    until_read(cluster, values if commit else [])
    assert until_done(producer.init) is NONE
    assert until_done(producer.send, b"b", "t", 0) is NONE
    assert until_done(producer.end) is NONE
    until_read(cluster, [*values, "b"] if commit else ["b"])


@BOTH
def test_a_leader_is_killed_before_its_marker_and_gets_it_after_all(cluster, tv, monkeypatch):
    producer = begun(cluster, tv)
    values = write_everywhere(producer, "a")
    coordinator = txn_coordinator(cluster)
    leader = next(node for node in cluster.brokers if node != coordinator)
    cluster.kill(leader)
    assert until_done(producer.end) is NONE
    until_read(cluster, values)
    assert until_done(producer.init) is NONE


def test_a_coordinator_that_stood_still_ends_nothing_after_another_has_taken_over(cluster, monkeypatch):
    """It wakes up with markers in its hands; the partition knows the epoch of the coordinator after it."""
    producer = begun(cluster, 0)
    write_everywhere(producer, "a")
    old = txn_coordinator(cluster)
    held = hold_markers(cluster, monkeypatch)
    assert until_done(producer.end, commit=False) is NONE
    cluster.pause(old)
    held["on"] = False
    assert txn_coordinator(cluster) != old
    assert until_done(producer.init) is NONE
    values = write_everywhere(producer, "b")
    cluster.resume(old)
    time.sleep(0.5)
    assert read(cluster) == []
    assert until_done(producer.end) is NONE
    until_read(cluster, values)


@BOTH
def test_the_next_producer_fences_the_one_before_on_every_broker(cluster, tv):
    zombie = begun(cluster, tv)
    write_everywhere(zombie, "zombie")
    producer = begun(cluster, tv)
    for n in range(PARTITIONS):
        assert zombie.send(b"late", "t", n) in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
    assert zombie.end() is ErrorCode.PRODUCER_FENCED
    values = write_everywhere(producer, "b")
    assert until_done(producer.end) is NONE
    until_read(cluster, values)


@BOTH
def test_a_transaction_of_a_lost_producer_is_aborted_on_all_brokers(cluster, tv):
    lost = begun(cluster, tv, timeout_ms=1_000)
    write_everywhere(lost, "lost")
    other = begun(cluster, tv, transactional_id="other")
    values = write_everywhere(other, "b")
    assert until_done(other.end) is NONE
    until_read(cluster, values)


def test_records_of_a_partition_that_was_not_added_are_refused_by_its_leader(cluster):
    producer = begun(cluster, 0)
    elsewhere = next(n for n in range(PARTITIONS) if cluster.leader_of("t", n) != txn_coordinator(cluster))
    assert until_done(producer.send, b"a", "t", (elsewhere + 1) % PARTITIONS) is NONE
    assert producer.send(b"b", "t", elsewhere, enlist=False) is ErrorCode.TRANSACTION_ABORTABLE


def test_a_topic_that_is_deleted_holds_up_no_transaction(cluster):
    cluster.create_topic("gone", 3)
    producer = begun(cluster, 2)
    for n in range(3):
        assert until_done(producer.send, b"a", "gone", n) is NONE
    assert until_done(producer.send, b"a", "t", 1) is NONE
    with kohort.Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.delete_topics(["gone"])
    assert until_done(producer.end) is NONE
    until_read(cluster, ["a"])
    assert until_done(producer.init) is NONE


def test_kohorts_own_producer_over_a_coordinator_that_dies(cluster):
    settings = {"bootstrap_servers": cluster.bootstrap_servers}
    with kohort.Producer(**settings, transactional_id="tx") as producer:
        with producer.transaction():
            for n in range(PARTITIONS):
                producer.send("t", f"a{n}", partition=n)
        cluster.kill(txn_coordinator(cluster))
        with producer.transaction():
            for n in range(PARTITIONS):
                producer.send("t", f"b{n}", partition=n)
        with kohort.Producer(**settings, transactional_id="tx") as successor:
            successor.begin()
            with pytest.raises(ProducerFencedError), producer.transaction():
                producer.send("t", "late", partition=0)
            successor.abort()
    until_read(cluster, sorted(f"{x}{n}" for x in "ab" for n in range(PARTITIONS)))


class Copier(threading.Thread):
    """Every record of `t` to `out`, in a transaction with its offset; begins anew at any trouble."""

    def __init__(self, address, name):
        super().__init__(daemon=True)
        self.done = threading.Event()
        self._id = name
        self._address = {"bootstrap_servers": address}

    def run(self):
        while not self.done.is_set():
            with contextlib.suppress(KafkaError):
                self._copy()

    def _copy(self):
        reading = {"group_id": "eos", "auto_offset_reset": "earliest", "enable_auto_commit": False,
                   "max_poll_records": 7, "session_timeout_ms": 6_000, "isolation_level": "read_committed"}  # fmt: skip
        with (
            kohort.Producer(**self._address, transactional_id=self._id) as producer,
            kohort.Consumer(**self._address, **reading) as consumer,
        ):
            producer.begin()
            producer.abort()  # the transaction of whoever had the id before is over from here on
            consumer.subscribe("t")
            while not self.done.is_set():
                records = consumer.poll(0.2)
                if not records:
                    continue
                with producer.transaction():
                    for record in records:
                        producer.send("out", record.value, partition=record.partition)
                    ends = {TopicPartition(r.topic, r.partition): r.offset + 1 for r in records}
                    producer.send_offsets(ends, consumer.group_metadata())


@pytest.mark.timeout(180)
def test_every_input_is_in_the_output_once_though_brokers_die(cluster):
    generator, count = random.Random(7), 400
    cluster.create_topic("out", PARTITIONS)
    with kohort.Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for n in range(count):
            producer.send("t", f"{n:03}", partition=n % PARTITIONS)
    copiers = [Copier(cluster.bootstrap_servers, f"copier-{n}") for n in range(2)]
    for copier in copiers:
        copier.start()
    try:
        victims = [generator.choice([1, 2, 3]) for _ in range(2)]
        for victim in [txn_coordinator(cluster, "copier-0"), *victims]:
            cluster.kill(victim)
            time.sleep(generator.uniform(0.5, 2.5))
            cluster.start(victim)
        deadline = time.monotonic() + 120
        while len(found := read(cluster, "out")) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count}"
            time.sleep(0.2)
    finally:
        for copier in copiers:
            copier.done.set()
        for copier in copiers:
            copier.join(LIMIT_S)
    assert read(cluster, "out") == [f"{n:03}" for n in range(count)]


# ---- damage


def damaged(monkeypatch, place):
    """Whoever is to lead that partition cannot read it, until what this returns is set."""
    mended, load = threading.Event(), loading.load

    def read_or_not(engine, wanted, nonce):
        error = Damaged("manifest is damaged: restore it from a copy of the store")
        found = zip(wanted, load(engine, wanted, nonce), strict=True)
        hidden = set() if mended.is_set() else {place}
        return [error if (one.topic_id, one.partition) in hidden else loaded for one, loaded in found]

    monkeypatch.setattr(loading, "load", read_or_not)
    return mended


def test_a_partition_that_is_damaged_in_the_store_is_not_served_and_the_others_are(cluster, monkeypatch):
    """Of a broker that dies: of its partitions one cannot be taken over until the store is mended."""
    begun(cluster, 2)
    dead = txn_coordinator(cluster)
    ids = [f"id-{n}" for n in range(100)]
    beside = [name for name in ids if txn_partition(name) != txn_partition()][:8]
    was = begun(cluster, 2, transactional_id=next(name for name in ids if txn_partition(name) == txn_partition()))
    mended = damaged(monkeypatch, _place(cluster))
    cluster.kill(dead)
    until(lambda: any(shard.life is Life.FAILED for _, shard in _shards(cluster)))
    ((heir, shard),) = _shards(cluster)
    assert "restore it" in shard.failure
    for name in beside:
        begun(cluster, 2, transactional_id=name)
    request = messages.InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000)
    assert call(heir, request, 5).error_code == ErrorCode.NOT_COORDINATOR
    mended.set()
    again = begun(cluster, 2, transactional_id=was.transactional_id)
    assert (again.id, again.epoch) == (was.id, was.epoch + 1)


def until(done):
    deadline = time.monotonic() + LIMIT_S
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _place(cluster):
    topic = cluster._awake()[0]._call(lambda running: running.core.topics.by_name[TRANSACTIONS_TOPIC])
    return to_base64(topic.topic_id), txn_partition()


def _shards(cluster):
    """Of the damaged partition, at whoever is to serve it."""
    return [
        (broker, shards[txn_partition()])
        for broker in cluster._awake()
        if txn_partition() in (shards := broker._call(lambda running: _transactions(running).runtime.shards))
    ]


def _transactions(running):
    return running.core.service("transactions").coordinator
