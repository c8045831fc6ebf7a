"""A program for spark-submit: a topic to Parquet as a member of a group, and from there to another topic.

cluster_job.py SERVERS GROUP TOPIC TARGET FOLDER
"""

from __future__ import annotations

import json
import sys

import kohort.spark

RECORDS_A_BATCH = 100


def main(servers: str, group: str, topic: str, target: str, folder: str) -> None:
    spark = kohort.spark.session()
    settings = {
        "kafka.bootstrap.servers": servers,
        "group.id": group,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(RECORDS_A_BATCH),
    }
    records = spark.readStream.format("kohort").options(**settings).load()
    stream = records.writeStream.format("parquet").option("path", f"{folder}/rows")
    stream.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start().awaitTermination()
    rows = spark.read.parquet(f"{folder}/rows")
    sink = rows.select("key", "value").write.format("kohort").option("kafka.bootstrap.servers", servers)
    sink.option("topic", target).mode("append").save()
    told = {
        "master": spark.sparkContext.master,
        "rows": rows.count(),
        "places": rows.select("topic", "partition", "offset").distinct().count(),
        "from": kohort.__file__,
    }
    spark.stop()
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
