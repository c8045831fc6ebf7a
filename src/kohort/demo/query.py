"""A process with a Spark application of its own, whose streaming query is a member of the group.

`python -m kohort.demo.query`: told what to do in lines of JSON on standard input, answers on standard output. Orders go
to Parquet, each query to a folder of its own; at the end Spark itself reads the folders back.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ORDER = "id STRING, customer STRING, country STRING, item STRING, quantity INT, amount DOUBLE, at TIMESTAMP"
# For a short life with little data: compiling less saves more than it costs.
SPARK = {
    "spark.log.level": "ERROR",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.session.timeZone": "UTC",
}


def read_orders(spark: SparkSession, task: dict[str, Any]) -> DataFrame:
    """The orders of the partitions that the group gives to this query."""
    from pyspark.sql import functions as f

    records = spark.readStream.format("kohort").options(
        **{
            "kafka.bootstrap.servers": task["servers"],
            "kafka.client.id": task["name"],
            "group.id": task["group_id"],
            "subscribe": task["topic"],
            "startingOffsets": "earliest",
            **task["settings"],
        }
    )
    order = f.from_json(f.col("value").cast("string"), ORDER).alias("order")
    return records.load().select("partition", "offset", order).select("partition", "offset", "order.*")


def start(orders: DataFrame, task: dict[str, Any]) -> Any:
    writer = orders.writeStream.format("parquet").option("path", task["output"])
    return writer.option("checkpointLocation", task["checkpoint"]).trigger(processingTime="1 second").start()


def read_back(spark: SparkSession, folders: list[str]) -> dict[str, Any]:
    """What the queries wrote, by folder, and the revenue in it, each order counted once."""
    from pyspark.sql import functions as f

    places = {}
    for folder in folders:
        rows = spark.read.parquet(folder).select("partition", "offset", "id").collect()
        places[folder] = [[row.partition, row.offset, row.id] for row in rows]
    orders = spark.read.parquet(*folders).dropDuplicates(["partition", "offset"])
    sums = orders.groupBy("country").agg(f.sum("amount").alias("revenue"), f.count("*").alias("orders"))
    top = [
        [row.country, round(row.revenue, 2), row.orders] for row in sums.orderBy(f.desc("revenue")).limit(3).collect()
    ]
    return {"places": places, "top": top}


class Application:
    def __init__(self, task: dict[str, Any], out: Any) -> None:
        self._task, self._out = task, out
        self._query: Any = None
        self._spark: SparkSession | None = None

    def say(self, word: dict[str, Any]) -> None:
        self._out.write(json.dumps(word) + "\n")
        self._out.flush()

    def run(self) -> None:
        import kohort.spark

        self._spark = kohort.spark.session(f"kohort demo {self._task['name']}", master="local[1]", config=SPARK)
        self.say({"ready": True})
        for line in sys.stdin:
            self._do(json.loads(line))

    def _do(self, word: dict[str, Any]) -> None:
        assert self._spark is not None
        if "go" in word:
            self._query = start(read_orders(self._spark, self._task), self._task)
            self.say({"started": True})
        elif "stop" in word:
            self._query.stop()
            self.say({"stopped": True})
        elif "read" in word:
            with open(word["to"], "w", encoding="utf-8") as file:
                json.dump(read_back(self._spark, word["read"]), file)
            self.say({"written": word["to"]})


def main() -> None:
    """Whatever Spark prints goes to standard error; the real standard output is for what is said."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    application = Application(json.loads(sys.argv[1]), out)
    try:
        application.run()
    except Exception as error:
        application.say({"failed": f"{type(error).__name__}: {error}"})
        raise


if __name__ == "__main__":
    main()
