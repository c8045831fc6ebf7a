"""The streaming reader as Spark sees it. Pickled to executors, so it holds plain values; the work is in driver.py.

Spark builds this class twice, in the query's own driver process and in a planner whose copy goes to the executors:
nothing happens before the first driver call.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from kohort.spark import fetch, witness, worker
from kohort.spark.batch import TaskPartition
from kohort.spark.offsets import StreamOffset
from kohort.spark.options import OptionError, ReadOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from kohort.spark.driver import QueryDriver


NO_LIMIT = 2**63 - 1


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._driver: QueryDriver | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_driver": None}

    def _started(self) -> QueryDriver:
        """The driver, which begins to join the group at the first call."""
        if self._driver is None:
            from kohort.spark.driver import QueryDriver

            log_to_stderr()
            leave_on_sigterm()
            atexit.register(witness.watch(killed(self._options)))
            self._driver = QueryDriver(self._options)
            self._driver.start()
        return self._driver

    # -- what Spark calls ----------------------------------------------------------------------------------------------

    def getDefaultReadLimit(self) -> ReadLimit:
        """Never ReadAllAvailable: with that in its place, Spark tells that this is a Trigger.Once."""
        return ReadMaxRows(self._options.max_offsets_per_trigger or NO_LIMIT)

    def prepareForTriggerAvailableNow(self) -> None:
        self._started().stop_at_present_end()

    def initialOffset(self) -> dict[str, Any]:
        return self._started().initial_offset()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else NO_LIMIT
        return self._started().latest_offset(start, most, once=isinstance(limit, ReadAllAvailable))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return None if self._driver is None else self._driver.report()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        options, ids = self._options, StreamOffset.from_json(end).topic_ids()
        planned = self._started().tasks(end)
        tasks = (
            fetch.ReadTask(pieces, self._columns, options.settings, options.fail_on_data_loss, ids)
            for pieces in planned
        )
        return [TaskPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return worker.run(partition.value)

    def commit(self, end: Mapping[str, Any]) -> None:
        """Comes one batch late and not after the last: latestOffset has committed before. Nothing is left to do."""

    def stop(self) -> None:
        if self._driver is not None:
            self._driver.stop("the query has ended")
            self._driver = None


class RefusingReader(DataSourceStreamReader):
    """Stands for a reader whose options are wrong. Spark 4.3 hides what is raised while it makes a stream's reader (an
    UnboundLocalError of its own covers it), and shows what a reader raises."""

    def __init__(self, error: OptionError) -> None:
        self._error = error

    def initialOffset(self) -> dict[str, Any]:
        raise self._error

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        raise self._error

    def getDefaultReadLimit(self) -> ReadLimit:
        raise self._error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        raise self._error


def killed(options: ReadOptions) -> str:
    """What a query's driver process would say if it could."""
    seconds = options.config()["session.timeout.ms"] / 1000
    return (
        f"kohort: process {os.getpid()}, in which a query plans and is a member of group {options.group_id}, was "
        "killed (kill -9, or out of memory). Spark calls that 'Connection reset' or an EOFException, and ends it: "
        f"start it again. The group gives its partitions to others after session.timeout.ms ({seconds:g} s)"
    )


def leave_on_sigterm() -> None:
    """Spark ends a query's driver process with SIGTERM, twice, without calling stop(): make it an orderly exit."""
    if threading.current_thread() is not threading.main_thread():
        return

    def leave(signal_number: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.exit(0)

    with contextlib.suppress(ValueError):
        signal.signal(signal.SIGTERM, leave)


def log_to_stderr() -> None:
    """The driver process has no logging of its own; its stderr is Spark's."""
    import logging

    logger = logging.getLogger("kohort")
    if logger.handlers or logging.getLogger().handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%y/%m/%d %H:%M:%S"))
    logger.addHandler(handler)
    logger.setLevel(os.environ.get("KOHORT_LOG_LEVEL", "INFO").upper())
