"""`send_columns` against a broker: the rows that `send` would have stored, and what is said where it cannot be."""

import asyncio
import random
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest

import kohort
from kohort.client import AsyncProducer, KafkaError, TopicPartition
from kohort.client import column_batches as columns
from kohort.client.batching import Batching, BatchingConfig, ProducerId
from kohort.client.partitioner import Sticky, partition_for_key
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import ProduceResponse
from kohort.records import kernel
from kohort.records.batch import read_header
from kohort.records.columns import HEADERS_TYPE
from kohort.records.encode_columns import Rows

LIMIT_S = 60
PARTITIONS = 4


@pytest.fixture(scope="module")
def broker():
    with kohort.Broker(config={"num.partitions": PARTITIONS}) as running:
        yield running


def producer(broker, **settings):
    return kohort.Producer(bootstrap_servers=broker.bootstrap_servers, **settings)


def stored(broker, topic, **settings):
    given = {"auto_offset_reset": "earliest", **settings}
    with kohort.Consumer(bootstrap_servers=broker.bootstrap_servers, **given) as consumer:
        partitions = [TopicPartition(topic, p.partition) for p in consumer.partitions_for(topic)]
        ends = consumer.end_offsets(partitions)
        consumer.assign(partitions)
        records = []
        while any(consumer.position(tp) < end for tp, end in ends.items()):
            records += consumer.poll(1)
    return sorted(records, key=lambda r: (r.partition, r.offset))


def table(rows=1000, **more):
    keys = [f"key {n}" for n in range(rows)]
    return pa.table({"key": keys, "value": [f"{n}" for n in range(rows)], **more})


@pytest.fixture(params=["kernel", "python"])
def path(request):
    found = kernel.load() if request.param == "kernel" else None
    if request.param == "kernel" and found is None:
        pytest.skip("no compiler was there to build the kernel")
    with mock.patch.object(kernel, "load", lambda: found):
        yield request.param


def test_rows_are_stored_as_single_sends_would_store_them(broker, path):
    topic = f"as-sent-{path}"
    headers = pa.array([[{"key": "h", "value": b"x"}] if n % 2 else None for n in range(1000)], HEADERS_TYPE)
    times = pa.array(range(1, 1001), pa.timestamp("ms"))
    with producer(broker, batch_size=5000) as p:
        found = p.send_columns(topic, table(headers=headers, timestamp=times)).result(LIMIT_S)
    records = stored(broker, topic)
    by_key = {r.key.decode(): r for r in records}
    assert len(records) == len(by_key) == 1000
    for n in range(1000):
        record = by_key[f"key {n}"]
        assert (record.value, record.timestamp) == (b"%d" % n, n + 1)
        assert record.headers == ((("h", b"x"),) if n % 2 else ())
        assert record.partition == partition_for_key(record.key, PARTITIONS)
    counts = {p: sum(r.partition == p for r in records) for p in range(PARTITIONS)}
    assert found == [kohort.StoredRows(topic, p, 0, counts[p]) for p in range(PARTITIONS)]
    for number in range(PARTITIONS):  # rows of a partition keep their order
        values = [int(r.value) for r in records if r.partition == number]
        assert values == sorted(values)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_every_codec(broker, codec):
    with producer(broker, compression_type=codec, batch_size=3000) as p:
        p.send_columns(f"columns-{codec}", table(partition=pa.array([2] * 1000))).result(LIMIT_S)
    assert [(r.partition, int(r.value)) for r in stored(broker, f"columns-{codec}")] == [(2, n) for n in range(1000)]


def test_sends_and_columns_keep_their_order_and_a_small_buffer_only_makes_them_wait(broker):
    with producer(broker, buffer_memory=4000, batch_size=1000, linger_ms=1) as p:
        for start in range(0, 600, 200):
            p.send("mixed", str(start), partition=0)
            values = [str(n) for n in range(start + 1, start + 199)]
            p.send_columns("mixed", pa.table({"value": values, "partition": [0] * 198}))
            p.send("mixed", str(start + 199), partition=0)
    assert [int(r.value) for r in stored(broker, "mixed")] == list(range(600))


def test_rows_without_a_key_stay_together_until_a_batch_is_full(broker):
    with producer(broker, batch_size=2000) as p:
        found = p.send_columns("loose", pa.table({"value": ["x" * 80] * 2000})).result(LIMIT_S)
    assert {row.partition for row in found} == set(range(PARTITIONS))
    assert sum(row.rows for row in found) == 2000


def test_a_column_says_the_topic(broker):
    topics = ["one", "two", "one", "three"]
    with producer(broker) as p:
        p.send_columns(None, pa.table({"topic": topics, "value": ["a", "b", "c", "d"]})).result(LIMIT_S)
    assert [r.value for r in stored(broker, "one")] == [b"a", b"c"]
    assert [r.value for r in stored(broker, "two") + stored(broker, "three")] == [b"b", b"d"]


def test_a_batch_the_topic_refuses_is_divided(broker):
    with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics([kohort.NewTopic("narrow", 1, 1, configs={"max.message.bytes": "500"})])
    with producer(broker) as p:
        found = p.send_columns("narrow", table(100)).result(LIMIT_S)
        assert found == [kohort.StoredRows("narrow", 0, 0, 100)]
        assert p._async._batching.buffered_bytes == 0
        refused = p.send_columns("narrow", pa.table({"value": ["fine", "x" * 600, "fine too"]}))
        with pytest.raises(KafkaError) as caught:
            refused.result(LIMIT_S)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert caught.value.__notes__ == ["1 of 3 rows are not stored"]
    assert [int(r.value) for r in stored(broker, "narrow")[:100]] == list(range(100))


