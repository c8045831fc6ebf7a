"""One log: placing batches, rolling, finding, retention, durability, faults. Both kinds unless it is about files."""

import errno
import itertools
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.protocol.errors import ErrorCode
from kohort.records.batch import check_crc, iter_batches, read_header
from kohort.records.control import ControlType, build_marker
from kohort.storage import LogConfig, MemoryLog, StorageError
from kohort.storage.committer import Committer
from kohort.storage.index import OffsetIndex, TimeIndex
from storage_world import batch, open_store, records_of


@pytest.fixture(params=["local", "memory"])
def make_log(request, tmp_path):
    stores = []

    def make(**config):
        config = LogConfig(**config)
        if request.param == "memory":
            return MemoryLog("t", 0, config)
        stores.append(open_store(tmp_path / str(len(stores)), config))
        return stores[-1].create("t", 0, b"t" * 16, config, now_ms=0)

    yield make
    for store in stores:
        store.close()


def put(log, *values, timestamp=1000, epoch=0, now_ms=0, **header):
    pairs = [("k", value) for value in values]
    return log.append(batch(pairs, timestamp=timestamp, **header), leader_epoch=epoch, now_ms=now_ms)


def test_append_places_batches_without_touching_what_the_producer_sent(make_log):
    log = make_log()
    sent = batch([("k", "1"), ("k", "2")]) + batch([("k", "3")])
    before = bytes(sent)
    assert log.append(sent, leader_epoch=4, now_ms=0) == (0, 2, -1, 0)
    assert log.append(memoryview(sent), leader_epoch=4, now_ms=0).base_offset == 3
    assert sent == before
    data = b"".join(log.read(0, 10_000))
    placed = list(iter_batches(data))
    assert [(h.base_offset, h.last_offset, h.partition_leader_epoch) for _, h in placed] == [
        (0, 1, 4), (2, 2, 4), (3, 4, 4), (5, 5, 4),
    ]  # fmt: skip
    assert all(check_crc(data, pos, header) for pos, header in placed)
    assert [r.value for r in records_of(log)] == [b"1", b"2", b"3"] * 2


def test_log_append_time_is_stamped_on_every_batch(make_log):
    log = make_log(message_timestamp_type="LogAppendTime")
    assert put(log, "v", timestamp=5, now_ms=777).log_append_time_ms == 777
    data = b"".join(log.read(0, 1000))
    assert records_of(log)[0].timestamp == 777
    assert check_crc(data, 0, read_header(data))


def test_reads_return_whole_batches_within_the_limits(make_log):
    log = make_log(index_interval_bytes=100)
    size = len(batch([("k", "v" * 50)]))
    for _ in range(20):
        put(log, "v" * 50)

    def offsets(*args, **limits):
        return [h.base_offset for view in log.read(*args, **limits) for _, h in iter_batches(view)]

    assert offsets(3, size * 4 + 5) == [3, 4, 5, 6]
    assert offsets(3, 1) == [3]
    assert offsets(3, 1, at_least_one=False) == []
    assert offsets(3, 10**6, max_offset=6) == [3, 4, 5]
    assert offsets(3, 10**6, max_offset=3) == []
    assert offsets(19, 10**6) == [19]
    assert offsets(20, 10**6) == []


def test_a_read_goes_on_into_the_next_segments(make_log):
    log = make_log(segment_bytes=200)
    for i in range(10):
        put(log, f"{i}" * 60)
    assert len(log.segments) > 3
    assert len(b"".join(log.read(0, 10**6))) == log.size_bytes


@pytest.mark.parametrize(
    ("config", "timestamps", "bases"),
    [
        (dict(segment_bytes=200), [0, 0, 0, 0], [0, 2]),
        (dict(segment_ms=100), [1000, 1100, 1101, 1150], [0, 2]),
        (dict(segment_ms=10**9, max_compaction_lag_ms=50, cleanup_policy=("compact",)), [0, 51, 60], [0, 1]),
        (dict(segment_index_bytes=16, index_interval_bytes=0), [0, 0, 0, 0], None),
    ],
)
def test_segments_roll_by_size_by_age_and_with_a_full_index(make_log, config, timestamps, bases):
    log = make_log(**config)
    for timestamp in timestamps:
        put(log, "v" * 20, timestamp=timestamp)
    if bases is not None:
        assert [segment.base_offset for segment in log.segments] == bases
    assert [record.offset for record in records_of(log)] == list(range(len(timestamps)))


