"""A program of its own, since its JVM has Spark's connector in it: the same reads by kohort's source and by Spark's.

reads_job.py JARS CASES, where CASES is a file of [[name, options], ...]; prints {name: {format: rows or an error}}.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import kohort.spark

FORMATS = ("kohort", "kafka")


def rows(spark: Any, source: str, options: dict[str, str]) -> Any:
    try:
        frame = spark.read.format(source).options(**options).load()
        binary = [name for name, kind in frame.dtypes if kind == "binary"]
        texts = [f"cast({name} AS string) AS {name}" if name in binary else name for name in frame.columns]
        found = [row.asDict(recursive=True) for row in frame.selectExpr(*texts).collect()]
    except Exception as error:
        return {"error": str(error)}
    for row in found:
        row["headers"] = [(header["key"], bytes(header["value"]).decode()) for header in row.get("headers") or ()]
    found.sort(key=lambda row: (row["topic"], row["partition"], row["offset"]))
    return {"schema": frame.schema.simpleString(), "rows": found}


def main(jars: str, cases: str) -> None:
    spark = kohort.spark.session("reads", "local[2]", {"spark.jars": jars, "spark.log.level": "OFF"})
    told = {
        name: {source: rows(spark, source, options) for source in FORMATS}
        for name, options in json.loads(Path(cases).read_text())
    }
    spark.stop()
    print(json.dumps(told, default=str))


if __name__ == "__main__":
    main(*sys.argv[1:])