def test_a_restart_of_the_broker_neither_loses_nor_doubles(broker):
    with producer(broker, batch_size=500) as p:
        first = p.send_columns("restarted", table(300, partition=pa.array([1] * 300)))
        broker.restart()
        first.result(LIMIT_S)
        p.send_columns("restarted", table(300, partition=pa.array([1] * 300))).result(LIMIT_S)
    assert [int(r.value) for r in stored(broker, "restarted")] == [*range(300), *range(300)]


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_in_a_transaction(broker, end):
    with producer(broker, transactional_id=f"columns-{end}") as p:
        p.begin()
        p.send_columns(f"txn-{end}", table(50))
        getattr(p, end)()
        with pytest.raises(KafkaError, match=r"send_columns\(\).*begin\(\)"):
            p.send_columns(f"txn-{end}", table(1))
    kept = stored(broker, f"txn-{end}", isolation_level="read_committed")
    assert len(kept) == (50 if end == "commit" else 0)


def test_asyncio(broker):
    async def main():
        async with AsyncProducer(bootstrap_servers=broker.bootstrap_servers, batch_size=1000) as p:
            delivery = await p.send_columns("awaited", table(500))
            return sum(row.rows for row in await delivery)

    assert asyncio.run(main()) == 500
    assert len(stored(broker, "awaited")) == 500


def test_acks_0_and_nothing_to_send(broker):
    with producer(broker, acks=0) as p:
        (row,) = p.send_columns("unknown", table(5, partition=pa.array([0] * 5))).result(LIMIT_S)
        assert row == ("unknown", 0, -1, 5)
        assert p.send_columns("unknown", table(0)).result(LIMIT_S) == []


@pytest.mark.parametrize(
    ("topic", "data", "says"),
    [
        ("t", {"valeu": ["a"]}, "unknown columns valeu: select from key, value, headers, timestamp, partition"),
        ("t", {"topic": ["a"], "value": ["a"]}, "give None for the topic"),
        ("t", {"timestamp": [1]}, "a column value is needed"),
        (None, {"value": ["a"]}, "no topic to write to"),
        (None, {"value": ["a", "b"], "topic": ["t", None]}, "row 1 has a null topic"),
        ("t", {"value": ["a", "b"], "timestamp": [1, -1]}, "row 1 has the timestamp -1"),
    ],
)
def test_columns_that_cannot_be_sent(broker, topic, data, says):
    with producer(broker) as p, pytest.raises(ValueError, match=says):
        p.send_columns(topic, pa.table(data))


def test_what_is_no_table_is_refused(broker):
    with producer(broker) as p, pytest.raises(TypeError, match="as an Arrow table"):
        p.send_columns("t", 17)


def test_nothing_is_sent_where_a_row_cannot_be(broker):
    with producer(broker, max_request_size=1000) as p:
        with pytest.raises(KafkaError, match=r"row 70000 has 20\d\d bytes, more than max.request.size=1000"):
            p.send_columns("whole", pa.table({"value": [*["a"] * 70_000, "x" * 2000]}))
        with pytest.raises(KafkaError, match=r"row 1: whole has partitions 0 to 3, not 9"):
            p.send_columns("whole", pa.table({"value": ["a", "b"], "partition": [0, 9]}))
        p.flush()
    assert stored(broker, "whole") == []


def test_a_missing_topic_is_told(broker):
    patient = producer(broker, max_block_ms=300, allow_auto_create_topics=False)
    with patient as p, pytest.raises(KafkaError, match="no topic absent within"):
        p.send_columns("absent", table(1))


def test_without_arrow_it_says_what_to_install(broker):
    missing = mock.patch.dict("sys.modules", {"kohort.client.column_batches": None})
    with producer(broker) as p, missing, pytest.raises(ImportError, match=r"kohort\[arrow\]"):
        p.send_columns("t", {})


# -- the core, without a broker --------------------------------------------------------------------------------------

T0 = TopicPartition("t", 0)


def test_an_encoded_batch_is_numbered_sent_at_once_and_let_go():
    core = Batching(BatchingConfig(linger_ms=50), object)
    core.use_producer_id(ProducerId(40, 3))
    rows = Rows(pa.record_batch({"value": pa.array(["a", "b", "c"])}), 5)
    batch, news = core.append_encoded(T0, rows.encode(np.arange(3)), 0)
    assert news
    other, place, _ = core.append(T0, rows.encode(np.arange(1)).records()[0], 30, 0)
    assert (other is batch, place) == (False, 0)  # nothing is added to it
    assert core.drain(0, {T0: 1}) == {1: [batch]}
    assert not core.append_encoded(T0, rows.encode(np.arange(3)), 0)[1]  # its turn comes with the answer
    (part,) = core.request([batch]).topic_data[0].partition_data
    header = read_header(part.records)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.record_count) == (40, 3, 0, 3)
    answer = ProduceResponse.PartitionProduceResponse(index=0, error_code=0, base_offset=7)
    response = ProduceResponse(responses=[ProduceResponse.TopicProduceResponse(name="t", partition_responses=[answer])])
    core.answered([batch], response, 1)
    assert batch.encoded is None
    assert core.drain(50, {T0: 1}) == {1: [other]} and other.sequence == 3


def test_batches_take_turns_and_hold_every_row_once():
    rows = Rows(pa.record_batch({"value": pa.array([b"x" * (n % 50) for n in range(500)])}), 5)
    sticky = Sticky(700, random.Random(1).random)
    places = columns.place(rows, 5, [0, 1, 3], sticky, 700)
    assert set(places.tolist()) == {0, 1, 3}
    made = columns.batches(rows, places, 700)
    assert sorted(row for _, order in made for row in order.tolist()) == list(range(500))
    assert all(rows.sizes[order].sum() <= 700 for _, order in made)
    assert [number for number, _ in made[:3]] == [0, 1, 3]
