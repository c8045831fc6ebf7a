"""What a crash may leave behind, and what must be there afterwards."""

import os
import random
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.records.batch import read_header
from kohort.storage import LogConfig
from kohort.storage.checkup import Checkup
from kohort.storage.segment_files import CLEANED, LOG, SUFFIXES, SWAP
from storage_world import batch, open_store, records_of

CONFIG = LogConfig(segment_bytes=2000, index_interval_bytes=300)
FOUR = LogConfig(index_interval_bytes=300)


@pytest.fixture(scope="module")
def crashed(tmp_path_factory):
    """The directory of a killed broker with a log of several segments, and the batches' (end position, next offset)."""
    path = tmp_path_factory.mktemp("crashed")
    store = open_store(path, CONFIG)
    log = store.create("t", 0, b"t" * 16, CONFIG, now_ms=0)
    for i in range(40):
        sizes = [("k", "v" * random.Random(i).randrange(200))] * (1 + i % 3)
        log.append(
            batch(sizes, producer_id=7, producer_epoch=0, base_sequence=log.end_offset), leader_epoch=i // 15, now_ms=0
        )
    ends = {}
    for segment in log.segments:
        for _, pos, header in segment.batches(segment.base_offset):
            ends.setdefault(segment.base_offset, []).append((pos + header.size, header.next_offset))
    expected = records_of(log)
    store.abandon()
    return path, ends, expected


def damaged_copy(crashed, tmp, segment_share, damage):
    path, ends, _ = crashed
    shutil.copytree(path, tmp)
    base = sorted(ends)[min(int(segment_share * len(ends)), len(ends) - 1)]
    damage(tmp / "t-0" / f"{base:020d}.log")
    return base


@settings(max_examples=40, deadline=None)
@given(share=st.floats(0, 1), cut=st.floats(0, 1))
def test_a_file_cut_anywhere_keeps_every_whole_batch_before(crashed, tmp_path_factory, share, cut):
    tmp = tmp_path_factory.mktemp("cut") / "data"
    kept = []

    def truncate(file: Path) -> None:
        kept.append(int(file.stat().st_size * cut))
        os.truncate(file, kept[0])

    base = damaged_copy(crashed, tmp, share, truncate)
    _, ends, expected = crashed
    good_to = max((offset for end, offset in ends[base] if end <= kept[0]), default=base)
    survivors = [record for record in expected if record.offset < good_to]
    survivors += [record for record in expected if record.offset >= ends[base][-1][1]]
    end_offset = max(survivors[-1].offset + 1 if survivors else 0, good_to)
    with open_store(tmp, CONFIG) as store:
        log = store.get("t", 0)
        assert log.end_offset == end_offset
        assert records_of(log) == survivors
        log.append(batch([("k", "after")]), leader_epoch=9, now_ms=0)
        assert records_of(log)[-1].value == b"after"
    with open_store(tmp, CONFIG) as store:
        assert records_of(store.get("t", 0))[-1].offset == end_offset


@settings(max_examples=40, deadline=None)
@given(share=st.floats(0, 1), at=st.floats(0, 0.999), bit=st.integers(0, 7))
def test_a_flipped_bit_ends_the_log_before_its_batch_unless_it_is_outside_the_crc(
    crashed, tmp_path_factory, share, at, bit
):
    tmp = tmp_path_factory.mktemp("flip") / "data"
    position = []

    def flip(file: Path) -> None:
        data = bytearray(file.read_bytes())
        position.append(int(len(data) * at))
        data[position[0]] ^= 1 << bit
        file.write_bytes(data)

    base = damaged_copy(crashed, tmp, share, flip)
    _, ends, expected = crashed
    before = max((offset for end, offset in ends[base] if end <= position[0]), default=base)
    with open_store(tmp, CONFIG) as store:
        log = store.get("t", 0)
        assert log.end_offset >= before
        intact = [record for record in expected if record.offset < before]
        assert records_of(log)[: len(intact)] == intact


