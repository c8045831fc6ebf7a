"""Bounded reads: `spark.read.format("kohort")`. Planned once, no group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from kohort.spark import fetch
from kohort.spark.offsets import plan_tasks
from kohort.spark.options import ReadOptions
from kohort.spark.planning import bounded_ranges

if TYPE_CHECKING:
    import pyarrow as pa


class TaskPartition(InputPartition):
    """One task of a read."""

    def __init__(self, task: fetch.ReadTask | None) -> None:
        super().__init__(task)


class BatchReader(DataSourceReader):
    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        options = self._options
        ranges = bounded_ranges(fetch.cluster_for(options.settings), options)
        planned = plan_tasks(ranges, options.min_partitions, options.max_records_per_partition)
        tasks = (
            fetch.ReadTask(pieces, self._columns, options.settings, options.fail_on_data_loss) for pieces in planned
        )
        return [TaskPartition(task) for task in tasks] or [TaskPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return iter(()) if partition.value is None else fetch.read(partition.value)
