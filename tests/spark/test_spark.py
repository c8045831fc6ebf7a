"""End to end with a real Spark: bounded reads, sinks, queries that share a group, crash and take over."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle

import doomed_sink
import kohort
from kohort.client import TopicPartition
from spark.query import committed, create, members, produce, unique
from spark.streams import numbers, share_and_take_over

pytestmark = pytest.mark.timeout(300)


# -- bounded reads and sinks ---------------------------------------------------------------------------------------


def test_a_bounded_read_has_the_columns_of_sparks_own_source(spark: Any, servers: str) -> None:
    topic = unique("orders")
    create(servers, topic)
    produce(servers, topic, numbers(0, 400))
    reader = spark.read.format("kohort").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    frame = reader.load()
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"
    )
    rows = frame.collect()
    assert sorted((row.value.decode() for row in rows), key=int) == numbers(0, 400)
    assert {(row.topic, row.timestampType) for row in rows} == {(topic, 0)}
    assert sorted((row.partition, row.offset) for row in rows) == [(p, o) for p in range(4) for o in range(100)]
    span = json.dumps({topic: {"0": 10, "1": -2, "2": 100, "3": 99}})
    part = (
        reader.option("startingOffsets", span).option("minPartitions", "7").schema("offset long, value binary").load()
    )
    assert part.columns == ["offset", "value"] and part.rdd.getNumPartitions() >= 7
    assert part.count() == 90 + 100 + 0 + 1


def test_a_query_that_is_killed_writes_every_row_once(spark: Any, servers: str, tmp_path: Path) -> None:
    """A worker, then the driver's process between two EndTxn. `make soak-exactly-once` has the other moments."""
    topic, source = unique("once"), tmp_path / "in"
    create(servers, topic, 2)
    source.mkdir()
    cloudpickle.register_pickle_by_value(doomed_sink)
    spark.dataSource.register(doomed_sink.DoomedSource)
    frame = spark.readStream.format("text").load(str(source)).repartition(3)

    def run(doom: str) -> None:
        sink = frame.writeStream.format("kohort_doomed").option("doom", doom).option("delivery", "exactly-once")
        sink = sink.option("kafka.bootstrap.servers", servers).option("topic", topic)
        query = sink.option("checkpointLocation", str(tmp_path / "state")).trigger(availableNow=True).start()
        query.awaitTermination()

    for number, doom in enumerate(["task:3", "ends:1"]):
        (source / str(number)).write_text("".join(f"{line}\n" for line in range(number * 30, number * 30 + 30)))
        with pytest.raises(Exception, match="STREAM_FAILED"):
            run(doom)
        run("")
    settings = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
    with kohort.Consumer(bootstrap_servers=servers, **settings) as consumer:
        places = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
        consumer.assign(places)
        found: list[str] = []
        while len(found) < 60 or any(consumer.position(tp) < consumer.end_offsets([tp])[tp] for tp in places):
            found += [record.value.decode() for record in consumer.poll(1)]
    assert sorted(found, key=int) == numbers(0, 60)


def test_rows_are_written_with_headers_and_partitions(spark: Any, servers: str) -> None:
    topic = unique("out")
    create(servers, topic)
    frame = spark.range(100).selectExpr(
        "cast(id as string) AS key",
        "cast(id * 2 as string) AS value",
        "cast(id % 3 as int) AS partition",
        "array(named_struct('key', 'n', 'value', cast(cast(id as string) as binary))) AS headers",
    )
    frame.write.format("kohort").option("kafka.bootstrap.servers", servers).option("topic", topic).mode("append").save()
    reader = spark.read.format("kohort").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    rows = reader.option("includeHeaders", "true").load().collect()
    assert len(rows) == 100
    for row in rows:
        number = int(row.key)
        assert int(row.value) == number * 2 and row.partition == number % 3
        assert [(header.key, int(header.value)) for header in row.headers] == [("n", number)]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"subscribe": "orders", "startingOffset": "earliest"}, "did you mean startingOffsets"),
        ({"subscribe": "orders", "group.id": "g"}, "a bounded read joins no group"),
        ({"subscribe": "no-such-topic"}, "no such topic or partition: no-such-topic"),
    ],
)
def test_a_wrong_option_is_an_error_that_names_the_right_one(
    spark: Any, servers: str, options: dict[str, str], says: str
) -> None:
    reader = spark.read.format("kohort").option("kafka.bootstrap.servers", servers).options(**options)
    with pytest.raises(Exception, match=says):
        reader.load().count()
    if "did you mean" in says:
        with pytest.raises(Exception, match=says):
            reader.load()


# -- streams -------------------------------------------------------------------------------------------------------


def test_available_now_copies_each_record_once_over_two_runs(spark: Any, servers: str, tmp_path: Path) -> None:
    source, target, group = unique("in"), unique("out"), unique()
    create(servers, source)
    create(servers, target, 1)

    def run() -> list[Any]:
        reader = spark.readStream.format("kohort").option("kafka.bootstrap.servers", servers)
        frame = reader.options(**{"group.id": group, "subscribe": source, "startingOffsets": "earliest"}).load()
        writer = frame.select("key", "value").writeStream.format("kohort").option("kafka.bootstrap.servers", servers)
        query = (
            writer.option("topic", target)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        return [json.loads(progress["sources"][0]["latestOffset"]) for progress in query.recentProgress]

    produce(servers, source, numbers(0, 100))
    progress = run()
    assert progress[-1]["lag"][source] == {"0": 0, "1": 0, "2": 0, "3": 0}
    assert committed(servers, group, source) == {0: 25, 1: 25, 2: 25, 3: 25}
    produce(servers, source, numbers(100, 140))
    run()
    reader = spark.read.format("kohort").option("kafka.bootstrap.servers", servers).option("subscribe", target)
    values = [row.value.decode() for row in reader.load().select("value").collect()]
    assert sorted(values, key=int) == numbers(0, 140)
    assert members(servers, group) == 0, "a query that ends leaves the group"


def test_queries_and_a_plain_consumer_share_a_group_and_take_over(spark: Any, servers: str, tmp_path: Path) -> None:
    share_and_take_over(spark, servers, tmp_path)


def test_the_orders_pipeline_counts_every_order(spark: Any, servers: str, tmp_path: Path) -> None:
    path = Path(__file__).parents[2] / "examples" / "orders_pipeline.py"
    spec = importlib.util.spec_from_file_location("orders_pipeline", path)
    assert spec is not None and spec.loader is not None
    pipeline = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pipeline)
    topic = unique("orders")
    create(servers, topic)
    pipeline.produce_orders(servers, topic, 2000)
    orders = pipeline.read_orders(spark, servers, unique(), topic)
    output = str(tmp_path / "parquet")
    query = pipeline.start(pipeline.revenue(orders), output, str(tmp_path / "checkpoint"), "0 seconds")
    query.processAllAvailable()
    # Times go beyond the last window of the first orders, which closes it.
    pipeline.produce_orders(servers, topic, 10, first=10_000)
    query.processAllAvailable()
    query.stop()
    assert sum(row.orders for row in pipeline.report(spark, [output]).collect()) == 2000
