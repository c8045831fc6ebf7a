"""Bounded reads: `spark.read.format("kohort")`. Planned once, no group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from kohort.spark import fetch, worker
from kohort.spark.filters import Bounds, bounds_of, since
from kohort.spark.options import ReadOptions
from kohort.spark.planning import bounded_ranges, tasks

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
        self._bounds = Bounds()

    def partitions(self) -> list[InputPartition]:
        options = self._options
        cluster = fetch.cluster_for(options.settings)
        ranges = self._bounds.clip(bounded_ranges(cluster, options))
        if self._bounds.since_ms is not None:
            ranges = since(ranges, cluster.list_offsets(dict.fromkeys(ranges, self._bounds.since_ms)))
        ids = {tp.topic: cluster.topic_id(tp.topic) for tp in ranges}
        planned = [
            fetch.ReadTask(pieces, self._columns, options.settings, options.fail_on_data_loss, ids)
            for pieces in tasks(ranges, options)
        ]
        return [TaskPartition(task) for task in planned] or [TaskPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return worker.run(partition.value)


class FilteringReader(BatchReader):
    """Leaves out what the query's filters exclude. Spark refuses such a class where it is not to push filters down."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Spark evaluates all of them again: places are coarser than rows."""
        self._bounds = bounds_of(filters)
        return filters
