"""The application of soak_exactly_once.py: runs its query to the end of the input, once for each line on stdin.

A line is JSON: {"doom": where the sink is to be killed, or ""}; the answer is a line of JSON on stdout.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from doomed_sink import DoomedSource


def of_files(spark: Any, options: argparse.Namespace) -> Any:
    reader = spark.readStream.format("text").option("maxFilesPerTrigger", "4")
    return reader.load(options.source).selectExpr("value AS key", "value")


def of_group(spark: Any, options: argparse.Namespace) -> Any:
    settings = {
        "kafka.bootstrap.servers": options.servers, "group.id": options.group, "subscribe": options.source,
        "startingOffsets": "earliest", "session.timeout.ms": "6000", "heartbeat.interval.ms": "500",
        "maxOffsetsPerTrigger": "30", "minPartitions": "4", "checkpointLocation": options.checkpoint,
    }  # fmt: skip
    return spark.readStream.format("kohort").options(**settings).load().select("key", "value")


def main() -> int:
    parser = argparse.ArgumentParser()
    for name in ("servers", "source", "sink", "checkpoint"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--group", help="read the topic `source` as a member of this group, not files of that folder")
    options = parser.parse_args()

    import kohort.spark

    config = {"spark.driver.memory": "512m", "spark.log.level": "OFF", "spark.sql.files.openCostInBytes": "134217728"}
    spark = kohort.spark.session("exactly once", "local[2,2]", config)
    spark.dataSource.register(DoomedSource)
    frame = of_group(spark, options) if options.group else of_files(spark, options)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        sink = frame.writeStream.format("kohort_doomed").option("doom", json.loads(line)["doom"])
        sink = sink.option("kafka.bootstrap.servers", options.servers).option("topic", options.sink)
        sink = sink.option("delivery", "exactly-once").option("checkpointLocation", options.checkpoint)
        if options.group:
            sink = sink.option("sourceOffsets", "in-transaction").option("kafka.transaction.timeout.ms", "60000")
        query = sink.trigger(availableNow=True).start()
        try:
            query.awaitTermination()
            print(json.dumps({"failed": None}), flush=True)
        except Exception as error:
            print(json.dumps({"failed": str(error)}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
