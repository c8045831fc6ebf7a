"""A Python data source that does no work: the same rows from memory, over and over, as a bounded read or a stream.
As a sink it counts the rows that come, and drops them.

No source in Python can hand rows to Spark faster, and no sink take them. Knows no broker; its options say how
many rows of what size it has.
"""

from __future__ import annotations

import sys
from typing import Any

from pyspark import cloudpickle
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

from kohort.spark.schema import full_schema

FORMAT = "no-work"
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


class Rows:
    """What the bounded reader and the stream have in common: a task's value is how many rows it hands out."""

    def __init__(self, options: dict[str, str], columns: tuple[str, ...]) -> None:
        self.options, self.columns = options, columns
        self.records = int(options["records"])

    @staticmethod
    def tasks(count: int) -> list[InputPartition]:
        return [InputPartition(count // TASKS)] * TASKS

    def read(self, partition: InputPartition) -> Any:
        batch, left = rows(int(self.options["size"]), self.columns), partition.value
        while left > 0:
            yield batch.slice(0, left)
            left -= batch.num_rows


class BoundedRows(Rows, DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        return self.tasks(self.records)


class RowStream(Rows, DataSourceStreamReader, SupportsTriggerAvailableNow):
    def prepareForTriggerAvailableNow(self) -> None:
        pass

    def initialOffset(self) -> dict[str, int]:
        return {"at": 0}

    def latestOffset(self, start: dict[str, int], limit: object) -> dict[str, int]:
        return {"at": min(start["at"] + int(self.options["maxOffsetsPerTrigger"]), self.records)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return self.tasks(end["at"] - start["at"])


class Drop(DataSourceArrowWriter):
    def write(self, iterator: Any) -> WriterCommitMessage:
        self.rows = sum(batch.num_rows for batch in iterator)
        return WriterCommitMessage()


class DropStream(DataSourceStreamArrowWriter):
    def write(self, iterator: Any) -> WriterCommitMessage:
        self.rows = sum(batch.num_rows for batch in iterator)
        return WriterCommitMessage()

    def commit(self, messages: Any, batchId: int) -> None:
        pass

    def abort(self, messages: Any, batchId: int) -> None:
        pass


class NoWork(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> Any:
        return full_schema(include_headers=False)

    def reader(self, schema: Any) -> DataSourceReader:
        return BoundedRows(self.options, tuple(schema.fieldNames()))

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return RowStream(self.options, tuple(schema.fieldNames()))

    def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
        return Drop()

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamArrowWriter:
        return DropStream()


def register(spark: Any) -> None:
    """The workers cannot import this module: it travels with the class."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    spark.dataSource.register(NoWork)
