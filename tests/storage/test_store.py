"""A data directory: its lock, its identity, its files, and topics that come and go."""

import errno
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from kohort.protocol.uuids import to_base64
from kohort.storage import DataDirInUse, LogConfig, LogStore, MemoryStore, StorageError, disk_store
from kohort.storage import checkpoints as files
from storage_world import batch, open_store, records_of

TOPIC_ID = bytes(range(16))


def put(log, value="v"):
    return log.append(batch([("k", value)]), leader_epoch=0, now_ms=0)


def test_a_directory_serves_one_broker_at_a_time(tmp_path):
    store = open_store(tmp_path)
    with pytest.raises(DataDirInUse, match=rf"in use by another broker \(pid {os.getpid()}\): stop it or choose"):
        LogStore(tmp_path)
    store.close()
    open_store(tmp_path).close()


@pytest.mark.parametrize(
    ("number", "says"),
    [(errno.EMFILE, "limit of open files"), (errno.ENOSPC, "free space"), (errno.EROFS, "for writing")],
)
def test_what_a_disk_refuses_for_is_said_with_what_to_do(tmp_path, monkeypatch, number, says):
    def refuses(*given, **more):
        raise OSError(number, os.strerror(number))

    store = open_store(tmp_path)
    monkeypatch.setattr(files, "write_atomically", refuses)
    with pytest.raises(StorageError, match=says) as raised:
        store.write_file("some.json", b"{}")
    assert os.strerror(number) in str(raised.value)
    monkeypatch.undo()
    store.close()


def test_a_segment_that_cannot_be_opened_for_want_of_descriptors_says_so(tmp_path, monkeypatch):
    def refuses(*given, **more):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with open_store(tmp_path) as store:
        log = store.create("t", 0, TOPIC_ID, LogConfig(), now_ms=0)
        with monkeypatch.context() as patched:
            patched.setattr(os, "open", refuses)
            with pytest.raises(StorageError, match="limit of open files") as raised:
                put(log)
        assert "free space" not in str(raised.value)
        put(log)


def test_another_process_is_named_by_its_pid_and_its_death_frees_the_directory(tmp_path):
    code = (
        "import sys; from storage_world import open_store; s = open_store(sys.argv[1]); print(1, flush=True); input()"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    )
    assert process.stdout.readline() == b"1\n"
    with pytest.raises(DataDirInUse, match=rf"pid {process.pid}\)"):
        LogStore(tmp_path)
    process.kill()
    process.communicate()
    open_store(tmp_path).close()


def test_the_identity_is_kept_and_a_foreign_directory_refused(tmp_path):
    store = open_store(tmp_path, node_id=3)
    cluster_id, directory_id = store.cluster_id, store.directory_id
    store.close()
    meta = files.read_properties(tmp_path / "meta.properties")
    assert meta == {"version": "1", "cluster.id": cluster_id, "node.id": "3", "directory.id": directory_id}
    with pytest.raises(StorageError, match="belongs to node 3"):
        LogStore(tmp_path, node_id=4)
    with pytest.raises(StorageError, match="belongs to cluster"):
        LogStore(tmp_path, node_id=3, cluster_id="other")
    with open_store(tmp_path, node_id=3) as store:
        assert (store.cluster_id, store.directory_id) == (cluster_id, directory_id)


def test_a_path_that_cannot_be_a_directory_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot use the data directory"):
        LogStore(tmp_path / "file")


def test_topics_come_back_with_their_ids_and_records(tmp_path):
    with open_store(tmp_path) as store:
        for topic, partition in (("a-b.c", 0), ("a-b.c", 11), ("other", 0)):
            put(store.create(topic, partition, TOPIC_ID, LogConfig(), now_ms=0), f"{topic} {partition}")
        with pytest.raises(ValueError, match="already"):
            store.create("other", 0, TOPIC_ID, LogConfig(), now_ms=0)
    content = (tmp_path / "a-b.c-11" / "partition.metadata").read_text()
    assert content == f"version: 0\ntopic_id: {to_base64(TOPIC_ID)}"
    with open_store(tmp_path) as store:
        assert store.partitions("a-b.c") == [0, 11]
        assert store.topic_ids == {"a-b.c": TOPIC_ID, "other": TOPIC_ID}
        assert records_of(store.get("a-b.c", 11))[0].value == b"a-b.c 11"


def test_a_deleted_topic_is_gone_for_good_even_if_the_removal_is_cut_short(tmp_path):
    with open_store(tmp_path) as store:
        log = store.create("t" * 249, 0, TOPIC_ID, LogConfig(), now_ms=0)
        put(log)
        held = log.read(0, 1000)
        store.delete("t" * 249, 0)
        assert (store.logs, store.topic_ids) == ({}, {})
        assert len(held[0]) > 61
        put(store.create("t" * 249, 0, bytes(16), LogConfig(), now_ms=0))
    (tmp_path / f"u-0.{'0' * 32}-delete").mkdir()
    with open_store(tmp_path) as store:
        assert list(store.logs) == [("t" * 249, 0)]
        store.committer.drain()
        assert [p.name for p in tmp_path.iterdir() if p.name.endswith("-delete")] == []


def test_partitions_of_a_deleted_topic_are_removed_apart_when_all_are_out_of_the_way(tmp_path):
    with open_store(tmp_path) as store:
        for index in range(5):
            put(store.create("t", index, TOPIC_ID, LogConfig(), now_ms=0))
        for index in range(4):
            store.delete("t", index, last=False)
        store.committer.drain()
        (folder,) = [path for path in tmp_path.iterdir() if path.name.endswith("-delete")]
        assert sorted(path.name for path in folder.iterdir()) == ["0", "1", "2", "3"]
        store.delete("t", 4)
        store.committer.drain()
        assert not folder.exists()


