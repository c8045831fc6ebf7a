"""What one producer sends must not harm the others: records that nobody can read, or that take long to check."""

import gc
import tracemalloc

import pytest

from kohort.broker.checking import AT_ONCE_BYTES
from kohort.protocol import messages
from kohort.protocol.errors import ErrorCode
from kohort.records.batch import Compression, Record, build_batch, read_header, read_records
from records.test_validate import nonsense, resealed
from wire import World, batch, produce_request


def large(codec=Compression.GZIP, key=b"k", **options):
    """A batch that is small and inflates to more than is checked at once."""
    return build_batch([Record(0, 1_000_000, key, b"\0" * 2 * AT_ONCE_BYTES)], compression=codec, **options)


@pytest.mark.parametrize("name", nonsense())
def test_a_batch_that_nobody_can_read_is_not_stored(name):
    world = World()
    log = world.create_topic("t").partitions[0].log
    client = world.connect()
    row = client.produce("t", nonsense()[name])
    assert (row.error_code, row.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    assert log.end_offset == 0
    assert client.produce("t", batch(b"a")).base_offset == 0


def test_what_takes_long_is_checked_elsewhere_and_keeps_its_place():
    world = World()
    log = world.create_topic("t").partitions[0].log
    producer, other = world.connect(), world.connect()
    world.run_jobs = False
    first = producer.send(produce_request("t", large()), 9)
    second = producer.send(produce_request("t", batch(b"second")), 9)
    third = producer.send(produce_request("t", large()), 9)
    world.turn()
    assert producer.order == [] and log.end_offset == 0
    assert other.call(messages.MetadataRequest(topics=[]), 9).controller_id == 1
    assert other.produce("t", batch(b"other")).base_offset == 0
    world.run_jobs = True
    world.turn()
    assert producer.order == [first, second, third]
    offsets = [answer.responses[0].partition_responses[0].base_offset for answer in producer.answers]
    assert offsets == [1, 2, 3]


def test_a_bomb_is_refused_and_the_producer_goes_on():
    world = World()
    world.create_topic("t", max_message_bytes="20000")
    client = world.connect()
    bomb = build_batch([Record(0, 1_000_000, b"k", b"\0" * 4_000_000)], compression=Compression.ZSTD)
    assert client.produce("t", bomb).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert client.produce("t", batch(b"a")).base_offset == 0


def test_a_bomb_in_the_codec_of_the_topic_is_too_large():
    world = World()
    world.create_topic("t", compression_type="uncompressed", max_message_bytes="400000")
    assert world.connect().produce("t", large()).error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_a_large_batch_is_repacked_elsewhere():
    world = World()
    log = world.create_topic("t", compression_type="lz4").partitions[0].log
    assert world.connect().produce("t", large()).base_offset == 0
    stored = bytes(b"".join(map(bytes, log.read(0, 1 << 20))))
    header = read_header(stored)
    assert header.compression == Compression.LZ4
    assert read_records(stored, 0, header)[0].value == b"\0" * 2 * AT_ONCE_BYTES


def test_what_waits_for_a_peer_that_left_is_dropped():
    world = World()
    log = world.create_topic("t").partitions[0].log
    client = world.connect()
    world.run_jobs = False
    client.send(produce_request("t", large()), 9)
    client.send(produce_request("t", large()), 9)
    client.send(produce_request("t", batch(b"nobody asked for an answer"), acks=0), 9)
    world.core.connection_lost(client.connection)
    world.run_jobs = True
    world.turn()
    assert log.end_offset == 2, "the one that was being checked, and the one without an answer"
    assert not world.core.checking.lanes


def test_a_missing_key_in_a_large_batch():
    world = World()
    world.create_topic("t", cleanup_policy="compact")
    row = world.connect().produce("t", large(key=None))
    assert row.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in row.record_errors] == [0]


def test_a_batch_that_cannot_be_read_ends_the_cleaning_of_its_partition_alone(caplog):
    world = World({"log.cleaner.backoff.ms": 1000})
    options = {"cleanup_policy": "compact", "segment_ms": "1", "min_cleanable_dirty_ratio": "0"}
    bad, good = world.create_topic("bad", **options), world.create_topic("good", **options)
    client = world.connect()
    unreadable = resealed(build_batch([Record(0, world.now_ms, b"k", b"v")])[:61] + b"nonsense", count=1)
    bad.partitions[0].log.append(unreadable, leader_epoch=0, now_ms=world.now_ms)
    for number in range(6):
        world.now_ms += 10
        for name in ("bad", "good"):
            client.produce(name, build_batch([Record(0, world.now_ms, b"k", b"v%d" % number)]))
    world.advance(1000)
    assert b"v0" not in b"".join(map(bytes, good.partitions[0].log.read(0, 1 << 20)))
    (reason,) = world.core.maintenance.uncleanable.values()
    assert "compaction stopped" in reason and "uncleanable" in caplog.text
    caplog.clear()
    world.advance(1000)
    assert "bad" not in caplog.text, "it is not tried again and again"


def test_what_was_inflated_is_let_go_without_the_collector():
    """The broker's collector of garbage hardly ever runs: nothing may wait for it."""
    world = World()
    world.create_topic("t")
    client = world.connect()
    bad = build_batch([Record(0, 1_000_000, b"k", b"\0" * 2 * AT_ONCE_BYTES)], compression=Compression.GZIP)
    bad = resealed(bad, count=2)
    gc.collect()
    gc.disable()
    try:
        tracemalloc.start()
        for _ in range(20):
            assert client.produce("t", bad).error_code == ErrorCode.INVALID_RECORD
        assert tracemalloc.get_traced_memory()[0] < 6 * AT_ONCE_BYTES
    finally:
        tracemalloc.stop()
        gc.enable()