@settings(max_examples=30, deadline=None)
@given(junk=st.binary(min_size=1, max_size=200))
def test_junk_after_the_last_batch_is_cut(crashed, tmp_path_factory, junk):
    tmp = tmp_path_factory.mktemp("junk") / "data"

    def smear(file: Path) -> None:
        with file.open("ab") as out:
            out.write(junk)

    damaged_copy(crashed, tmp, 1.0, smear)
    with open_store(tmp, CONFIG) as store:
        assert records_of(store.get("t", 0)) == crashed[2]
        assert store.get("t", 0).end_offset == crashed[2][-1].offset + 1


@pytest.fixture
def killed(tmp_path):
    """The directory of a killed broker with four segments of ten records each; `checkpoint` says how much of them was
    known to be on disk."""

    def make(checkpoint=True, config=FOUR):
        store = open_store(tmp_path, config)
        log = store.create("t", 0, b"t" * 16, config, now_ms=0)
        for number in range(40):
            if number and number % 10 == 0:
                log.roll(0)
            log.append(batch([("k", f"{number}" * 20)]), leader_epoch=0, now_ms=0)
        if checkpoint:
            log.flush()
            store.checkpoint()
        store.abandon()
        return sorted((tmp_path / "t-0").glob("*.log"))

    return make


def reopened(path, config=None):
    store = open_store(path, config or FOUR)
    log = store.get("t", 0)
    gaps = [(gap.start, gap.end) for gap in store.lost.get(("t", 0), [])]
    return store, log, gaps


def check_goes_on(store, log, left):
    """No offset is given out twice, and another crash leaves the same behind."""
    assert [record.offset for record in records_of(log)] == left
    assert log.append(batch([("k", "new")]), leader_epoch=0, now_ms=0).base_offset == 40
    log.flush()
    store.abandon()
    store, log, _ = reopened(store.path)
    assert [record.offset for record in records_of(log)] == [*left, 40]
    store.close()


def hole(file, at=0.45, size=120):
    data = bytearray(file.read_bytes())
    start = int(len(data) * at)
    data[start : start + size] = bytes(size)
    file.write_bytes(data)


