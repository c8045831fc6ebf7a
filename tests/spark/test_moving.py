"""The page that compares options with those of Spark's own Kafka source has all of them, and says what happens here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kohort.spark.options import OptionError, parse_read_options, parse_write_options

PAGE = (Path(__file__).parents[2] / "docs" / "moving-from-sparks-source.md").read_text()
BATCH = {"kafka.bootstrap.servers": "b:9092", "subscribe": "t"}
STREAM = {**BATCH, "group.id": "g"}
SINK = {"kafka.bootstrap.servers": "b:9092", "topic": "t"}
TIMES = '{"t": {"0": 1}}'

SAME = [
    ({"kafka.bootstrap.servers": "b:9092", "subscribePattern": "t.*"}, "batch"),
    ({"kafka.bootstrap.servers": "b:9092", "assign": '{"t": [0]}'}, "batch"),
    ({**BATCH, "startingOffsets": "earliest", "endingOffsets": "latest"}, "batch"),
    ({**BATCH, "startingTimestamp": "1", "endingTimestamp": "2"}, "batch"),
    ({**BATCH, "startingOffsetsByTimestamp": TIMES, "endingOffsetsByTimestamp": TIMES}, "batch"),
    ({**STREAM, "startingTimestamp": "1", "startingOffsetsByTimestampStrategy": "latest"}, "stream"),
    ({**BATCH, "failOnDataLoss": "false", "minPartitions": "2", "maxRecordsPerPartition": "9"}, "batch"),
    ({**STREAM, "maxOffsetsPerTrigger": "9", "minOffsetsPerTrigger": "5", "maxTriggerDelay": "15m"}, "stream"),
    ({**BATCH, "includeHeaders": "true", "kafka.isolation.level": "read_committed", "kafka.client.rack": "r"}, "batch"),
    ({**BATCH, "kafka.group.id": "g"}, "stream"),
]
"""What Spark's documentation lists for its source, taken here as it is."""
OTHER = (
    "groupIdPrefix", "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs",
    "kafka.auto.offset.reset", "kafka.enable.auto.commit", "kafka.key.deserializer", "kafka.value.deserializer",
    "kafka.interceptor.classes", "kafka.max.poll.records",
)  # fmt: skip
"""Refused, with what to do instead."""
OTHER_OF_THE_SINK = (
    "kafka.partitioner.class", "kafka.key.serializer", "kafka.value.serializer", "kafka.interceptor.classes",
)  # fmt: skip
OF_THE_SESSION = (
    "spark.sql.streaming.kafka.useDeprecatedOffsetFetching", "spark.kafka.clusters.", "spark.kafka.consumer.cache.",
    "spark.kafka.consumer.fetchedData.cache.", "spark.kafka.producer.cache.",
    "spark.security.credentials.kafka.enabled",
)  # fmt: skip


def test_every_option_of_sparks_source_and_sink_is_on_the_page() -> None:
    names = {name for options, _ in SAME for name in options} - {"group.id"}
    wanted = {*names, *OTHER, *OTHER_OF_THE_SINK, "topic", "includeHeaders"}
    written = set(re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)))
    assert not wanted - written
    assert not [name for name in OF_THE_SESSION if not any(text.startswith(name) for text in written)]


@pytest.mark.parametrize(("options", "mode"), SAME)
def test_what_is_the_same_is_taken(options: dict[str, str], mode: str) -> None:
    parse_read_options(options, mode)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", OTHER)
def test_what_is_not_here_says_what_is(name: str) -> None:
    for given, mode in ((BATCH, "batch"), (STREAM, "stream")):
        with pytest.raises(OptionError, match=f"{re.escape(name)} is not an option of this source: ."):
            parse_read_options({**given, name: "1"}, mode)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", OTHER_OF_THE_SINK)
def test_what_is_not_in_the_sink_says_what_is(name: str) -> None:
    with pytest.raises(OptionError, match=f"{re.escape(name)} is not an option of this sink: ."):
        parse_write_options({**SINK, name: "1"})


@pytest.mark.parametrize("two", [("startingTimestamp", "startingOffsets"), ("endingTimestamp", "endingOffsets")])
def test_two_that_spark_has_an_order_for_are_an_error(two: tuple[str, str]) -> None:
    with pytest.raises(OptionError, match="contradict each other"):
        parse_read_options({**BATCH, two[0]: "1", two[1]: "latest"}, "batch")
