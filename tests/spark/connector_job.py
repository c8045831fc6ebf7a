"""The same work by kohort's source and sink and by Spark's; a program of its own, since its JVM has Spark's in it.

connector_job.py JARS CASES: the file CASES holds [[name, kind, options, columns], ...], the kinds are read, stream and
write. Prints {name: {format: rows or an error}}. In texts of a case {format} stands for the one or the other.
"""

from __future__ import annotations

import json
import sys
import uuid
from pathlib import Path
from typing import Any

import kohort.spark

FORMATS = ("kohort", "kafka")
ROWS_WRITTEN = 50


def read(spark: Any, source: str, options: dict[str, str]) -> dict[str, Any]:
    return shown(spark.read.format(source).options(**options).load())


def stream(spark: Any, source: str, options: dict[str, str]) -> dict[str, Any]:
    """All that is there, through a table in memory."""
    table = f"rows_{uuid.uuid4().hex}"
    if source == "kohort":
        options = {**options, "group.id": table}
    frame = spark.readStream.format(source).options(**options).load()
    frame.writeStream.format("memory").queryName(table).trigger(availableNow=True).start().awaitTermination()
    return shown(spark.table(table))


def write(spark: Any, source: str, options: dict[str, str], columns: list[str]) -> dict[str, Any]:
    """What the target holds afterwards; the order of rows and their times are nobody's promise."""
    target = options.pop("target")
    frame = spark.range(ROWS_WRITTEN).selectExpr(*columns)
    frame.write.format(source).options(**options).mode("append").save()
    written = {"kafka.bootstrap.servers": options["kafka.bootstrap.servers"], "subscribe": target}
    rows = read(spark, "kohort", {**written, "includeHeaders": "true"})["rows"]
    return {"rows": sorted(repr([row[name] for name in ("partition", "key", "value", "headers")]) for row in rows)}


def shown(frame: Any) -> dict[str, Any]:
    binary = [name for name, kind in frame.dtypes if kind == "binary"]
    texts = [f"cast({name} AS string) AS {name}" if name in binary else name for name in frame.columns]
    rows = [row.asDict(recursive=True) for row in frame.selectExpr(*texts).collect()]
    for row in rows:
        headers = row.get("headers") or ()
        row["headers"] = [(pair["key"], pair["value"] and bytes(pair["value"]).decode()) for pair in headers]
    rows.sort(key=lambda row: (row["topic"], row["partition"], row["offset"]))
    return {"schema": frame.schema.simpleString(), "rows": rows}


WORK = {"read": read, "stream": stream, "write": write}


def main(jars: str, cases: str) -> None:
    config = {"spark.jars": jars, "spark.log.level": "OFF", "spark.sql.shuffle.partitions": "2"}
    spark = kohort.spark.session("both", "local[2]", config)
    told: dict[str, dict[str, Any]] = {}
    for name, kind, options, columns in json.loads(Path(cases).read_text()):
        for source in FORMATS:
            given = {option: text.replace("{format}", source) for option, text in options.items()}
            what = [[text.replace("{format}", source) for text in columns]] if columns else []
            try:
                result = WORK[kind](spark, source, given, *what)
            except Exception as error:
                result = {"error": str(error)}
            told.setdefault(name, {})[source] = result
    spark.stop()
    print(json.dumps(told, default=str))


if __name__ == "__main__":
    main(*sys.argv[1:])