def test_jitter_makes_segments_roll_earlier_each_at_its_own_time(make_log):
    log = make_log(segment_ms=1000, segment_jitter_ms=900)
    rolled_at = []
    for timestamp in range(0, 20_000, 10):
        before = len(log.segments)
        put(log, "v", timestamp=timestamp)
        if len(log.segments) > before:
            rolled_at.append(timestamp)
    ages = [later - earlier for earlier, later in itertools.pairwise(rolled_at)]
    assert all(100 < age <= 1010 for age in ages) and len(set(ages)) > len(ages) / 2


def test_epochs_answer_where_they_ended(make_log):
    log = make_log()
    for epoch in (2, 2, 5, 7):
        put(log, "v", epoch=epoch)
    assert log.leader_epoch == 7
    answers = {epoch: log.end_offset_for_epoch(epoch) for epoch in (-1, 0, 2, 3, 5, 6, 7, 8)}
    assert answers == {
        -1: (-1, -1), 0: (0, 0), 2: (2, 2), 3: (2, 2), 5: (5, 3), 6: (5, 3), 7: (7, 4), 8: (-1, -1),
    }  # fmt: skip
    log.delete_records_before(3)
    assert log.end_offset_for_epoch(2) == (2, 3)
    assert [log.epoch_for_offset(offset) for offset in (2, 3)] == [-1, 7]


def test_timestamps_are_found_to_the_record(make_log):
    log = make_log(segment_bytes=300, index_interval_bytes=0)
    for timestamp in (1000, 2000, 1500, 3000, 2500):
        put(log, "a" * 30, "b" * 30, "c" * 30, timestamp=timestamp)
    assert log.offset_for_timestamp(0) == (0, 1000, 0)
    assert log.offset_for_timestamp(1001) == (1, 1001, 0)
    assert log.offset_for_timestamp(1003) == (3, 2000, 0)
    assert log.offset_for_timestamp(2003) == (9, 3000, 0)
    assert log.offset_for_timestamp(3003) is None
    assert log.max_timestamp() == (11, 3002, 0)
    log.delete_records_before(4)
    assert log.offset_for_timestamp(0) == (4, 2001, 0)


def test_an_empty_log_has_no_timestamps_and_no_batches(make_log):
    log = make_log()
    assert (log.max_timestamp(), log.offset_for_timestamp(0), log.read(0, 100), log.size_bytes) == (None, None, [], 0)


def test_retention_by_size_deletes_whole_segments_from_the_front(make_log):
    log = make_log(segment_bytes=200, retention_bytes=500)
    for _ in range(12):
        put(log, "v" * 20)
    before = log.size_bytes
    deleted = log.enforce_retention(now_ms=0)
    assert deleted > 0
    assert 500 <= log.size_bytes < before
    assert log.start_offset == log.segments[0].base_offset == records_of(log)[0].offset


def test_retention_by_time_may_empty_the_log_but_never_loses_its_end(make_log):
    log = make_log(segment_bytes=200, retention_ms=1000)
    for i in range(6):
        put(log, "v" * 20, timestamp=1000 * i)
    log.enforce_retention(now_ms=3500)
    assert (log.start_offset, log.end_offset) == (2, 6)
    log.enforce_retention(now_ms=100_000)
    assert (log.start_offset, log.end_offset, log.size_bytes) == (6, 6, 0)
    assert put(log, "v", timestamp=100_000).base_offset == 6


def test_a_compacted_topic_keeps_what_is_old_unless_it_is_to_be_deleted_too(make_log):
    kept, gone = (
        make_log(segment_bytes=200, retention_ms=1000, cleanup_policy=p) for p in (("compact",), ("compact", "delete"))
    )
    for log in (kept, gone):
        for _ in range(6):
            put(log, "v" * 20)
        log.enforce_retention(now_ms=100_000)
    assert (kept.start_offset, gone.start_offset) == (0, 6)


def test_delete_records_moves_the_start_and_frees_segments_later(make_log):
    log = make_log(segment_bytes=200)
    for _ in range(6):
        put(log, "v" * 20)
    assert log.delete_records_before(5) == 5
    assert log.delete_records_before(2) == 5
    assert [record.offset for record in records_of(log)] == [5]
    assert log.enforce_retention(now_ms=0) == 2
    assert log.segments[0].base_offset == 4
    with pytest.raises(Exception, match="OFFSET_OUT_OF_RANGE"):
        log.delete_records_before(7)


