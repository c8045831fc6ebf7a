"""A Python data source that does no work: the same rows from memory, over and over, as a bounded read or a stream.

No source in Python can hand rows to Spark faster. Reads no broker; its options say how many rows of what size it has.
"""

from __future__ import annotations

import sys
from typing import Any

from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

FORMAT = "no-work"
SCHEMA = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int"
TASKS = 2
BATCH_BYTES = 4 * 1024 * 1024
"""About what kohort's source makes of one fetch."""

_made: dict[tuple[int, tuple[str, ...]], Any] = {}


def rows(size: int, columns: tuple[str, ...]) -> Any:
    """One Arrow batch, made once a process."""
    import numpy as np
    import pyarrow as pa

    if (size, columns) not in _made:
        count = BATCH_BYTES // (size + 40)
        zeros = np.zeros(count, np.int32)
        arrays = {
            "key": pa.array([b"12345678"] * count, pa.binary()),
            "value": pa.array([b"v" * size] * count, pa.binary()),
            "topic": pa.array(["bench-topic"] * count),
            "partition": pa.array(zeros),
            "offset": pa.array(np.arange(count)),
            "timestamp": pa.array(np.arange(count)).cast(pa.timestamp("us", "UTC")),
            "timestampType": pa.array(zeros),
        }
        _made[size, columns] = pa.RecordBatch.from_pydict({name: arrays[name] for name in columns})
    return _made[size, columns]


def hand_out(count: int, size: int, columns: tuple[str, ...]) -> Any:
    batch = rows(size, columns)
    while count > 0:
        yield batch.slice(0, count)
        count -= batch.num_rows


class Rows(DataSourceReader):
    def __init__(self, options: dict[str, str], columns: tuple[str, ...]) -> None:
        self.records, self.size, self.columns = int(options["records"]), int(options["size"]), columns

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(self.records // TASKS)] * TASKS

    def read(self, partition: InputPartition) -> Any:
        return hand_out(partition.value, self.size, self.columns)


class RowStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: dict[str, str], columns: tuple[str, ...]) -> None:
        self.records, self.size, self.columns = int(options["records"]), int(options["size"]), columns
        self.per_batch = int(options["maxOffsetsPerTrigger"])

    def prepareForTriggerAvailableNow(self) -> None:
        pass

    def initialOffset(self) -> dict[str, int]:
        return {"at": 0}

    def latestOffset(self, start: dict[str, int], limit: object) -> dict[str, int]:
        return {"at": min(start["at"] + self.per_batch, self.records)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition((end["at"] - start["at"]) // TASKS)] * TASKS

    def read(self, partition: InputPartition) -> Any:
        return hand_out(partition.value, self.size, self.columns)


class NoWork(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: Any) -> DataSourceReader:
        return Rows(self.options, tuple(schema.fieldNames()))

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return RowStream(self.options, tuple(schema.fieldNames()))


def register(spark: Any) -> None:
    """The workers cannot import this module: it travels with the class."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    spark.dataSource.register(NoWork)
