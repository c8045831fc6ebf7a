"""A program on Spark Connect: copies a topic as a member of a group and prints what came of it as JSON."""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

from kohort.spark import interpreter, java


def main(servers: str, group: str, topic: str, target: str, folder: str) -> None:
    java.prepare()
    interpreter.prepare()
    builder = SparkSession.builder.remote("local[2]").config("spark.driver.memory", "512m")
    spark = builder.config("spark.log.level", "ERROR").getOrCreate()
    reader = spark.readStream.format("kohort").option("kafka.bootstrap.servers", servers)
    frame = reader.options(**{"group.id": group, "subscribe": topic, "startingOffsets": "earliest"}).load()
    writer = frame.select("key", "value").writeStream.format("kohort").option("kafka.bootstrap.servers", servers)
    writer = writer.option("topic", target).option("checkpointLocation", f"{folder}/checkpoint")
    query = writer.trigger(availableNow=True).start()
    ended = query.awaitTermination(200)
    bounded = spark.read.format("kohort").option("kafka.bootstrap.servers", servers).option("subscribe", target)
    values = [int(row.value) for row in bounded.load().selectExpr("cast(value AS string) AS value").collect()]
    try:
        bounded.option("startingOffset", "earliest").load().count()
        said = ""
    except Exception as error:
        said = str(error)
    kind = type(spark).__module__
    spark.stop()
    print(json.dumps({"session": kind, "ended": ended, "values": sorted(values), "said": said}))


if __name__ == "__main__":
    main(*sys.argv[1:])
