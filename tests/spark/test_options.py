"""Options: the right ones are understood, the wrong ones are refused with the name of the right one."""

from __future__ import annotations

import pytest

from kohort.client.producer_config import ProducerConfig
from kohort.client.types import TopicPartition
from kohort.spark.offsets import EARLIEST, LATEST
from kohort.spark.options import OptionError, parse_read_options, parse_write_options

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
BATCH = {**SERVERS, "subscribe": "orders"}
STREAM = {**BATCH, "group.id": "g"}


def test_a_stream_is_cooperative_and_starts_at_the_end() -> None:
    options = parse_read_options(STREAM, "stream")
    assert options.config()["partition.assignment.strategy"] == ["cooperative-sticky"]
    assert options.starting.number == LATEST and options.fail_on_data_loss and not options.include_headers


def test_a_bounded_read_covers_everything() -> None:
    options = parse_read_options(BATCH, "batch")
    assert (options.starting.number, options.ending.number) == (EARLIEST, LATEST)
    assert options.subscription.topics == ("orders",)


def test_names_are_not_case_sensitive_and_kafka_is_optional() -> None:
    given = {**STREAM, "STARTINGOFFSETS": "earliest", "kafka.Session.Timeout.Ms": "7000", "MaxOffsetsPerTrigger": "5"}
    options = parse_read_options(given, "stream")
    assert options.starting.number == EARLIEST and options.max_offsets_per_trigger == 5
    assert options.config()["session.timeout.ms"] == 7000


def test_offsets_by_partition() -> None:
    options = parse_read_options({**BATCH, "startingOffsets": '{"orders": {"0": 5, "1": -2}}'}, "batch")
    assert options.starting.by_partition == {TopicPartition("orders", 0): 5, TopicPartition("orders", 1): -2}


def test_timestamps() -> None:
    given = {**BATCH, "startingTimestamp": "1700000000000", "startingOffsetsByTimestampStrategy": "latest"}
    options = parse_read_options({**given, "endingOffsetsByTimestamp": '{"orders": {"0": 1}}'}, "batch")
    assert options.starting.kind == options.ending.kind == "timestamp"
    assert options.starting.missing_timestamp == "latest"


@pytest.mark.parametrize(
    ("mode", "given", "says"),
    [
        ("batch", {"subscribe": "t"}, "kafka.bootstrap.servers is missing"),
        ("batch", {"kafka.bootstrap.servers": "nowhere", "subscribe": "t"}, "not host:port"),
        ("batch", SERVERS, "use subscribe or subscribePattern or assign"),
        ("batch", {**BATCH, "subscribeTo": "x"}, "unknown option subscribeTo; did you mean subscribe"),
        ("batch", {**BATCH, "kafka.session.timeout": "1"}, "did you mean session.timeout.ms"),
        ("batch", {**BATCH, "kafka.fetch.max.byte": "1"}, "did you mean kafka.fetch.max.bytes"),
        ("batch", {**BATCH, "subscribePattern": "o.*"}, "subscribe and subscribePattern contradict each other"),
        ("batch", {**BATCH, "startingOffsets": "earliest", "startingTimestamp": "1"}, "contradict each other"),
        ("batch", {**BATCH, "startingOffsets": "latest"}, "would read nothing"),
        ("batch", {**BATCH, "startingOffsets": "first"}, "must be JSON such as"),
        ("batch", {**BATCH, "startingOffsets": '{"orders": {"0": -3}}'}, "the least allowed is -2"),
        ("batch", {**BATCH, "endingOffsets": "earliest"}, "would read nothing"),
        ("batch", {**BATCH, "startingOffsetsByTimestampStrategy": "latest"}, "needs startingTimestamp"),
        ("batch", {**BATCH, "group.id": "g"}, "a bounded read joins no group"),
        ("batch", {**BATCH, "maxOffsetsPerTrigger": "1"}, "is for streams"),
        ("batch", {**BATCH, "minPartitions": "0"}, "must be at least 1"),
        (
            "batch",
            {**BATCH, "minPartitions": "4", "maxPartitions": "3"},
            "maxPartitions=3 is less than minPartitions=4",
        ),
        ("batch", {**BATCH, "maxPartitions": "3", "maxRecordsPerPartition": "9"}, "contradict each other"),
        ("batch", {**BATCH, "failOnDataLoss": "no"}, "must be true or false"),
        ("batch", {**SERVERS, "subscribePattern": "("}, "not a regular expression"),
        ("batch", {**SERVERS, "assign": "orders"}, "assign must be JSON"),
        ("batch", {**BATCH, "kafka.isolation.level": "all"}, "read_uncommitted, read_committed"),
        ("stream", BATCH, "group.id is missing"),
        ("stream", {**STREAM, "kafka.group.id": "other"}, "both given and differ"),
        ("stream", {**STREAM, "endingOffsets": "latest"}, "a stream has no end"),
        ("stream", {**SERVERS, "group.id": "g", "assign": '{"t": [0]}'}, "the group assigns partitions"),
        ("stream", {**STREAM, "kafka.auto.offset.reset": "earliest"}, "use startingOffsets"),
        ("stream", {**STREAM, "kafka.enable.auto.commit": "true"}, "as soon as Spark has made a batch durable"),
        ("stream", {**STREAM, "groupIdPrefix": "x"}, "use group.id"),
        ("stream", {**STREAM, "heartbeat.interval.ms": "60000"}, "must be lower than"),
        ("stream", {**STREAM, "group.id": ""}, "group.id must not be empty"),
    ],
)
def test_refused(mode: str, given: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_read_options(given, mode)  # type: ignore[arg-type]
    assert says in str(caught.value)


def test_a_sink_is_idempotent() -> None:
    config = ProducerConfig(parse_write_options({**SERVERS, "topic": "out"}).producer)
    assert (config["enable.idempotence"], config["acks"]) == (True, -1)
    config = ProducerConfig(parse_write_options({**SERVERS, "topic": "out", "kafka.acks": "1"}).producer)
    assert (config["enable.idempotence"], config["acks"]) == (False, 1)  # as with Spark's own sink


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"topic": "out"}, "kafka.bootstrap.servers is missing"),
        ({**SERVERS, "topics": "out"}, "did you mean topic"),
        ({**SERVERS, "bootstrap.servers": "x:1"}, "did you mean kafka.bootstrap.servers"),
        ({**SERVERS, "topic": " "}, "topic is empty"),
        ({**SERVERS, "kafka.transactional.id": "t"}, "leave it out"),
    ],
)
def test_refused_by_the_sink(given: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_write_options(given)
    assert says in str(caught.value)