def test_a_stop_leaves_rubbish_to_the_next_start(tmp_path, monkeypatch):
    monkeypatch.setattr(disk_store, "_RUBBISH_S", 0.0)
    store = open_store(tmp_path)
    for index in range(3):
        put(store.create("t", index, TOPIC_ID, LogConfig(), now_ms=0))
    going, go_on = threading.Event(), threading.Event()
    store.committer.defer(lambda: [going.set(), go_on.wait(30)])
    assert going.wait(30)
    for index in range(3):
        store.delete("t", index, last=index == 2)
    closing = threading.Thread(target=store.close)
    closing.start()
    while store._leave_rubbish_at is None:
        time.sleep(0.001)
    go_on.set()
    closing.join()
    (folder,) = [path for path in tmp_path.iterdir() if path.name.endswith("-delete")]
    assert len(list(folder.iterdir())) == 3
    with open_store(tmp_path) as store:
        assert store.was_clean and store.logs == {}
        store.committer.drain()
        assert not folder.exists()


def test_deleted_records_stay_deleted_after_a_kill(tmp_path):
    store = open_store(tmp_path)
    log = store.create("t", 0, TOPIC_ID, LogConfig(), now_ms=0)
    for _ in range(5):
        put(log)
    log.delete_records_before(3)
    store.abandon()
    assert files.read_offsets(tmp_path / "log-start-offset-checkpoint") == {("t", 0): 3}
    with open_store(tmp_path) as store:
        assert store.get("t", 0).start_offset == 3
        store.get("t", 0).delete_records_before(5)
    with open_store(tmp_path) as store:
        assert (store.get("t", 0).start_offset, put(store.get("t", 0)).base_offset) == (5, 5)


def test_recovery_starts_at_the_recovery_point(tmp_path, monkeypatch):
    config = LogConfig(segment_bytes=300)
    store = open_store(tmp_path, config)
    log = store.create("t", 0, TOPIC_ID, config, now_ms=0)
    for _ in range(20):
        put(log, "v" * 50)
    log.flush()
    store.checkpoint()
    store.abandon()
    from kohort.storage import recovery

    scanned = []
    original = recovery._recover_segment
    monkeypatch.setattr(
        recovery, "_recover_segment", lambda log, s, limit: (scanned.append(s), original(log, s, limit))[1]
    )
    with open_store(tmp_path, config) as store:
        assert len(scanned) == 1
        assert len(store.get("t", 0).segments) > 3
        assert len(records_of(store.get("t", 0))) == 20


def test_empty_partitions_cost_a_directory_and_no_descriptors(tmp_path):
    with open_store(tmp_path) as store:
        for partition in range(50):
            store.create("__consumer_offsets", partition, TOPIC_ID, LogConfig(), now_ms=0)
        assert len(store.handles) == 0
        assert [p.name for p in (tmp_path / "__consumer_offsets-49").iterdir()] == ["partition.metadata"]
    with open_store(tmp_path) as store:
        assert len(store.partitions("__consumer_offsets")) == 50
        assert len(store.handles) == 0


def test_maintain_writes_checkpoints_and_compactions_are_offered(tmp_path):
    config = LogConfig(segment_bytes=200, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0)
    with open_store(tmp_path, config) as store:
        log = store.create("t", 0, TOPIC_ID, config, now_ms=0)
        for _ in range(10):
            put(log, "v" * 50)
        log.flush()
        for now_ms in (0, 60_000):
            store.maintain(now_ms)
        assert files.read_offsets(tmp_path / "recovery-point-offset-checkpoint") == {("t", 0): 10}
        for each, compaction in store.compactions(now_ms=0):
            compaction.run()
            each.finish_compaction(compaction)
        assert len(records_of(log)) < 10
        first_dirty = log.first_dirty_offset
        assert first_dirty == log.active.base_offset
    with open_store(tmp_path, config) as store:
        assert store.get("t", 0).first_dirty_offset == first_dirty
        assert list(store.compactions(now_ms=0)) == []


@pytest.mark.parametrize("kind", ["local", "memory"])
def test_small_files_of_the_broker_are_kept(tmp_path, kind):
    store = open_store(tmp_path) if kind == "local" else MemoryStore()
    assert store.read_file("topics.json") is None
    store.write_file("topics.json", b"{}")
    store.write_file("topics.json", b"[]")
    assert store.read_file("topics.json") == b"[]"
    store.close()


def test_a_memory_store_outlives_a_crash_of_its_broker():
    store = MemoryStore()
    log = store.create("t", 0, TOPIC_ID, LogConfig(), now_ms=0)
    put(log)
    store.crash(lose_unflushed=False)
    assert log.end_offset == 1
    store.crash()
    assert log.end_offset == 0
    store.delete("t", 0)
    assert (store.get("t", 0), store.topic_ids) == (None, {})


def test_damaged_checkpoints_count_as_absent(tmp_path):
    path = tmp_path / "checkpoint"
    for text in ("", "0\n2\nt 0 5\n", "1\n1\nt 0 5\n", "0\n1\nt 0\n", "0\n1\nt x 5\n", "junk"):
        path.write_text(text)
        assert files.read_offsets(path) == {}
    assert files.read_epochs(tmp_path / "none") == []
