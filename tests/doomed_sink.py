"""The exactly-once sink with a death foretold: `format("kohort_doomed")`, whose option `doom` says where to kill -9.

task:N             the worker of the first task, before it hands its row N over to the producer
task:after         that worker, when all is written and Spark has not heard of it
before:EFFECT      the driver's process, before it carries an effect of `sink_commit` out
after:EFFECT       and after it
ends:N             the driver's process, when N of the batch's transactions are ended
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any, NoReturn

from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceStreamWriter
from pyspark.sql.types import StructType

from kohort.spark import sink_commit as sc
from kohort.spark import sink_driver
from kohort.spark.options import parse_write_options
from kohort.spark.sink import ExactlyOnceWriter, check_columns, roll_forward

DOOMS = [
    "task:0", "task:3", "task:after", "before:TakeOver", "after:TakeOver", "after:Read", "after:Sweep", "after:Write",
    "after:Look", "before:Settle", "after:Settle", "before:End", "ends:1", "ends:2", "ends:3", "after:End",
]  # fmt: skip


class DoomedSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "kohort_doomed"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        given = {name: value for name, value in self.options.items() if name.lower() != "doom"}
        options = parse_write_options(given)
        roll_forward(options)
        return DoomedWriter(options, check_columns(schema, options, overwrite), self.options.get("doom", ""))


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


class DoomedWriter(ExactlyOnceWriter):
    def __init__(self, options: Any, columns: tuple[str, ...], doom: str) -> None:
        super().__init__(options, columns)
        self._who, _, self._when = doom.partition(":")

    def write(self, iterator: Iterator[Any]) -> Any:
        context = TaskContext.get()
        assert context is not None
        is_doomed = self._who == "task" and context.partitionId() == 0 and context.attemptNumber() == 0
        if is_doomed and self._when != "after":
            iterator = _until(iterator, int(self._when))
        written = super().write(iterator)
        if is_doomed:
            die()
        return written

    def commit(self, messages: list[Any], batchId: int) -> None:
        carry_out, end, ended = sink_driver.SinkDriver.carry_out, sink_driver.SinkDriver._end, 0

        async def doomed(driver: Any, effect: Any) -> Any:
            if self._who == "before" and type(effect).__name__ == self._when:
                die()
            if isinstance(effect, sc.End) and self._who == "ends":
                return {t.transactional_id: await counted(driver, t, effect.commit) for t in effect.transactions}
            answer = await carry_out(driver, effect)
            if self._who == "after" and type(effect).__name__ == self._when:
                die()
            return answer

        async def counted(driver: Any, transaction: Any, commit: bool) -> Any:
            nonlocal ended
            if str(ended) == self._when:
                die()
            ended += 1
            return await end(driver, transaction, commit)

        sink_driver.SinkDriver.carry_out = doomed  # type: ignore[method-assign]
        try:
            super().commit(messages, batchId)
        finally:
            sink_driver.SinkDriver.carry_out = carry_out  # type: ignore[method-assign]


def _until(iterator: Iterator[Any], rows: int) -> Iterator[Any]:
    left = rows
    for batch in iterator:
        if batch.num_rows > left:
            yield batch.slice(0, left)
            die()
        left -= batch.num_rows
        yield batch
    die()
