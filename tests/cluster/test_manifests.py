"""Segments and manifests: small segments are joined, nothing that a log still reads is deleted."""

import pytest

from kohort.broker.tidying import Drafted, _piece, _try_to_write
from kohort.cluster import manifests
from kohort.cluster.manifests import Draft, Manifest
from kohort.cluster.memory_engine import MemoryStore
from kohort.records.batch import build_key_values, iter_batches, read_records
from kohort.storage.cold_segment import BlockCache, ColdSegment, NotInMemory
from kohort.storage.config import LogConfig
from kohort.storage.journal_log import JournalLog


@pytest.fixture
def engine():
    return MemoryStore().engine()


@pytest.fixture
def cache(engine):
    return BlockCache(1 << 20, engine.get_range)


def append(log, *values):
    for value in values:
        log.restore(_placed(log, build_key_values([(b"k", value)], 1000 + log.end_offset)))


def _placed(log, data):
    return log.end_offset.to_bytes(8, "big") + bytes(data[8:])


def draft(log):
    sealed = log.sealed(0)
    pieces = [_piece(segment, log.start_offset) for segment in sealed]
    manifests.join_small(pieces, log.fresh_bytes)
    before = log.manifest or Manifest()
    after = Manifest(0, before.number + 1, -1, log.start_offset, log.end_offset)
    after.epochs, after.producers = log.epochs.entries(), log.producer_rows()
    return Drafted(log, sealed, Draft("id", 0, before, after, pieces))


def write(engine, cache, log):
    found = draft(log)
    assert _try_to_write(engine, found.draft, f"n{found.draft.after.number}", cache) is None
    log.manifest = found.draft.after
    return found


def values(log):
    found, offset = [], log.start_offset
    while offset < log.end_offset:
        try:
            for view in log.read(offset, 1 << 30):
                for pos, header in iter_batches(view):
                    found += [bytes(record.value) for record in read_records(view, pos, header)]
                    offset = header.next_offset
        except NotInMemory as missing:
            missing.load()
    return found


def log():
    return JournalLog("orders", 0, LogConfig(), topic_id="id")


def test_small_segments_are_joined_and_large_ones_stay(engine, cache):
    one, expected = log(), []
    for number in range(40):
        new = [b"%d" % number * 50] * 3
        append(one, *new)
        expected += new
        drafted = write(engine, cache, one)
        assert one.use_segments(drafted.sealed, one.manifest.segments, one.manifest.next_offset, cache)
        assert values(one) == expected
    assert len(one.manifest.segments) <= 8
    assert one.fresh_bytes == 0


def test_a_log_is_as_it_was_when_it_is_led_by_another(engine, cache):
    one = log()
    append(one, *[b"%d" % n for n in range(10)])
    write(engine, cache, one)
    found = manifests.last(engine, "id", 0)
    other = log()
    other.restore_segments(
        found.segments, BlockCache(1 << 20, engine.get_range), start_offset=found.start_offset,
        next_offset=found.next_offset, first_dirty_offset=0, epochs=found.epochs, producers=found.producers,
    )  # fmt: skip
    assert (other.end_offset, other.durable_offset) == (10, 10)
    assert values(other) == [b"%d" % n for n in range(10)]
    append(other, b"more")
    assert values(other)[-1] == b"more"
    assert other.offset_for_timestamp(1004).offset == 4
    assert other.max_timestamp().offset == 10


def test_what_a_log_goes_on_reading_is_not_deleted(engine, cache):
    """A compaction swaps segments while a manifest is written that has joined others."""
    one = log()
    append(one, b"a", b"b")
    first = write(engine, cache, one)
    one.use_segments(first.sealed, one.manifest.segments, one.manifest.next_offset, cache)
    append(one, b"c", b"d")
    second = draft(one)
    assert _try_to_write(engine, second.draft, "n", cache) is None
    hot = next(segment for segment in one.segments if not isinstance(segment, ColdSegment) and segment.size)
    one.segments[one.segments.index(hot)] = hot.reader().__class__(hot.base_offset, 0)  # as a compaction does
    assert not one.use_segments(second.sealed, second.draft.after.segments, second.draft.after.next_offset, cache)
    replaced_now = set(second.draft.replaced())
    second.draft.keep_all()
    one.manifest = second.draft.after
    still_read = {segment.row.name for segment in one.segments if isinstance(segment, ColdSegment)}
    assert still_read & replaced_now, "this is what must not be deleted"
    third = draft(one)
    assert _try_to_write(engine, third.draft, "m", cache) is None
    named = {row.name for row in third.draft.after.segments}
    assert not named & set(third.draft.replaced())
    assert still_read - named <= set(third.draft.replaced()), "and what goes in the end"


def test_a_small_segment_that_is_damaged_stays_named(engine, cache):
    one = log()
    append(one, b"a" * 100)
    first = write(engine, cache, one)
    one.use_segments(first.sealed, one.manifest.segments, one.manifest.next_offset, cache)
    name = one.manifest.segments[0].name
    engine.store.objects[name] = b"x" + engine.store.objects[name][1:]
    append(one, b"b" * 100)
    write(engine, cache, one)
    assert one.manifest.segments[0].name == name
    assert len(one.manifest.segments) == 2
