"""The sink: rows with topic, key, value, headers and partition columns to Kafka, produced by confluent-kafka.

At least once: a task that Spark repeats writes its rows again. The producer is idempotent, so its own retries do not.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, DataType, IntegerType, StringType, StructType

from kohort.spark.options import OptionError, WriteOptions
from kohort.spark.schema import HEADERS

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("kohort.spark")

FLUSH_SECONDS = 300
_TEXT: tuple[type[DataType], ...] = (StringType, BinaryType)
_ALLOWED: dict[str, tuple[type[DataType], ...]] = {
    "topic": (StringType,),
    "key": _TEXT,
    "value": _TEXT,
    "partition": (IntegerType,),
}
PRODUCER_DEFAULTS = {"linger.ms": "20", "client.id": "kohort-spark", "partitioner": "murmur2_random"}
"""The partitioner puts a key where Java's producers do, and so Spark's own sink; librdkafka's default does not."""
_producers: dict[tuple[tuple[str, str], ...], Any] = {}


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


def write(options: WriteOptions, columns: tuple[str, ...], batches: Iterator[pa.RecordBatch]) -> Written:
    """All rows of a task; returns when the brokers have them."""
    delivery = _Delivery(_producer(options.producer))
    for batch in batches:
        lists = {name: batch.column(name).to_pylist() for name in columns}
        _produce(delivery, options.topic, lists, batch.num_rows)
    return Written(delivery.finish())


def _produce(delivery: _Delivery, fixed_topic: str | None, lists: Mapping[str, list[Any]], rows: int) -> None:
    nothing = [None] * rows
    topics = [fixed_topic] * rows if fixed_topic is not None else lists["topic"]
    keys, values = lists.get("key", nothing), lists["value"]
    partitions, headers = lists.get("partition", nothing), lists.get("headers", nothing)
    for topic, key, value, partition, pairs in zip(topics, keys, values, partitions, headers, strict=True):
        if topic is None:
            raise WriteError("a row has a null topic: fill the column topic or set the option topic")
        where = {} if partition is None else {"partition": partition}
        if pairs:
            where["headers"] = [(pair["key"], pair["value"]) for pair in pairs]
        delivery.produce(topic, key, value, where)


def _producer(settings: Mapping[str, str]) -> Any:
    """One producer per configuration for as long as the worker lives: connections and producer ids are reused."""
    from confluent_kafka import KafkaException, Producer

    key = tuple(sorted(settings.items()))
    if key not in _producers:
        try:
            _producers[key] = Producer({**PRODUCER_DEFAULTS, **settings}, logger=log)
        except (KafkaException, TypeError) as error:
            raise OptionError(f"the producer refuses its configuration: {error}") from None
    return _producers[key]


class _Delivery:
    """Counts what the brokers acknowledged; the first refusal fails the task."""

    def __init__(self, producer: Any) -> None:
        self._producer = producer
        self._sent = self._acknowledged = 0
        self._failure: str | None = None

    def produce(self, topic: str, key: Any, value: Any, where: dict[str, Any]) -> None:
        while True:
            try:
                self._producer.produce(topic, value, key, on_delivery=self._delivered, **where)
                break
            except BufferError:
                self._producer.poll(0.1)
                self._check()
        self._sent += 1
        if self._sent % 1000 == 0:
            self._producer.poll(0)
            self._check()

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self._acknowledged += 1
        elif self._failure is None:
            self._failure = f"{message.topic()}-{message.partition()}: {error.str()}"

    def finish(self) -> int:
        left = self._producer.flush(FLUSH_SECONDS)
        self._check()
        if left or self._acknowledged != self._sent:
            raise WriteError(f"{self._sent - self._acknowledged} of {self._sent} records were not acknowledged")
        return self._sent

    def _check(self) -> None:
        if self._failure is not None:
            raise WriteError(self._failure)


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
