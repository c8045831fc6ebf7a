"""Compaction against a dictionary: whatever was written last is what a reader from the beginning ends up with."""

import threading
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.records.batch import Compression, Record, RecordsError, Summary, build_batch, iter_batches, read_header
from kohort.records.control import ControlType, build_marker
from kohort.storage import LogConfig, MemoryLog, StorageError
from storage_world import batch, open_store, records_of

DAY_MS = 86_400_000
CONFIG = LogConfig(
    segment_bytes=400, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0, delete_retention_ms=DAY_MS
)
keys = st.sampled_from("abcdef")
writes = st.lists(st.tuples(keys, st.one_of(st.none(), st.text("xyz", max_size=30))), min_size=1, max_size=4)


def write(log, pairs, now_ms=0, **header):
    return log.append(batch(pairs, timestamp=now_ms, **header), leader_epoch=0, now_ms=now_ms)


def latest(log):
    """The table a reader builds: key -> value, without deleted keys."""
    table = {record.key: record.value for record in records_of(log) if record.key is not None}
    return {key: value for key, value in table.items() if value is not None}


def headers(log):
    return [header for view in log.read(log.start_offset, 10**9) for _, header in iter_batches(view)]


def fill(log, now_ms=0):
    """Enough to push everything before it out of the active segment."""
    write(log, [("filler", "f" * CONFIG.segment_bytes)], now_ms)
    write(log, [("filler", "f")], now_ms)


