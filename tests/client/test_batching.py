"""The producer's core as traces: what is sent when, what an answer does, how numbers and retries go. Virtual time."""

import random

import pytest

from kohort.client.batching import Batching, BatchingConfig, ProducerId, record_size
from kohort.client.errors import NotConnectedError
from kohort.client.partitioner import Sticky, key_partitioner, murmur2, partition_for_key
from kohort.client.types import TopicPartition
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import ProduceResponse
from kohort.records import kernel
from kohort.records.batch import Record, read_header, read_records

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
LEADERS = {T0: 7, T1: 7}


def make(**settings):
    core = Batching(BatchingConfig(**{"linger_ms": 5, "batch_size": 1000, **settings}), object)
    if core.config.idempotent:
        assert core.wants_producer_id
        core.use_producer_id(ProducerId(40, 0))
    return core


def put(core, tp, value, now_ms=0, key=None):
    record = Record(0, 1000 + now_ms, key, value, ())
    return core.append(tp, record, record_size(key, value, ()), now_ms)


def answer(*rows):
    """rows: (partition, error, base offset)."""
    parts = [
        ProduceResponse.PartitionProduceResponse(index=p, error_code=error, base_offset=base) for p, error, base in rows
    ]
    return ProduceResponse(responses=[ProduceResponse.TopicProduceResponse(name="t", partition_responses=parts)])


def sent(core, batches):
    """(partition, base sequence, producer id, values) of a request."""
    rows = []
    for topic in core.request(batches).topic_data:
        for part in topic.partition_data:
            header = read_header(part.records)
            values = [r.value for r in read_records(part.records, 0, header)]
            rows.append((part.index, header.base_sequence, header.producer_id, values))
    return rows


def test_a_batch_lingers_and_then_goes():
    core = make()
    put(core, T0, b"a")
    put(core, T0, b"b", now_ms=3)
    assert core.drain(4, LEADERS) == {}
    assert core.next_deadline() == 5
    (batch,) = core.drain(5, LEADERS)[7]
    assert sent(core, [batch]) == [(0, 0, 40, [b"a", b"b"])]
    (outcome,) = core.answered([batch], answer((0, 0, 90)), 6)
    assert outcome.parts[0].stored.base_offset == 90 and outcome.error is None
    assert (core.pending, core.buffered_bytes) == (0, 0)


def test_a_full_batch_does_not_linger_and_one_is_in_flight_per_partition():
    core = make()
    assert put(core, T0, b"x" * 600)[2] is True
    assert put(core, T0, b"y" * 600)[2] is True
    (first,) = core.drain(0, LEADERS)[7]
    assert core.drain(100, LEADERS) == {}
    core.answered([first], answer((0, 0, 0)), 100)
    (second,) = core.drain(100, LEADERS)[7]
    assert sent(core, [second]) == [(0, 1, 40, [b"y" * 600])]


def test_a_retry_keeps_its_place_and_its_numbers():
    core = make()
    put(core, T0, b"first")
    (batch,) = core.drain(5, LEADERS)[7]
    put(core, T0, b"second", now_ms=6)
    assert core.unanswered([batch], NotConnectedError("gone"), 10) == []
    assert core.drain(20, LEADERS) == {}
    assert core.next_deadline() == 110
    (again,) = core.drain(110, LEADERS)[7]
    assert again is batch and sent(core, [again]) == [(0, 0, 40, [b"first"])]
    (outcome,) = core.answered([again], answer((0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER, 3)), 120)
    assert outcome.error is None
    (second,) = core.drain(120, LEADERS)[7]
    assert sent(core, [second]) == [(0, 1, 40, [b"second"])]


