"""What a user of a real Spark is told: wrong options, what a query waits for, what a stop leaves behind."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from pyspark.errors import StreamingQueryException

from kohort.spark.metrics import PrometheusListener
from spark.query import committed, create, numbers, produce, unique
from spark.streams import patiently

pytestmark = pytest.mark.timeout(300)


def start(spark: Any, servers: str, folder: Path, trigger: dict[str, Any] | None = None, **options: str) -> Any:
    reader = spark.readStream.format("kohort").option("kafka.bootstrap.servers", servers)
    settings = {name.replace("_", "."): value for name, value in options.items()}
    writer = reader.options(**settings).load().writeStream.format("noop").option("checkpointLocation", str(folder))
    return (writer.trigger(**trigger) if trigger else writer).start()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"subscribe": "orders"}, "group.id is missing: the consumer group this query joins"),
        ({"group_id": "g", "subscribe": "orders", "startingOffsets": "earlier"}, "startingOffsets must be JSON"),
        ({"group_id": "g", "subscribe": "a", "subscribePattern": "b"}, "contradict each other"),
        ({"group_id": "g", "subscribe": "no-topic", "startingOffsets": '{"no-topic": {"0": 1}}'}, "names no-topic-0"),
    ],
)
def test_a_streams_wrong_option_is_an_error_that_says_so(
    spark: Any, servers: str, tmp_path: Path, options: dict[str, str], says: str
) -> None:
    query = start(spark, servers, tmp_path, **options)
    patiently(lambda: not query.isActive, "the query has failed")
    assert says in str(query.exception()) and "UnboundLocalError" not in str(query.exception())


def test_a_query_on_a_topic_that_does_not_exist_says_so_and_reads_it_once_it_does(
    spark: Any, servers: str, tmp_path: Path
) -> None:
    topic, group = unique("late"), unique()
    query = start(spark, servers, tmp_path, group_id=group, subscribe=topic, metadata_max_age_ms="500")

    def reports() -> list[Any]:
        return [source for progress in query.recentProgress for source in progress["sources"]]

    patiently(lambda: any("does not exist, waiting for it" in (one["latestOffset"] or "") for one in reports()), "it")
    create(servers, topic)
    produce(servers, topic, numbers(0, 40))
    patiently(lambda: sum(one["numInputRows"] for one in reports()) == 40, "all is read, though latest is the default")
    query.stop()


def test_tls_against_a_plain_port_is_in_the_progress_and_then_the_querys_error(
    spark: Any, servers: str, tmp_path: Path
) -> None:
    """Nothing has been read then, so processAllAvailable() does not return as if it had."""
    query = start(
        spark, servers, tmp_path, group_id=unique(), subscribe="orders",
        kafka_security_protocol="SSL", kafka_default_api_timeout_ms="5000",
    )  # fmt: skip
    why = "security.protocol=SSL: is that what this port speaks?"
    with pytest.raises(StreamingQueryException, match=re.escape(why)):
        query.processAllAvailable()
    (progress,) = query.recentProgress
    assert why in json.loads(progress["sources"][0]["latestOffset"])["waiting"]


def test_a_trigger_that_fires_once_reads_all_or_fails(spark: Any, servers: str, tmp_path: Path) -> None:
    """It has no second batch in which to read what it had to wait for in the first."""
    topic, once = unique("orders"), {"once": True}
    create(servers, topic)
    produce(servers, topic, numbers(0, 40))
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "3"}
    good = start(spark, servers, tmp_path / "good", once, group_id=unique(), **options)
    bad = start(
        spark, servers, tmp_path / "bad", once, group_id=unique(), subscribe=topic,
        kafka_security_protocol="SSL", kafka_default_api_timeout_ms="3500",
    )  # fmt: skip
    patiently(lambda: not good.isActive and not bad.isActive, "both have ended")
    assert good.exception() is None and sum(one["numInputRows"] for one in good.recentProgress) == 40
    assert "security.protocol=SSL: is that what this port speaks?" in str(bad.exception())


def test_available_now_on_a_topic_that_does_not_exist_fails(spark: Any, servers: str, tmp_path: Path) -> None:
    query = start(spark, servers, tmp_path, {"availableNow": True}, group_id=unique(), subscribe="no-such-topic")
    patiently(lambda: not query.isActive, "the query has ended")
    assert "no such topic or partition: no-such-topic" in str(query.exception())


def test_a_stop_between_triggers_leaves_nothing_uncommitted(spark: Any, servers: str, tmp_path: Path) -> None:
    topic, group = unique("orders"), unique()
    create(servers, topic)
    produce(servers, topic, numbers(0, 40))
    query = start(
        spark, servers, tmp_path, {"processingTime": "1 hour"},
        group_id=group, subscribe=topic, startingOffsets="earliest", checkpointLocation=str(tmp_path),
    )  # fmt: skip

    def finished() -> bool:
        commits, offsets = tmp_path / "commits", tmp_path / "offsets"
        done = [path for path in commits.glob("[0-9]*") if topic in (offsets / path.name).read_text()]
        return any("[0, 10]" in (offsets / path.name).read_text() for path in done)

    patiently(finished, "the batch is in Spark's commit log")
    assert json.dumps(committed(servers, group, topic)) == json.dumps({0: 0, 1: 0, 2: 0, 3: 0})
    query.stop()
    patiently(lambda: committed(servers, group, topic) == {0: 10, 1: 10, 2: 10, 3: 10}, "and in the group")


def test_prometheus_sees_the_lag_of_a_query(spark: Any, servers: str, tmp_path: Path) -> None:
    registry = CollectorRegistry()
    listener = PrometheusListener(registry)
    spark.streams.addListener(listener)
    topic = unique("orders")
    create(servers, topic)
    produce(servers, topic, numbers(0, 40))
    query = start(spark, servers, tmp_path, group_id=unique(), subscribe=topic, startingOffsets="earliest")
    labels = {"query": str(query.id), "topic": topic, "partition": "0"}
    patiently(lambda: registry.get_sample_value("kohort_spark_rows_total", {"query": str(query.id)}) == 40, "the rows")
    assert registry.get_sample_value("kohort_spark_lag", labels) == 0
    query.stop()
    spark.streams.removeListener(listener)