def half(file):
    os.truncate(file, file.stat().st_size // 2 + 3)


def emptied(file):
    os.truncate(file, 0)


@pytest.mark.parametrize("checkpointed", [True, False], ids=["on disk", "not known to be on disk"])
@pytest.mark.parametrize(
    ("damage", "which", "gone"),
    [
        (half, 1, range(15, 20)),
        (emptied, 1, range(10, 20)),
        (Path.unlink, 1, range(10, 20)),
        (Path.unlink, 0, range(10)),
    ],
    ids=["half of a segment", "an emptied segment", "a missing segment", "the first segment is missing"],
)
def test_damage_after_a_crash_is_said_with_its_offsets_and_the_rest_is_served(
    killed, tmp_path, caplog, damage, which, gone, checkpointed
):
    damage(killed(checkpointed)[which])
    store, log, gaps = reopened(tmp_path)
    assert gaps == [(gone.start, gone.stop)]
    assert f"t-0: offsets {gone.start} to {gone.stop - 1} are lost" in caplog.text
    check_goes_on(store, log, [offset for offset in range(40) if offset not in gone])


@pytest.mark.parametrize("which", [0, 2, 3])
def test_a_hole_in_a_segment_after_a_crash(killed, tmp_path, caplog, which):
    """Only what is read is found: below the recovery point a checksum is first looked at by `kohort log check`."""
    hole(killed(checkpoint=False)[which])
    store, log, ((start, end),) = reopened(tmp_path)
    assert which * 10 < start < end < which * 10 + 10
    assert f"offsets {start} to {end - 1} are lost" in caplog.text
    assert [path.name for path in (tmp_path / "damaged" / "t-0").iterdir()], "what was taken out is kept"
    check_goes_on(store, log, [offset for offset in range(40) if not start <= offset < end])


def test_a_hole_in_a_coordinators_topic_stays_where_it_is(tmp_path):
    """So that its load fails and says where, until somebody repairs it: half of a group is worse than none."""
    store = open_store(tmp_path, FOUR)
    log = store.create("__consumer_offsets", 0, b"t" * 16, FOUR, now_ms=0)
    for number in range(10):
        log.append(batch([("k", f"{number}" * 20)]), leader_epoch=0, now_ms=0)
    store.abandon()
    (file,) = (tmp_path / "__consumer_offsets-0").glob("*.log")
    hole(file)
    damaged = file.read_bytes()
    store = open_store(tmp_path, FOUR)
    ((gap,),) = store.lost.values()
    assert 0 < gap.start < gap.end < 10 and store.get("__consumer_offsets", 0).end_offset == 10
    assert file.read_bytes() == damaged
    store.close()
    with Checkup(tmp_path) as checkup:
        found = checkup.check("__consumer_offsets", 0)
        assert [(damage.offset, damage.next_offset) for damage in found.damage] == [(gap.start, gap.end)]


@pytest.mark.parametrize(
    ("damage", "first_gone"), [(half, 35), (emptied, 30), (Path.unlink, 30)], ids=["half", "emptied", "missing"]
)
def test_the_last_segment_after_a_crash_known_by_the_recovery_point(killed, tmp_path, damage, first_gone):
    damage(killed()[3])
    store, log, gaps = reopened(tmp_path)
    assert gaps == [(first_gone, 40)]
    check_goes_on(store, log, list(range(first_gone)))


def test_what_retention_took_before_a_crash_is_not_lost(killed, tmp_path):
    killed()
    config = replace(FOUR, retention_ms=1)
    store = open_store(tmp_path, config)
    store.maintain(10**12)
    assert store.get("t", 0).start_offset > 0
    store.abandon()
    store, log, gaps = reopened(tmp_path)
    assert gaps == [] and log.start_offset == log.end_offset == 40
    store.close()


def test_what_compaction_took_before_a_crash_is_not_lost(killed, tmp_path):
    config = replace(FOUR, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0)
    killed(config=config)
    store = open_store(tmp_path, config)
    assert store.get("t", 0).compact(0)
    store.abandon()
    store, log, gaps = reopened(tmp_path, config)
    assert gaps == [] and [record.offset for record in records_of(log)] == [*range(29, 40)]
    store.close()


def test_a_topic_created_again_before_a_crash_has_not_lost_the_records_of_the_other(killed, tmp_path):
    killed()
    store = open_store(tmp_path, FOUR)
    store.delete("t", 0)
    log = store.create("t", 0, b"u" * 16, FOUR, now_ms=0)
    log.append(batch([("k", "v")]), leader_epoch=0, now_ms=0)
    store.abandon()
    store, log, gaps = reopened(tmp_path)
    assert gaps == [] and (log.start_offset, log.end_offset) == (0, 1)
    store.close()


def test_lost_or_damaged_indexes_and_snapshots_are_rebuilt(crashed, tmp_path):
    tmp = tmp_path / "data"
    shutil.copytree(crashed[0], tmp)
    for file in (tmp / "t-0").iterdir():
        if file.suffix in (".index", ".snapshot"):
            file.unlink()
        elif file.suffix == ".timeindex":
            file.write_bytes(b"\x01" * 7)
    with open_store(tmp, CONFIG) as store:
        log = store.get("t", 0)
        assert records_of(log) == crashed[2]
        assert log.producers.get(7).last_sequence == crashed[2][-1].offset
        assert log.end_offset_for_epoch(0)[0] == 0


def test_after_a_clean_stop_nothing_is_scanned(tmp_path, monkeypatch):
    with open_store(tmp_path) as store:
        store.create("t", 0, b"t" * 16, LogConfig(), now_ms=0).append(batch([("k", "v")]), leader_epoch=0, now_ms=0)
    monkeypatch.setattr("kohort.storage.recovery._recover_segments", lambda *_: pytest.fail("scanned"))
    with open_store(tmp_path) as store:
        assert store.was_clean
        assert store.get("t", 0).end_offset == 1
        assert not (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_crash_after_a_clean_start_is_not_taken_for_clean(tmp_path):
    open_store(tmp_path).close()
    store = open_store(tmp_path)
    store.create("t", 0, b"t" * 16, LogConfig(), now_ms=0).append(batch([("k", "v")]), leader_epoch=0, now_ms=0)
    store.abandon()
    with open_store(tmp_path) as store:
        assert not store.was_clean
        assert len(records_of(store.get("t", 0))) == 1


def retry(sequence, count=1):
    return read_header(batch([("k", "v")] * count, producer_id=7, producer_epoch=0, base_sequence=sequence))


@pytest.mark.parametrize("clean", [True, False])
def test_the_last_five_batches_of_a_producer_are_known_as_duplicates_after_a_restart(tmp_path, clean):
    store = open_store(tmp_path)
    log = store.create("t", 0, b"t" * 16, LogConfig(), now_ms=0)
    for sequence in range(8):
        data = batch([("k", "v")], producer_id=7, producer_epoch=0, base_sequence=sequence)
        log.append(data, leader_epoch=0, now_ms=0)
    store.close() if clean else store.abandon()
    with open_store(tmp_path) as store:
        producers = store.get("t", 0).producers
        for sequence in range(3, 8):
            assert producers.check(retry(sequence)).duplicate.first_offset == sequence
        assert producers.check(retry(8)).accepted


CUT_SHORT = ["cleaned", "half swap", "swap", "swap, old ones gone", "log in place"]


@pytest.mark.parametrize("moment", CUT_SHORT)
def test_a_compaction_cut_short_at_any_moment_leaves_one_good_log(tmp_path, moment):
    config = LogConfig(segment_bytes=500, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0)
    store = open_store(tmp_path, config)
    log = store.create("t", 0, b"t" * 16, config, now_ms=0)
    for i in range(30):
        log.append(batch([(f"k{i % 3}", f"v{i}" + "x" * 30)]), leader_epoch=0, now_ms=0)
    latest = {record.key: record.value for record in records_of(log)}
    end_offset = log.end_offset
    compaction = log.start_compaction(now_ms=0)
    compaction.run()
    for group, cleaned in compaction.results:
        cleaned.seal()
        if moment == "cleaned":
            continue
        if moment == "half swap":
            os.rename(cleaned.path(LOG), cleaned.path(LOG).removesuffix(CLEANED) + SWAP)
            continue
        cleaned.rename(SWAP)
        if moment != "swap":
            for segment in group:
                segment.delete()
        if moment == "log in place":
            os.rename(cleaned.path(LOG), cleaned.path(LOG).removesuffix(SWAP))
    store.abandon()
    with open_store(tmp_path, config) as store:
        log = store.get("t", 0)
        assert {record.key: record.value for record in records_of(log)} == latest
        assert log.end_offset == end_offset
        leftovers = [f.name for f in (tmp_path / "t-0").iterdir() if f.name.endswith((CLEANED, SWAP))]
        assert leftovers == []
        files = {f.name[:20] for f in (tmp_path / "t-0").iterdir() if f.name.endswith(SUFFIXES)}
        assert files == {f"{segment.base_offset:020d}" for segment in log.segments}


WRITER = """
import sys
from storage_world import batch, open_store
from kohort.storage import LogConfig
from kohort.storage.checkup import Checkup
config = LogConfig(segment_bytes=20_000, index_interval_bytes=500)
store = open_store(sys.argv[1], config)
log = store.get("t", 0) or store.create("t", 0, b"t" * 16, config, now_ms=0)
while True:
    value = f"{log.end_offset}" + "x" * (log.end_offset * 37 % 900)
    done = log.append(batch([("k", value)]), leader_epoch=0, now_ms=0)
    print(done.last_offset, flush=True)
"""


def test_kill_9_loses_no_acknowledged_record(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    acknowledged = -1
    for attempt in range(4):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, env=environment, text=True
        )
        for _ in range(50 + attempt * 111):
            acknowledged = int(process.stdout.readline())
        process.kill()
        acknowledged = max([acknowledged, *map(int, process.stdout.read().splitlines()[:-1])])
        process.wait()
        store = open_store(tmp_path, LogConfig(segment_bytes=20_000, index_interval_bytes=500))
        records = records_of(store.get("t", 0))
        assert [record.offset for record in records] == list(range(len(records)))
        assert len(records) > acknowledged
        assert all(record.value.startswith(str(record.offset).encode()) for record in records)
        store.abandon()
