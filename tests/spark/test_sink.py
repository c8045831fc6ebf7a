"""The sink without Spark: which frames it takes, what reaches the topic, what a refusal looks like."""

from __future__ import annotations

import pyarrow as pa
import pytest
from confluent_kafka import Consumer
from pyspark.sql.types import StructType

import kohort
from kohort.client.partitioner import partition_for_key
from kohort.protocol.errors import ErrorCode
from kohort.spark.options import OptionError, parse_write_options
from kohort.spark.sink import WriteError, check_columns, write
from kohort.spark.sink_rows import gathered
from spark.query import create, unique

SERVERS = {"kafka.bootstrap.servers": "localhost:1"}


def schema(ddl: str) -> StructType:
    fields = StructType()
    for column in ddl.split(", "):
        name, kind = column.split(" ")
        fields = fields.add(name, kind)
    return fields


def consumed(servers: str, topics: list[str], count: int) -> list[tuple[str, int, bytes | None, bytes | None]]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": unique(), "auto.offset.reset": "earliest"})
    consumer.subscribe(topics)
    found: list[tuple[str, int, bytes | None, bytes | None]] = []
    while len(found) < count:
        arrived = [message for message in consumer.consume(count, 1) if message.error() is None]
        found += [(message.topic(), message.partition(), message.key(), message.value()) for message in arrived]
    consumer.close()
    return found


@pytest.mark.parametrize(
    ("ddl", "options", "says"),
    [
        ("key string", {"topic": "t"}, "a column value is needed"),
        ("value string", {}, "no topic to write to"),
        ("value integer", {"topic": "t"}, "must be string or binary, not int"),
        ("value string, partition long", {"topic": "t"}, "column partition must be int"),
        ("value string", {"topic": "t", "includeHeaders": "true"}, "needs a column headers"),
    ],
)
def test_a_frame_that_cannot_be_written(ddl: str, options: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError) as caught:
        check_columns(schema(ddl), parse_write_options({**SERVERS, **options}), overwrite=False)
    assert says in str(caught.value)


def test_a_topic_cannot_be_overwritten() -> None:
    with pytest.raises(OptionError, match="append"):
        check_columns(schema("value string"), parse_write_options({**SERVERS, "topic": "t"}), overwrite=True)


def test_the_option_topic_wins_over_the_column() -> None:
    frame = schema("topic string, value string")
    assert check_columns(frame, parse_write_options(SERVERS), False) == ("topic", "value")
    assert check_columns(frame, parse_write_options({**SERVERS, "topic": "t"}), False) == ("value",)


def test_other_columns_are_left_alone() -> None:
    frame = schema("key binary, value binary, topic string, partition integer, offset long, timestamp timestamp")
    assert check_columns(frame, parse_write_options({**SERVERS, "topic": "t"}), False) == ("key", "value", "partition")


def test_a_key_goes_where_javas_producers_put_it(servers: str) -> None:
    topic, keys = unique("keyed"), [f"key {number}" for number in range(40)]
    create(servers, topic, 5)
    options = parse_write_options({"kafka.bootstrap.servers": servers, "topic": topic})
    write(options, ("key", "value"), iter([pa.record_batch({"key": keys, "value": keys})]))
    places = [(partition, key) for _, partition, key, _ in consumed(servers, [topic], len(keys))]
    assert sorted(places) == sorted((partition_for_key(key.encode(), 5), key.encode()) for key in keys)


def test_rows_reach_their_topics(servers: str) -> None:
    topics = [unique("a"), unique("b")]
    for topic in topics:
        create(servers, topic, 1)
    rows = pa.record_batch(
        {"topic": [topics[0], topics[1], topics[0]], "key": ["k", None, "l"], "value": ["1", "2", None]}
    )
    options = parse_write_options({"kafka.bootstrap.servers": servers})
    assert write(options, ("topic", "key", "value"), iter([rows])).records == 3
    found = [(topic, key, value) for topic, _, key, value in consumed(servers, topics, 3)]
    assert sorted(found, key=str) == sorted(
        [(topics[0], b"k", b"1"), (topics[1], None, b"2"), (topics[0], b"l", None)], key=str
    )


