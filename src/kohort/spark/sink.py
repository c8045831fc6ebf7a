"""The sink: rows with topic, key, value, headers and partition columns to Kafka, as columns (`sink_rows`).

At least once: a task that Spark repeats writes its rows again. The producer is idempotent, so its own retries do not.
Exactly once: in transactions that the driver ends (`sink_commit`, `sink_driver`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, DataType, IntegerType, StringType, StructType

from kohort.protocol.errors import KafkaError
from kohort.records.encode_columns import RowError
from kohort.spark import sink_driver
from kohort.spark.checkpoint import is_planned_again, note_exactly_once, query_id, wrote_exactly_once
from kohort.spark.options import OptionError, WriteOptions
from kohort.spark.schema import HEADERS
from kohort.spark.sink_commit import BatchAbort, BatchCommit
from kohort.spark.sink_rows import PlainWrites, Prepared, Transaction, Writes, advice, gathered, task_identity

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("kohort.spark")

T = TypeVar("T")
_TEXT: tuple[type[DataType], ...] = (StringType, BinaryType)
_ALLOWED: dict[str, tuple[type[DataType], ...]] = {
    "topic": (StringType,),
    "key": _TEXT,
    "value": _TEXT,
    "partition": (IntegerType,),
}


class WriteError(RuntimeError):
    """A record could not be written; the text holds the broker's or the producer's reason."""


@dataclass
class Written(WriterCommitMessage):
    """What one task wrote."""

    records: int


def check_columns(schema: StructType, options: WriteOptions, overwrite: bool) -> tuple[str, ...]:
    """The columns to write; an error in plain words where the frame cannot be written.

    Others are left alone, as by Spark's own sink: a frame read from a topic can be written to another as it is.
    """
    if overwrite:
        raise OptionError("a topic cannot be overwritten: use mode('append')")
    names = schema.fieldNames()
    for field in schema.fields:
        if field.name == "headers":
            if field.dataType.simpleString() != HEADERS.simpleString():
                raise OptionError(
                    f"column headers must be {HEADERS.simpleString()}, not {field.dataType.simpleString()}"
                )
        elif field.name in _ALLOWED and not isinstance(field.dataType, _ALLOWED[field.name]):
            allowed = " or ".join(kind().simpleString() for kind in _ALLOWED[field.name])
            raise OptionError(f"column {field.name} must be {allowed}, not {field.dataType.simpleString()}: cast it")
    if "value" not in names:
        raise OptionError("a column value is needed, binary or string")
    if "topic" not in names and options.topic is None:
        raise OptionError("no topic to write to: set the option topic or add a column topic")
    if options.include_headers and "headers" not in names:
        raise OptionError("includeHeaders=true needs a column headers")
    written = {*_ALLOWED, "headers"}
    if options.include_headers is False:
        written.remove("headers")
    if options.topic is not None:
        written.remove("topic")
    return tuple(name for name in names if name in written)


def check_delivery(options: WriteOptions) -> None:
    """A batch that was decided may not be published yet: another delivery would write its rows once more."""
    if not options.exactly_once and options.checkpoint is not None and wrote_exactly_once(options.checkpoint):
        raise OptionError(
            f"the checkpoint {options.checkpoint} is of a query with delivery=exactly-once: set that option, or start "
            "with a new checkpoint"
        )


def roll_forward(options: WriteOptions) -> None:
    """When Spark plans a batch once more: what a run that died has decided of it becomes readable now, and not when the
    batch has been computed again and is committed. That does it too, where this cannot be done."""
    if not options.exactly_once or options.checkpoint is None:
        return
    try:
        query = query_id(options.checkpoint)
        if query is not None and is_planned_again(options.checkpoint):
            log.info("query %s: %s", query, sink_driver.roll_forward(query, options.producer, options.decisions_topic))
    except Exception as error:
        log.warning("what was decided before is published when its batch is committed again, not now: %s", error)


def write(options: WriteOptions, columns: tuple[str, ...], batches: Iterator[pa.RecordBatch]) -> Written:
    """All rows of a task; returns when the brokers have them."""
    return Written(_written(PlainWrites(options.producer), options, columns, batches))


def prepare(options: WriteOptions, columns: tuple[str, ...], batches: Iterator[pa.RecordBatch]) -> Prepared:
    """All rows of a task in a transaction that stays open; returns when the brokers have them."""
    return _written(Transaction(options.producer, *task_identity()), options, columns, batches)


def _written(
    writes: Writes[T], options: WriteOptions, columns: tuple[str, ...], batches: Iterator[pa.RecordBatch]
) -> T:
    try:
        for table in gathered(columns, batches):
            writes.send(options.topic, table)
        return writes.finish()
    except BaseException as error:
        writes.drop()
        if isinstance(error, KafkaError | RowError):
            raise WriteError(advice(error, options.producer)) from None
        raise


class BatchWriter(DataSourceArrowWriter):
    """`df.write.format("kohort")`"""

    def __init__(self, options: WriteOptions, columns: tuple[str, ...]) -> None:
        self._options, self._columns = options, columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return write(self._options, self._columns, iterator)


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("kohort")`"""

    def __init__(self, options: WriteOptions, columns: tuple[str, ...]) -> None:
        self._options, self._columns = options, columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return write(self._options, self._columns, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        total = sum(message.records for message in messages if isinstance(message, Written))
        log.debug("batch %d: %d records written", batchId, total)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        log.warning("batch %d failed; what its tasks had written stays, and will be written again", batchId)


class ExactlyOnceWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("kohort").option("delivery", "exactly-once")`; `sink_commit` tells how."""

    def __init__(self, options: WriteOptions, columns: tuple[str, ...]) -> None:
        self._options, self._columns = options, columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Prepared:
        return prepare(self._options, self._columns, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        prepared = [message for message in messages if isinstance(message, Prepared)]
        if len(prepared) < len(messages):
            raise WriteError(f"batch {batchId}: Spark commits it without a message of every task")
        if self._options.checkpoint is not None:
            note_exactly_once(self._options.checkpoint)
        self._run(BatchCommit, prepared, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        prepared = [message for message in messages if isinstance(message, Prepared)]
        if prepared:
            self._run(BatchAbort, prepared, batchId)

    def _run(self, kind: type[BatchCommit | BatchAbort], prepared: list[Prepared], batch_id: int) -> None:
        options, machine = self._options, kind(batch_id, tuple(one.share for one in prepared))
        sources = options.checkpoint if options.source_offsets else None
        log.info(sink_driver.run(machine, prepared[0].query, options.producer, options.decisions_topic, sources))
