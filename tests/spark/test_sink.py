"""The sink without Spark: which frames it takes, what reaches the topic, what a refusal looks like."""

from __future__ import annotations

import pyarrow as pa
import pytest
from confluent_kafka import Consumer
from pyspark.sql.types import StructType

from kohort.spark.options import OptionError, parse_write_options
from kohort.spark.sink import WriteError, check_columns, write
from spark.query import create, unique

SERVERS = {"kafka.bootstrap.servers": "localhost:1"}


def schema(ddl: str) -> StructType:
    fields = StructType()
    for column in ddl.split(", "):
        name, kind = column.split(" ")
        fields = fields.add(name, kind)
    return fields


@pytest.mark.parametrize(
    ("ddl", "options", "says"),
    [
        ("key string", {"topic": "t"}, "a column value is needed"),
        ("value string", {}, "no topic to write to"),
        ("value integer", {"topic": "t"}, "must be string or binary, not int"),
        ("value string, partition long", {"topic": "t"}, "column partition must be int"),
        ("value string, colour string", {"topic": "t"}, "no use for column 'colour'"),
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


def test_rows_reach_their_topics(servers: str) -> None:
    topics = [unique("a"), unique("b")]
    for topic in topics:
        create(servers, topic, 1)
    rows = pa.record_batch(
        {"topic": [topics[0], topics[1], topics[0]], "key": ["k", None, "l"], "value": ["1", "2", None]}
    )
    options = parse_write_options({"kafka.bootstrap.servers": servers})
    assert write(options, ("topic", "key", "value"), iter([rows])).records == 3
    consumer = Consumer({"bootstrap.servers": servers, "group.id": unique(), "auto.offset.reset": "earliest"})
    consumer.subscribe(topics)
    found = []
    while len(found) < 3:
        found += [(m.topic(), m.key(), m.value()) for m in consumer.consume(3, 1) if m.error() is None]
    consumer.close()
    assert sorted(found, key=str) == sorted(
        [(topics[0], b"k", b"1"), (topics[1], None, b"2"), (topics[0], b"l", None)], key=str
    )


def test_a_refused_record_fails_the_task(servers: str) -> None:
    topic = unique("small")
    create(servers, topic, 1, max_message_bytes="200")
    options = parse_write_options({"kafka.bootstrap.servers": servers, "topic": topic})
    with pytest.raises(WriteError, match=topic):
        write(options, ("value",), iter([pa.record_batch({"value": [b"x" * 1000]})]))


def test_a_null_topic_is_an_error(servers: str) -> None:
    rows = pa.record_batch({"topic": pa.array([None], pa.string()), "value": [b"x"]})
    with pytest.raises(WriteError, match="null topic"):
        write(parse_write_options({"kafka.bootstrap.servers": servers}), ("topic", "value"), iter([rows]))


def test_a_setting_librdkafka_does_not_know_is_refused(servers: str) -> None:
    options = parse_write_options({"kafka.bootstrap.servers": servers, "topic": "t", "kafka.no.such.thing": "1"})
    with pytest.raises(OptionError, match=r"no\.such\.thing"):
        write(options, ("value",), iter([pa.record_batch({"value": [b"x"]})]))
