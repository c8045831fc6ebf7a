"""Orders from Kafka to revenue per minute and country in Parquet: a streaming query that is a member of a group.

python examples/orders_pipeline.py --try                          # its own broker and orders, nothing else needed
python examples/orders_pipeline.py --bootstrap-servers host:9092  # start it twice: the two share the partitions
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import kohort
import kohort.spark

ORDER = "id STRING, country STRING, amount DECIMAL(12, 2), at TIMESTAMP"
COUNTRIES = ("DE", "FR", "IN", "JP", "US")


def read_orders(spark: SparkSession, servers: str, group: str, topic: str) -> DataFrame:
    """The orders of the partitions that the group gives to this query."""
    records = (
        spark.readStream.format("kohort")
        .option("kafka.bootstrap.servers", servers)
        .option("group.id", group)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 500_000)
        .load()
    )
    order = f.from_json(f.col("value").cast("string"), ORDER).alias("order")
    return records.select(order, "topic", "partition", "offset").select("order.*", "topic", "partition", "offset")


def revenue(orders: DataFrame, window: str = "1 minute", late_by: str = "1 minute") -> DataFrame:
    """Revenue per window and country, as partial sums of the partitions read here.

    Each query of a group sums what it has read. When a partition moves within a window, both write a row for it:
    whoever reads the result adds the rows up, as `report` does.
    """
    per_window = orders.withWatermark("at", late_by).groupBy(f.window("at", window), "country", "partition")
    sums = per_window.agg(f.sum("amount").alias("revenue"), f.count("*").alias("orders"))
    return sums.select(f.col("window.start").alias("minute"), "country", "partition", "revenue", "orders")


def start(frame: DataFrame, output: str, checkpoint: str, trigger: str) -> Any:
    """Every query needs a checkpoint and a folder of its own, also within one group."""
    writer = frame.writeStream.format("parquet").outputMode("append").option("path", output)
    return writer.option("checkpointLocation", checkpoint).trigger(processingTime=trigger).start()


def report(spark: SparkSession, outputs: list[str]) -> DataFrame:
    """Final sums over the partial ones of all queries."""
    rows = spark.read.parquet(*outputs)
    sums = rows.groupBy("minute", "country").agg(f.sum("revenue").alias("revenue"), f.sum("orders").alias("orders"))
    return sums.orderBy("minute", "country")


def produce_orders(servers: str, topic: str, count: int, first: int = 0, seconds_apart: float = 0.05) -> None:
    """Orders whose times begin some minutes ago, so that windows close at once."""
    chance = random.Random(first)
    began = time.time() - 600
    orders = []
    for number in range(first, first + count):
        order = {
            "id": f"order-{number}",
            "country": chance.choice(COUNTRIES),
            "amount": round(chance.uniform(5, 500), 2),
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(began + number * seconds_apart)),
        }
        orders.append({"key": order["id"], "value": json.dumps(order)})
    with kohort.Producer(bootstrap_servers=servers) as producer:
        producer.send_columns(topic, pa.Table.from_pylist(orders)).result()


@contextlib.contextmanager
def servers_of(arguments: argparse.Namespace) -> Iterator[str]:
    if not getattr(arguments, "try"):
        yield arguments.bootstrap_servers
        return
    with kohort.Broker(config={"num.partitions": 4}) as broker:
        produce_orders(broker.bootstrap_servers, arguments.topic, 20_000)
        yield broker.bootstrap_servers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap-servers", default="localhost:9092")
    parser.add_argument("--group", default="orders")
    parser.add_argument("--topic", default="orders")
    parser.add_argument("--output", help="folder for Parquet files and the checkpoint, of this query alone")
    parser.add_argument("--trigger", default="2 seconds")
    parser.add_argument("--seconds", type=float, help="stop after so long")
    parser.add_argument("--try", action="store_true", help="start a broker, make orders, show the result")
    arguments = parser.parse_args()
    spark = kohort.spark.session("orders", config={"spark.log.level": "ERROR", "spark.sql.session.timeZone": "UTC"})
    output = arguments.output or (tempfile.mkdtemp(prefix="revenue-") if getattr(arguments, "try") else "revenue")
    parquet, checkpoint = f"{output}/parquet", f"{output}/checkpoint"
    with servers_of(arguments) as servers:
        orders = read_orders(spark, servers, arguments.group, arguments.topic)
        query = start(revenue(orders), parquet, checkpoint, arguments.trigger)
        try:
            if getattr(arguments, "try"):
                query.processAllAvailable()
            else:
                query.awaitTermination(arguments.seconds) if arguments.seconds else query.awaitTermination()
        except KeyboardInterrupt:
            pass
        query.stop()
        report(spark, [parquet]).show(50, truncate=False)
    spark.stop()


if __name__ == "__main__":
    main()