def test_a_refused_record_fails_the_task(servers: str) -> None:
    topic = unique("small")
    create(servers, topic, 1, max_message_bytes="200")
    options = parse_write_options({"kafka.bootstrap.servers": servers, "topic": topic})
    with pytest.raises(WriteError, match=rf"{topic}.*a row is too large.*max\.message\.bytes"):
        write(options, ("value",), iter([pa.record_batch({"value": [b"x" * 1000]})]))


def test_a_row_that_the_producer_refuses_says_what_to_raise(servers: str) -> None:
    options = parse_write_options({"kafka.bootstrap.servers": servers, "topic": "t"})
    with pytest.raises(WriteError, match=r"row 1 has 20000\d\d bytes.*kafka\.max\.request\.size"):
        write(options, ("value",), iter([pa.record_batch({"value": [b"x", b"x" * 2_000_000]})]))


@pytest.mark.parametrize("header", [None, {"key": None, "value": b"1"}])
def test_a_null_header_is_an_error_that_says_what_to_do(servers: str, header: dict[str, object] | None) -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    rows = pa.record_batch({"value": [b"x"], "headers": pa.array([[header]], kind)})
    options = parse_write_options({"kafka.bootstrap.servers": servers, "topic": "t"})
    with pytest.raises(WriteError, match="filter"):
        write(options, ("value", "headers"), iter([rows]))


def test_null_values_and_null_arrays_of_headers_are_written(servers: str) -> None:
    topic = unique("headers")
    create(servers, topic, 1)
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    rows = pa.record_batch({"value": [b"x", b"y"], "headers": pa.array([[{"key": "k", "value": None}], None], kind)})
    options = parse_write_options({"kafka.bootstrap.servers": servers, "topic": topic})
    assert write(options, ("value", "headers"), iter([rows])).records == 2


def test_a_producer_that_has_failed_is_replaced(servers: str, broker: kohort.Broker) -> None:
    topic = unique("out")
    create(servers, topic, 1)
    options = parse_write_options({"kafka.bootstrap.servers": servers, "topic": topic})
    rows = pa.record_batch({"value": [b"x"]})
    assert write(options, ("value",), iter([rows])).records == 1
    broker.faults.fail("Produce", ErrorCode.TOPIC_AUTHORIZATION_FAILED, topic=topic)
    with pytest.raises(WriteError, match="TOPIC_AUTHORIZATION_FAILED"):
        write(options, ("value",), iter([rows]))
    assert write(options, ("value",), iter([rows])).records == 1
    assert len(consumed(servers, [topic], 2)) == 2


def test_brokers_that_cannot_be_reached_are_told_of() -> None:
    given = {**SERVERS, "topic": "t", "kafka.max.block.ms": "200"}
    with pytest.raises(WriteError, match=r"kafka\.max\.block\.ms|no topic t within"):
        write(parse_write_options(given), ("value",), iter([pa.record_batch({"value": [b"x"]})]))


def test_a_topic_that_does_not_exist(servers: str) -> None:
    given = {"kafka.bootstrap.servers": servers, "topic": "missing", "kafka.max.block.ms": "300"}
    options = parse_write_options({**given, "kafka.allow.auto.create.topics": "false"})
    with pytest.raises(WriteError, match="no topic missing within"):
        write(options, ("value",), iter([pa.record_batch({"value": [b"x"]})]))


def test_a_task_without_rows_writes_none(servers: str) -> None:
    options = parse_write_options({"kafka.bootstrap.servers": servers, "topic": "t"})
    assert write(options, ("value",), iter([])).records == 0


def test_small_batches_of_spark_are_put_together_but_for_the_first() -> None:
    small = [pa.record_batch({"value": [str(n)] * 10_000, "other": [n] * 10_000}) for n in range(9)]
    tables = list(gathered(("value",), iter(small)))
    assert [table.num_rows for table in tables] == [10_000, 70_000, 10_000]
    assert tables[1].schema.names == ["value"]


def test_a_null_topic_is_an_error(servers: str) -> None:
    rows = pa.record_batch({"topic": pa.array([None], pa.string()), "value": [b"x"]})
    with pytest.raises(WriteError, match="null topic"):
        write(parse_write_options({"kafka.bootstrap.servers": servers}), ("topic", "value"), iter([rows]))


@pytest.mark.parametrize(("name", "says"), [("no.such.thing", r"no\.such\.thing"), ("linger", r"linger\.ms")])
def test_a_setting_that_the_producer_does_not_know_is_refused(name: str, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        parse_write_options({**SERVERS, "topic": "t", f"kafka.{name}": "1"})
