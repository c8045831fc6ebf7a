"""Produce, batch by batch: what is stored, what is refused and with which code."""

import errno
import itertools

import pytest

from kohort.protocol import messages
from kohort.protocol.errors import ErrorCode
from kohort.records.batch import Compression, Record, build_batch, read_header, read_records
from wire import World, batch, fetch_request, produce_request


@pytest.fixture
def world():
    return World()


def stored(world, topic="t", partition=0):
    log = world.core.topics.partition(topic, partition).log
    found = []
    for part in log.read(log.start_offset, 1 << 20) if log.end_offset > log.start_offset else []:
        pos = 0
        while pos < len(part):
            header = read_header(part, pos)
            found += read_records(part, pos, header)
            pos += header.size
    return found


def test_acks_zero_has_no_answer_and_is_stored(world):
    world.create_topic("t")
    client = world.connect()
    client.send(produce_request("t", batch(b"a"), acks=0), 9)
    after = client.send(messages.MetadataRequest(topics=[]), 9)
    world.turn()
    assert client.order == [after]
    assert [record.value for record in stored(world)] == [b"a"]


def test_acks_zero_to_an_unknown_topic_closes_the_connection(world):
    client = world.connect()
    client.send(produce_request("nope", batch(b"a"), acks=0), 9)
    world.turn()
    assert client.connection.closed


@pytest.mark.parametrize("version", range(3, 13))
def test_every_version_by_name(world, version):
    world.create_topic("t")
    row = world.connect().produce("t", batch(b"a"), version=version)
    assert (row.error_code, row.base_offset) == (0, 0)


@pytest.mark.parametrize("topics", [[(0, 0)], [(0,), (0,)]])
def test_of_rows_for_the_same_partition_the_last_counts(world, topics):
    world.create_topic("t")
    kind, values = messages.ProduceRequest, itertools.count()
    request = kind(acks=-1, timeout_ms=1000)
    for indexes in topics:
        rows = [kind.PartitionProduceData(index=index, records=batch(b"%d" % next(values))) for index in indexes]
        request.topic_data.append(kind.TopicProduceData(name="t", partition_data=rows))
    (answer,) = world.connect().call(request, 9).responses
    assert [(row.index, row.error_code, row.base_offset) for row in answer.partition_responses] == [(0, 0, 0)]
    assert [record.value for record in stored(world)] == [b"1"]


def test_version_13_by_topic_id(world):
    topic = world.create_topic("t")
    request = produce_request("t", batch(b"a"))
    request.topic_data[0].topic_id = topic.topic_id
    row = world.connect().call(request, 13).responses[0]
    assert (row.topic_id, row.partition_responses[0].error_code) == (topic.topic_id, 0)
    request.topic_data[0].topic_id = b"x" * 16
    row = world.connect().call(request, 13).responses[0]
    assert row.partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (None, ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
        (b"\0" * 30, ErrorCode.CORRUPT_MESSAGE),
        (batch(b"a")[:-1], ErrorCode.INVALID_RECORD),
        (batch(b"a")[:-1] + b"!", ErrorCode.CORRUPT_MESSAGE),
        (batch(b"a") + batch(b"b"), ErrorCode.INVALID_RECORD),
        (batch(b"a", control=True), ErrorCode.INVALID_RECORD),
        (
            batch(b"a", transactional=True, producer_id=1, producer_epoch=0, base_sequence=0),
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
        (batch(b"a" * 2_000_000), ErrorCode.MESSAGE_TOO_LARGE),
        (batch(b"a", timestamp=10**13), ErrorCode.INVALID_TIMESTAMP),
    ],
)
def test_bad_batches_are_refused_and_leave_nothing(world, data, code):
    world.create_topic("t")
    client = world.connect()
    row = client.produce("t", data)
    assert (ErrorCode(row.error_code), row.base_offset) == (code, -1)
    assert stored(world) == []
    assert client.produce("t", batch(b"good")).error_code == 0


def test_old_message_formats_are_refused(world):
    world.create_topic("t")
    message_v1 = bytearray(batch(b"a"))
    message_v1[16] = 1
    assert world.connect().produce("t", bytes(message_v1)).error_code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