def transaction(log, producer_id, sequence):
    return put(log, "v", producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True)


def finish(log, producer_id, kind):
    data = build_marker(kind, timestamp=0, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0)
    return log.append(data, leader_epoch=0, now_ms=0)


def test_the_last_stable_offset_waits_for_the_oldest_open_transaction(make_log):
    log = make_log()
    put(log, "v")
    transaction(log, 1, 0)
    transaction(log, 2, 0)
    put(log, "v")
    assert log.last_stable_offset == 1
    finish(log, 1, ControlType.ABORT)
    assert log.last_stable_offset == 2
    finish(log, 2, ControlType.COMMIT)
    assert log.last_stable_offset == log.end_offset == 6
    assert log.aborted_transactions(0, 6) == [(1, 1, 4, 2)]
    assert log.aborted_transactions(5, 6) == []


# --- durability


def test_group_commit_calls_back_once_everything_before_is_durable(make_log):
    log = make_log(flush_messages=1)
    done = threading.Event()
    seen = []
    for _ in range(10):
        put(log, "v")
        log.flush_async(lambda error: seen.append((error, log.durable_offset)))
    log.flush_async(lambda error: done.set())
    assert done.wait(30)
    assert [error for error, _ in seen] == [None] * 10
    assert all(durable >= i + 1 for i, (_, durable) in enumerate(seen))
    assert log.durable_offset == 10


def test_waiters_share_a_sync(tmp_path):
    going, syncs = threading.Event(), []

    def slow_sync(fd):
        syncs.append(fd)
        assert going.wait(30)

    with open_store(tmp_path, committer=Committer(slow_sync)) as store:
        log = store.create("t", 0, b"t" * 16, LogConfig(), now_ms=0)
        done = threading.Semaphore(0)
        for _ in range(50):
            put(log, "v")
            log.flush_async(lambda error: done.release())
        assert log.durable_offset == 0
        going.set()
        for _ in range(50):
            assert done.acquire(timeout=30)
        assert len(syncs) <= 3
        assert log.durable_offset == 50


def test_a_failed_sync_takes_the_log_offline(tmp_path):
    def broken_sync(fd):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    store = open_store(tmp_path, committer=Committer(broken_sync))
    log = store.create("t", 0, b"t" * 16, LogConfig(), now_ms=0)
    put(log, "v")
    errors, done = [], threading.Event()
    log.flush_async(lambda error: (errors.append(error), done.set()))
    assert done.wait(30)
    assert errors[0].code == ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(StorageError, match="offline"):
        put(log, "v")
    store.close()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


def test_flush_by_count_and_by_time(make_log):
    by_count, by_time = make_log(flush_messages=3), make_log(flush_ms=1000)
    for _ in range(3):
        put(by_count, "v")
    put(by_time, "v")
    by_time.maintain(now_ms=999)
    assert by_time.durable_offset == 0
    by_time.maintain(now_ms=1000)
    for log in (by_count, by_time):
        if not isinstance(log, MemoryLog):
            log.committer.drain()
        assert log.durable_offset == log.end_offset


# --- faults


FULL_DISK = """
import resource, sys
from storage_world import batch, open_store, records_of
from kohort.storage import LogConfig, StorageError
store = open_store(sys.argv[1])
log = store.create("t", 0, b"t" * 16, LogConfig(), now_ms=0)
append = lambda value: log.append(batch([("k", value)]), leader_epoch=0, now_ms=0)
append("first")
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, resource.RLIM_INFINITY))
for size in (10_000, 100_000):
    try:
        append("x" * size)
        raise SystemExit("should have failed")
    except StorageError as error:
        assert error.code.name == "KAFKA_STORAGE_ERROR" and "free space" in str(error), error
    assert log.end_offset == 1
    import os
    assert os.path.getsize(log.active.path(".log")) == log.size_bytes
append("small")
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
append("x" * 100_000)
assert [len(r.value) for r in records_of(log)] == [5, 5, 100_000]
store.close()
"""


