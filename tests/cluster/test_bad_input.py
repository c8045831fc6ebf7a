"""What may be wrong with the store of a cluster, a test each: one sentence that says what to do, and nothing is lost.

Elsewhere: a store that is not atomic (test_engines.py), what each mistake with a bucket is answered with
(test_store_advice.py), a slot of a journal that is gone (test_world.py), a damaged segment
(broker/test_cluster_memory.py), brokers that are processes (broker/test_cluster_processes.py).
"""

import errno
import os
import re

import pytest

import kohort
from kohort.broker.cluster_boot import START_ERRORS, ClusterPlace
from kohort.cluster import journal, meta_log, names
from kohort.cluster.directory_engine import DirectoryEngine
from kohort.cluster.engine import EngineError
from kohort.cluster.memory_engine import Mishap
from kohort.cluster.snapshots import Damaged, encode_state
from kohort.cluster.store_advice import advice


def refusal(engine_or_url):
    """What a broker says that cannot start there."""
    try:
        place = ClusterPlace.at(engine_or_url) if isinstance(engine_or_url, str) else ClusterPlace(engine_or_url)
        place._open()
    except START_ERRORS as error:
        return str(error)
    return None


@pytest.fixture
def store(tmp_path):
    """A directory with a cluster whose meta log has some entries."""
    engine = DirectoryEngine(tmp_path)
    meta_log.found_cluster(engine, "a-cluster", "nonce")
    for version in range(1, 6):
        assert meta_log.propose(engine, version, [], f"nonce {version}")
    return engine


def test_wrong_credentials():
    said = advice("s3://bucket/prefix", "403 Forbidden: SignatureDoesNotMatch")
    assert said.startswith("the store refuses these credentials: check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")


def test_an_unreachable_bucket(monkeypatch):
    pytest.importorskip("obstore")
    for name, value in {"ENDPOINT": "http://127.0.0.1:9", "ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    assert "the store cannot be reached: check AWS_REGION, and AWS_ENDPOINT where it is not Amazon's" in refusal(
        "s3://bucket/prefix"
    )


def test_a_directory_without_permission():
    said = refusal("file:///proc/kohort")
    assert said.startswith("the directory /proc/kohort cannot be used") and "make it writable for this user" in said


def test_two_brokers_with_one_node_id(caplog):
    with kohort.Cluster(1) as cluster:
        again = kohort.Cluster(1)
        again.brokers[1]._objects = cluster.store
        try:
            again.start(1)
            cluster._until(lambda: _stopped(cluster.brokers[1]), "the older one goes on")
        finally:
            again.close()
    assert re.search(
        r"another broker has registered with node.id 1, at .*: this one stops; give every broker an id of its own",
        caplog.text,
    )


def _stopped(broker):
    return broker._call(lambda running: running.core.membership.why_stopped)


def test_a_cluster_of_another_format(tmp_path):
    (tmp_path / "meta").mkdir()
    (tmp_path / names.meta(0)).write_text('{"format": 99, "changes": []}')
    assert refusal(f"file://{tmp_path}").endswith("use the version that wrote it")


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENOSPC, "make room there, and the brokers go on by themselves"),
        (errno.EDQUOT, "make room there, and the brokers go on by themselves"),
        (errno.EACCES, "give this user the right to read, write and delete there"),
        (errno.EROFS, "mount it writable"),
    ],
)
def test_a_full_store(store, monkeypatch, number, said):
    """Or one that became read-only meanwhile. Nothing is left of the attempt."""

    def create(aside, path, folder, data):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(store, "_create", create)
    with pytest.raises(EngineError, match=f"cannot write meta/1 in .*: {os.strerror(number)}; {said}"):
        store.create("meta/1", b"")
    monkeypatch.undo()
    store.create("meta/1", b"")


def test_a_full_bucket():
    said = advice("s3://bucket/prefix", "507 Insufficient Storage: XMinioStorageFull")
    assert said == "the bucket is full, or its quota is used up: make room in it, and the brokers go on by themselves"


def test_a_full_store_acknowledges_nothing_and_goes_on_when_there_is_room(caplog):
    with kohort.Cluster(1, {"broker.session.timeout.ms": 60_000}) as cluster:
        cluster.create_topic("orders")
        engine = cluster.brokers[1].engine
        engine.chance = lambda verb, name: Mishap.REFUSED if verb == "create" else Mishap.NONE
        with kohort.Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            delivery = producer.send("orders", b"1", partition=0)
            cluster._until(lambda: "cannot be written" in caplog.text or None, "it says nothing")
            assert not delivery.done()
            engine.chance = lambda verb, name: Mishap.NONE
            assert delivery.result().offset == 0
        assert [record.value for record in cluster.records("orders", 0)] == [b"1"]


def test_a_change_set_deleted_by_hand(store):
    """Who went on from before the gap would decide anew what was decided."""
    store.delete(names.meta(3))
    said = refusal(f"file://{store.root}")
    assert said == (
        f"{names.meta(3)} is gone from {store.root}, and {names.meta(4)} is there: restore it from a copy of the store "
        "before a broker can start; those that run go on"
    )
    with pytest.raises(Damaged, match="restore it from a copy"):
        meta_log.propose(store, 3, [], "away for long", begins=True)
    assert names.meta(3) not in store.list("meta/")


def test_a_first_change_set_deleted_by_hand(store):
    store.delete(names.meta(0))
    assert refusal(f"file://{store.root}").startswith(f"{names.meta(0)} is gone from")


def test_a_change_set_damaged_by_hand(store):
    (store.root / names.meta(2)).write_bytes(b"\0" * 10)
    assert refusal(f"file://{store.root}") == (
        f"{names.meta(2)} is damaged: restore it from a copy of the store; nothing else is lost"
    )


def test_a_snapshot_deleted_or_damaged_by_hand(store):
    state = meta_log.load(store)
    meta_log.keep_snapshot(store, state.version, encode_state(state))
    (store.root / names.snapshot(state.version)).write_bytes(b"not JSON")
    assert refusal(f"file://{store.root}") == (
        f"{names.snapshot(state.version)} is damaged: delete it, the meta log has all that it says"
    )
    store.delete(names.snapshot(state.version))
    assert refusal(f"file://{store.root}") is None


def test_a_slot_of_a_journal_damaged_by_hand():
    data = bytearray(journal.encode(3, "owner"))
    data[-1] ^= 1
    with pytest.raises(Damaged, match="is damaged: restore it from a copy of the store before its partitions can be"):
        journal.decode(names.slot("1.1", 3), bytes(data))


def test_a_store_that_cannot_be_reached_is_told_of_and_the_broker_comes_back_by_itself(caplog):
    with kohort.Cluster(1, {"broker.session.timeout.ms": 300, "broker.heartbeat.interval.ms": 50}) as cluster:
        cluster.create_topic("orders")
        cluster.partition(1)
        cluster._until(lambda: "has lost its place in the cluster" in caplog.text or None, "it says nothing")
        assert "no sign of life could be stored for" in caplog.text
        cluster.heal(1)
        assert cluster.leader_of("orders", 0) == 1