def test_unknown_topics_partitions_and_acks(world):
    world.create_topic("t")
    client = world.connect()
    assert client.produce("nope", batch(b"a")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert client.produce("t", batch(b"a"), partition=1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert client.produce("t", batch(b"a"), partition=-1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert client.produce("t", batch(b"a"), acks=2).error_code == ErrorCode.INVALID_REQUIRED_ACKS


def test_one_bad_partition_does_not_spoil_the_others(world):
    world.create_topic("t", 2)
    kind = messages.ProduceRequest
    rows = [
        kind.PartitionProduceData(index=0, records=b"junk"),
        kind.PartitionProduceData(index=1, records=batch(b"a")),
    ]
    request = kind(acks=1, timeout_ms=1, topic_data=[kind.TopicProduceData(name="t", partition_data=rows)])
    results = world.connect().call(request, 9).responses[0].partition_responses
    assert [(row.index, bool(row.error_code), row.base_offset) for row in results] == [(0, True, -1), (1, False, 0)]


def test_internal_topics_are_not_written_by_clients(world):
    world.create_topic("__consumer_offsets")
    assert world.connect().produce("__consumer_offsets", batch(b"a")).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def idempotent(sequence, *values, producer_id=7, epoch=0):
    return batch(*values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def test_a_retried_batch_is_acknowledged_with_its_first_offset_and_stored_once(world):
    world.create_topic("t")
    client = world.connect()
    assert client.produce("t", idempotent(0, b"a", b"b")).base_offset == 0
    assert client.produce("t", idempotent(2, b"c")).base_offset == 2
    assert client.produce("t", idempotent(0, b"a", b"b")).base_offset == 0
    assert [record.value for record in stored(world)] == [b"a", b"b", b"c"]


def test_batches_of_one_producer_in_one_turn_are_judged_in_order(world):
    world.create_topic("t")
    client = world.connect()
    for sequence in (0, 1, 2, 1, 5):
        client.send(produce_request("t", idempotent(sequence, b"%d" % sequence)), 9)
    world.turn()
    rows = [answer.responses[0].partition_responses[0] for answer in client.answers]
    assert [row.base_offset for row in rows] == [0, 1, 2, 1, -1]
    assert rows[-1].error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [record.value for record in stored(world)] == [b"0", b"1", b"2"]


def test_a_fenced_producer_is_told_so(world):
    world.create_topic("t")
    client = world.connect()
    client.produce("t", idempotent(0, b"a", epoch=1))
    assert client.produce("t", idempotent(0, b"b", epoch=0)).error_code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_producer_ids_are_never_given_out_twice(world):
    client = world.connect()
    seen = {client.call(messages.InitProducerIdRequest(transactional_id=None), 4).producer_id for _ in range(1500)}
    again = World(store=world.store)
    later = {again.connect().call(messages.InitProducerIdRequest(transactional_id=None), 4).producer_id}
    assert len(seen) == 1500 and not seen & later


def test_log_append_time(world):
    world.create_topic("t", message_timestamp_type="LogAppendTime")
    row = world.connect().produce("t", batch(b"a", timestamp=5))
    assert row.log_append_time_ms == world.now_ms
    assert [record.timestamp for record in stored(world)] == [world.now_ms]


def test_timestamps_too_old_are_refused(world):
    world.create_topic("t", message_timestamp_before_max_ms="1000")
    client = world.connect()
    assert client.produce("t", batch(b"a", timestamp=world.now_ms - 2000)).error_code == ErrorCode.INVALID_TIMESTAMP
    assert client.produce("t", batch(b"a", timestamp=world.now_ms - 500)).error_code == 0


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_a_topic_with_a_codec_of_its_own_stores_in_it(world, codec):
    world.create_topic("t", compression_type=codec)
    client = world.connect()
    client.produce("t", idempotent(0, b"a" * 100, b"b" * 100))
    client.produce("t", batch(b"c" * 100, compression=Compression.SNAPPY))
    parts = world.core.topics.partition("t", 0).log.read(0, 1 << 20)
    header = read_header(b"".join(parts))
    assert header.compression == {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}[codec]
    assert (header.producer_id, header.base_sequence) == (7, 0)
    assert [record.value[:1] for record in stored(world)] == [b"a", b"b", b"c"]


def test_a_compacted_topic_needs_keys(world):
    world.create_topic("t", cleanup_policy="compact")
    client = world.connect()
    row = client.produce("t", batch(b"a", b"b"))
    assert row.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in row.record_errors] == [0, 1]
    assert client.produce("t", build_batch([Record(0, 1, b"k", b"v")])).error_code == 0


def test_a_full_disk_fails_the_batch_and_the_next_one_is_stored(world):
    topic = world.create_topic("t")
    client = world.connect()
    client.produce("t", batch(b"a"))
    topic.partitions[0].log.faults.append_errors.append(errno.ENOSPC)
    row = client.produce("t", batch(b"b"))
    assert (row.error_code, row.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    assert client.produce("t", batch(b"c")).base_offset == 1
    assert [record.value for record in stored(world)] == [b"a", b"c"]


def test_with_fsync_always_the_answer_waits_for_the_disk():
    world = World({"kohort.fsync": "always"})
    log = world.create_topic("t").partitions[0].log
    log.faults.hold_flushes = True
    one, two = world.connect(), world.connect()
    one.send(produce_request("t", batch(b"a")), 9)
    world.turn()
    two.send(produce_request("t", batch(b"b")), 9)
    world.turn()
    assert one.answers == two.answers == []
    log.release_flushes()
    world.turn()
    rows = [client.answers[0].responses[0].partition_responses[0] for client in (one, two)]
    assert [(row.error_code, row.base_offset) for row in rows] == [(0, 0), (0, 1)]


def test_a_failed_sync_is_an_error_for_who_waits():
    world = World({"kohort.fsync": "always"})
    log = world.create_topic("t").partitions[0].log
    log.faults.hold_flushes = True
    client = world.connect()
    client.send(produce_request("t", batch(b"a")), 9)
    world.turn()
    log.faults.flush_errors.append(errno.EIO)
    log.release_flushes()
    world.turn()
    assert client.answers[0].responses[0].partition_responses[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_fetched_bytes_are_the_produced_ones_but_for_their_place(world):
    world.create_topic("t")
    client = world.connect()
    client.produce("t", batch(b"a"))
    sent = batch(b"x", b"y", compression=Compression.LZ4)
    client.produce("t", sent)
    records = client.call(fetch_request("t", 1), 12).responses[0].partitions[0].records
    assert bytes(records)[:8] == (1).to_bytes(8, "big")
    assert bytes(records)[16:] == sent[16:]


def test_a_log_that_fails_unexpectedly_is_an_answer_too(world, caplog):
    topic = world.create_topic("t")
    topic.partitions[0].log.append = lambda *_, **__: 1 / 0
    row = world.connect().produce("t", batch(b"a"))
    assert row.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "ZeroDivisionError" in caplog.text