def test_a_refusal_for_good_fails_the_batch_and_asks_for_a_new_id():
    core = make()
    put(core, T0, b"a")
    (batch,) = core.drain(5, LEADERS)[7]
    (outcome,) = core.answered([batch], answer((0, ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1)), 6)
    assert outcome.error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    put(core, T0, b"b", now_ms=6)
    assert core.wants_producer_id and core.drain(50, LEADERS) == {}
    core.use_producer_id(ProducerId(41, 0))
    assert sent(core, core.drain(50, LEADERS)[7]) == [(0, 0, 41, [b"b"])]


def test_a_new_id_waits_for_what_was_numbered_under_the_old_one():
    core = make()
    put(core, T0, b"a")
    put(core, T1, b"b")
    batches = core.drain(5, LEADERS)[7]
    core.answered(batches, answer((0, ErrorCode.UNKNOWN_PRODUCER_ID, -1), (1, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)), 6)
    assert not core.wants_producer_id
    (kept,) = core.drain(200, LEADERS)[7]
    assert sent(core, [kept]) == [(1, 0, 40, [b"b"])]
    core.answered([kept], answer((1, 0, 0)), 210)
    assert core.wants_producer_id
    core.use_producer_id(ProducerId(41, 0))
    assert sent(core, core.drain(210, LEADERS)[7]) == [(0, 0, 41, [b"a"])]


def test_a_batch_too_large_for_the_broker_is_sent_in_halves():
    core = make()
    for value in (b"a", b"b", b"c"):
        root, _, _ = put(core, T0, value)
    (batch,) = core.drain(5, LEADERS)[7]
    assert core.answered([batch], answer((0, ErrorCode.MESSAGE_TOO_LARGE, -1)), 6) == []
    (first,) = core.drain(6, LEADERS)[7]
    assert sent(core, [first]) == [(0, 0, 40, [b"a"])]
    assert core.answered([first], answer((0, 0, 10)), 7) == []
    (second,) = core.drain(7, LEADERS)[7]
    assert sent(core, [second]) == [(0, 1, 40, [b"b", b"c"])]
    (outcome,) = core.answered([second], answer((0, 0, 15)), 8)
    assert outcome.batch is root
    assert [(part.start, part.stored.base_offset) for part in outcome.parts] == [(0, 10), (1, 15)]
    assert core.buffered_bytes == 0


def test_what_is_not_stored_in_time_fails():
    core = make(delivery_timeout_ms=1000)
    put(core, T0, b"a")
    assert core.drain(5, {}) == {}
    assert core.expire(999) == []
    (outcome,) = core.expire(1000)
    assert "not stored within 1 s" in str(outcome.error)
    assert not core.wants_producer_id


def test_without_idempotence_nothing_is_numbered():
    core = make(idempotent=False, acks=1)
    put(core, T0, b"a")
    assert sent(core, core.drain(5, LEADERS)[7]) == [(0, -1, -1, [b"a"])]


def test_a_flush_does_not_linger():
    core = make()
    put(core, T0, b"a")
    core.flushing = True
    assert core.drain(0, LEADERS) and len(core.promises()) == 1


@pytest.mark.parametrize(
    ("key", "value"),
    [  # the values of Kafka's own UtilsTest
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_kafkas(key, value):
    assert murmur2(key) == value & 0xFFFFFFFF
    assert partition_for_key(key, 12) == (value & 0x7FFFFFFF) % 12


def test_the_kernel_puts_keys_where_python_does():
    chance = random.Random(3)
    of_key = key_partitioner()
    if kernel.load() is not None:
        assert of_key is not partition_for_key
    for length in [*range(40), 1000]:
        for partitions in (1, 2, 7, 4096, 2**31 - 1):
            key = b"\0" * (length % 3) + chance.randbytes(length)
            assert of_key(key, partitions) == partition_for_key(key, partitions)


def test_records_without_a_key_move_on_after_a_batch():
    sticky = Sticky(100, lambda: 0.0)
    assert [sticky.partition([0, 1, 2], 60) for _ in range(5)] == [0, 0, 1, 1, 0]
    assert sticky.partition([2], 60) == 2