@settings(max_examples=40, deadline=None)
@given(
    rounds=st.lists(st.tuples(st.lists(writes, max_size=12), st.sampled_from([0, DAY_MS // 2, DAY_MS])), max_size=6),
    codec=st.sampled_from([Compression.NONE, Compression.LZ4]),
    max_keys=st.sampled_from([4, 1000]),
)
def test_a_compacted_log_holds_the_last_value_of_every_key(rounds, codec, max_keys):
    log = MemoryLog("t", 0, CONFIG)
    log.max_compaction_keys = max_keys
    model, written, now_ms = {}, {}, 0
    for batches, later_ms in rounds:
        now_ms += later_ms
        for pairs in batches:
            offset = write(log, pairs, now_ms, compression=codec).base_offset
            for i, (key, value) in enumerate(pairs):
                written[offset + i] = (key.encode(), value if value is None else value.encode())
                model[key.encode()] = written[offset + i][1]
        end_offset, start_of_active = log.end_offset, log.segments[-1].base_offset if log.segments else 0
        log.compact(now_ms)
        assert log.end_offset == end_offset
        records = records_of(log)
        assert all(written[record.offset] == (record.key, record.value) for record in records)
        assert [record.offset for record in records] == sorted({record.offset for record in records})
        active = [record.offset for record in records if record.offset >= start_of_active]
        assert active == [offset for offset in sorted(written) if offset >= start_of_active]
        assert latest(log) == {key: value for key, value in model.items() if value is not None}
        if max_keys == 1000 and log.first_dirty_offset == start_of_active:
            cleaned = [record.key for record in records if record.offset < start_of_active]
            assert len(cleaned) == len(set(cleaned))


def bomb(count, key_of):
    """Some kilobytes that inflate to `count` records."""
    records = (Record(number, 0, key_of(number), b"") for number in range(count))
    return build_batch(records, compression=Compression.ZSTD, summary=Summary(count, 0, 0, count - 1))


def peak_of(work):
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_bomb_is_cleaned_without_an_object_for_each_of_its_records():
    count, peaks = 60_000, []
    for _ in range(3):  # other threads of this process allocate too: the quietest of three counts
        log = MemoryLog("t", 0, CONFIG)
        log.append(bomb(count, lambda number: b"%d" % (number % 1000)), leader_epoch=0, now_ms=0)
        fill(log)
        peaks.append(peak_of(lambda log=log: log.compact(0)))
        assert [record.offset for record in records_of(log)][:1000] == list(range(count - 1000, count))
        assert log.read(0, 1)[0].nbytes < 20_000
        if peaks[-1] < 60 * count:
            return
    raise AssertionError(f"{min(peaks) / count:.0f} bytes a record: a list of them took 300")


def test_long_keys_are_remembered_by_what_stands_for_them():
    log = MemoryLog("t", 0, CONFIG)
    for round_ in range(3):
        write(log, [(letter * 10_000, f"{letter}{round_}") for letter in "abc"])
    fill(log)
    log.compact(0)
    assert [record.value for record in records_of(log)][:3] == [b"a2", b"b2", b"c2"]


def test_one_batch_with_more_keys_than_can_be_remembered_is_uncleanable_not_tried_for_ever():
    log = MemoryLog("t", 0, CONFIG)
    log.max_compaction_keys = 100
    log.append(bomb(101, lambda number: b"%d" % number), leader_epoch=0, now_ms=0)
    fill(log)
    with pytest.raises(StorageError, match="offset 0 has more than 100 keys") as raised:
        log.compact(0)
    assert isinstance(raised.value.__cause__, RecordsError), "so that the broker leaves it and goes on with others"
    log.max_compaction_keys = 101
    log.compact(0)
    assert log.first_dirty_offset > 100


def test_a_tombstone_stays_until_its_delete_horizon_and_then_goes():
    log = MemoryLog("t", 0, CONFIG)
    write(log, [("a", "1"), ("b", "1")])
    write(log, [("a", None)])
    fill(log)
    assert log.compact(now_ms=1000)
    assert [(r.key, r.value) for r in records_of(log)[:2]] == [(b"b", b"1"), (b"a", None)]
    assert [header.delete_horizon_ms for header in headers(log)[:2]] == [None, 1000 + DAY_MS]
    fill(log)
    assert log.compact(now_ms=999 + DAY_MS)
    assert (b"a", None) in [(r.key, r.value) for r in records_of(log)]
    fill(log)
    assert log.compact(now_ms=1000 + DAY_MS)
    assert b"a" not in [record.key for record in records_of(log)]


def test_offsets_and_timestamps_survive_and_batches_keep_their_ends():
    log = MemoryLog("t", 0, CONFIG)
    write(log, [("a", "1"), ("b", "2"), ("c", "3")], now_ms=50)
    write(log, [("a", "4"), ("c", "5")], now_ms=60)
    fill(log)
    log.compact(now_ms=0)
    assert [(r.offset, r.timestamp, r.key) for r in records_of(log)[:3]] == [
        (1, 51, b"b"),
        (3, 60, b"a"),
        (4, 61, b"c"),
    ]
    assert [(h.base_offset, h.last_offset, h.record_count) for h in headers(log)[:2]] == [(0, 2, 1), (3, 4, 2)]


def test_the_last_batch_of_a_producer_stays_even_if_empty_and_its_sequence_is_known_after_a_crash(tmp_path):
    store = open_store(tmp_path, CONFIG)
    log = store.create("t", 0, b"t" * 16, CONFIG, now_ms=0)
    write(log, [("a", "1")], producer_id=9, producer_epoch=2, base_sequence=0)
    write(log, [("a", "2")], producer_id=9, producer_epoch=2, base_sequence=1)
    write(log, [("a", "3")])
    fill(log)
    log.compact(now_ms=0)
    kept = [header for header in headers(log) if header.producer_id == 9]
    assert [(h.base_sequence, h.record_count, h.last_offset) for h in kept] == [(1, 0, 1)]
    store.abandon()
    for file in (tmp_path / "t-0").glob("*.snapshot"):
        file.unlink()
    with open_store(tmp_path, CONFIG) as store:
        probe = read_header(batch([("a", "2")], producer_id=9, producer_epoch=2, base_sequence=1))
        assert store.get("t", 0).producers.check(probe).duplicate.first_offset == 1


def marker(kind, producer_id):
    return build_marker(kind, timestamp=0, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0)


def test_aborted_records_go_and_their_marker_later_while_open_transactions_are_left_alone():
    log = MemoryLog("t", 0, CONFIG)
    transactional = dict(producer_epoch=0, transactional=True)
    write(log, [("a", "kept")])
    write(log, [("a", "aborted")], producer_id=1, base_sequence=0, **transactional)
    log.append(marker(ControlType.ABORT, 1), leader_epoch=0, now_ms=0)
    write(log, [("b", "committed")], producer_id=2, base_sequence=0, **transactional)
    log.append(marker(ControlType.COMMIT, 2), leader_epoch=0, now_ms=0)
    fill(log)
    log.compact(now_ms=0)
    assert latest(log)[b"a"] == b"kept"
    assert latest(log)[b"b"] == b"committed"
    assert [txn.producer_id for txn in log.aborted_transactions(0, log.end_offset)] == [1]
    log.producers.expire(now_ms=10 * DAY_MS)
    for now_ms in (10 * DAY_MS, 12 * DAY_MS, 14 * DAY_MS):
        fill(log)
        log.compact(now_ms)
    assert log.aborted_transactions(0, log.end_offset) == []
    assert [header.producer_id for header in headers(log) if header.is_control] == [2]
    write(log, [("c", "1")], producer_id=3, base_sequence=0, **transactional)
    stable = log.last_stable_offset
    fill(log)
    write(log, [("c", "2")])
    fill(log)
    log.compact(now_ms=20 * DAY_MS)
    assert log.last_stable_offset == stable
    assert [r.value for r in records_of(log) if r.key == b"c"] == [b"1", b"2"]


def test_the_dirty_ratio_and_the_lags_decide_when():
    log = MemoryLog("t", 0, CONFIG)
    for i in range(12):
        write(log, [("a", "x" * 100)], now_ms=i * 1000)
    log.configure(LogConfig(segment_bytes=400, cleanup_policy=("compact",), min_compaction_lag_ms=1_000_000))
    assert log.start_compaction(now_ms=20_000) is None
    log.configure(LogConfig(segment_bytes=400, cleanup_policy=("compact",), min_cleanable_dirty_ratio=1))
    assert log.start_compaction(now_ms=20_000) is None
    log.configure(
        LogConfig(
            segment_bytes=400, cleanup_policy=("compact",), min_cleanable_dirty_ratio=1, max_compaction_lag_ms=9000
        )
    )
    assert log.compact(now_ms=20_000)
    log.configure(LogConfig(segment_bytes=400, cleanup_policy=("compact",)))
    assert log.start_compaction(now_ms=20_000) is None
    log.configure(LogConfig(segment_bytes=400))
    assert log.start_compaction(now_ms=20_000) is None


@pytest.mark.parametrize("kind", ["local", "memory"])
def test_segments_that_retention_takes_meanwhile_do_not_come_back(tmp_path, kind):
    store = open_store(tmp_path, CONFIG)
    log = store.create("t", 0, b"t" * 16, CONFIG, now_ms=0) if kind == "local" else MemoryLog("t", 0, CONFIG)
    for i in range(20):
        write(log, [(f"k{i % 2}", "x" * 100)])
    compaction = log.start_compaction(now_ms=0)
    compaction.run()
    log.delete_records_before(10)
    log.enforce_retention(now_ms=0)
    log.finish_compaction(compaction)
    assert next(record.offset for record in records_of(log)) >= 10
    assert len(records_of(log)) >= 2
    store.close()


def test_reads_held_during_compaction_keep_their_bytes(tmp_path):
    with open_store(tmp_path, CONFIG) as store:
        log = store.create("t", 0, b"t" * 16, CONFIG, now_ms=0)
        for i in range(50):
            write(log, [(f"k{i % 2}", "x" * 100)])
        held = log.read(0, 10**6)
        before = b"".join(held)
        assert log.compact(now_ms=0)
        assert b"".join(held) == before
        assert len(records_of(log)) < 50


def test_a_compaction_that_fails_leaves_the_log_as_it_was(tmp_path):
    with open_store(tmp_path, CONFIG) as store:
        log = store.create("t", 0, b"t" * 16, CONFIG, now_ms=0)
        for i in range(50):
            write(log, [(f"k{i % 2}", "x" * 100)])
        compaction = log.start_compaction(now_ms=0)
        (tmp_path / "t-0").rename(tmp_path / "elsewhere")
        with pytest.raises(StorageError, match="the log is as it was"):
            compaction.run()
        (tmp_path / "elsewhere").rename(tmp_path / "t-0")
        assert list((tmp_path / "t-0").glob("*.cleaned")) == []
        assert len(records_of(log)) == 50


def test_appends_and_reads_go_on_while_another_thread_compacts(tmp_path):
    with open_store(tmp_path, CONFIG, max_open_files=4) as store:
        log = store.create("t", 0, b"t" * 16, CONFIG, now_ms=0)
        for i in range(200):
            write(log, [(f"k{i % 7}", f"old {i}")])
        compaction = log.start_compaction(now_ms=0)
        thread = threading.Thread(target=compaction.run)
        thread.start()
        for i in range(200):
            write(log, [(f"k{i % 7}", f"new {i}")])
            assert len(records_of(log, log.end_offset - 5)) == 5
        thread.join()
        log.finish_compaction(compaction)
        assert latest(log) == {f"k{i % 7}".encode(): f"new {i}".encode() for i in range(200)}
        assert len(records_of(log)) < 300