def test_a_full_disk_refuses_the_append_keeps_the_log_whole_and_is_forgotten_when_there_is_room(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    command = [sys.executable, "-c", FULL_DISK, str(tmp_path)]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    with open_store(tmp_path) as store:
        assert len(records_of(store.get("t", 0))) == 3


def test_injected_append_errors_leave_no_trace():
    log = MemoryLog("t", 0, LogConfig())
    put(log, "1")
    log.faults.append_errors += [errno.ENOSPC, errno.EIO]
    for reason in ("No space left", "Input/output error"):
        with pytest.raises(StorageError, match=reason):
            put(log, "lost", producer_id=1, producer_epoch=0, base_sequence=0)
    assert (log.end_offset, len(log.producers)) == (1, 0)
    assert put(log, "2").base_offset == 1


def test_a_crash_loses_what_was_not_flushed_and_rebuilds_the_rest():
    log = MemoryLog("t", 0, LogConfig(segment_bytes=300))
    for i in range(4):
        put(log, f"{i}", producer_id=1, producer_epoch=0, base_sequence=i, epoch=i)
    log.flush()
    for i in range(4, 9):
        put(log, f"{i}", producer_id=1, producer_epoch=0, base_sequence=i, epoch=i)
    held = log.read(0, 10_000)
    log.crash(end_offset=6)
    assert (log.end_offset, log.durable_offset, log.leader_epoch) == (6, 4, 5)
    log.crash()
    assert [record.value for record in records_of(log)] == [b"0", b"1", b"2", b"3"]
    assert log.producers.get(1).last_sequence == 3
    put(log, "other", producer_id=1, producer_epoch=0, base_sequence=4, epoch=9)
    assert b"8" in b"".join(held)


def test_held_flushes_come_true_when_released():
    log = MemoryLog("t", 0, LogConfig(flush_messages=1))
    log.faults.hold_flushes = True
    seen = []
    for i in range(3):
        put(log, "v")
        log.flush_async(lambda error, i=i: seen.append(i))
    assert (seen, log.durable_offset) == ([], 0)
    assert log.release_flushes(2) == 2
    assert (seen, log.durable_offset) == ([0, 1], 2)
    log.faults.flush_errors.append(errno.EIO)
    log.release_flushes()
    with pytest.raises(StorageError, match="offline"):
        put(log, "v")
    log.crash()
    assert log.end_offset == 2
    put(log, "v")


def test_cold_bytes_are_warmed_elsewhere(tmp_path, monkeypatch):
    with open_store(tmp_path) as store:
        put(store.create("t", 0, b"t" * 16, LogConfig(), now_ms=0), "v" * 1000)
        assert store.get("t", 0).warm(0, 1000) is None  # written by this process
    with open_store(tmp_path) as store:
        log = store.get("t", 0)

        def not_cached(*_):
            raise BlockingIOError

        monkeypatch.setattr(os, "preadv", not_cached)
        log.warm(0, 1000)()
        assert log.warm(log.end_offset, 1000) is None
        assert len(records_of(log)) == 1


def test_idle_segments_give_up_their_descriptors(tmp_path):
    config = LogConfig(segment_bytes=200)
    with open_store(tmp_path, config, max_open_files=5) as store:
        logs = [store.create("t", p, b"t" * 16, config, now_ms=0) for p in range(20)]
        for log in logs * 3:
            put(log, "v" * 100)
        assert len(store.handles) <= 5
        assert all(len(records_of(log)) == 3 for log in logs)


# --- indexes


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 300), min_size=1, max_size=60),
    interval=st.integers(0, 1000),
    base=st.integers(0, 2**40),
)
def test_an_index_lookup_is_never_beyond_what_a_linear_scan_finds(sizes, interval, base):
    index, batches, position, since = OffsetIndex(base), [], 0, 0
    offset = base
    for size in sizes:
        last = offset + size % 5
        if since > interval:
            index.append(last, position)
            since = 0
        batches.append((offset, last, position))
        offset, position, since = last + 1, position + size, since + size
    decoded = OffsetIndex.decode(base, index.encode())
    for first, last, at in batches:
        for wanted in (first, last):
            assert decoded.lookup(wanted) == index.lookup(wanted) <= at
            assert decoded.lookup(wanted) in [p for _, _, p in batches]
        assert decoded.floor_position(at) <= at


@given(timestamps=st.lists(st.integers(0, 1000), max_size=50))
def test_a_time_index_lookup_skips_only_older_records(timestamps):
    index = TimeIndex(10)
    newest, newest_offset = -1, 10
    for i, timestamp in enumerate(timestamps):
        if timestamp > newest:
            newest, newest_offset = timestamp, 10 + i
        if i % 3 == 0:
            index.maybe_append(newest, newest_offset)
    decoded = TimeIndex.decode(10, index.encode())
    for wanted in range(0, 1001, 50):
        offset = decoded.lookup(wanted)
        assert all(timestamp < wanted for timestamp in timestamps[: offset - 10])
