"""The sink: rows with topic, key, value, headers and partition columns to Kafka.

At least once, produced by confluent-kafka: a task that Spark repeats writes its rows again. The producer is idempotent,
so its own retries do not. Exactly once: in transactions of kohort's producer (`sink_rows`) that the driver ends
(`sink_commit`, `sink_driver`).
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, DataType, IntegerType, StringType, StructType

from kohort.client.tokens import token_of
from kohort.protocol.errors import KafkaError as Refused
from kohort.spark.checkpoint import note_exactly_once, wrote_exactly_once
from kohort.spark.java_settings import for_librdkafka
from kohort.spark.options import OptionError, WriteOptions
from kohort.spark.schema import HEADERS
from kohort.spark.sink_commit import BatchAbort, BatchCommit
from kohort.spark.sink_driver import run
from kohort.spark.sink_rows import Prepared, Transaction, advice, task_identity

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
_FOR_GOOD = (
    "the producer cannot go on, and the next attempt of this task begins with a new one. Records it had sent may be in "
    "the topic already, as with any repeated task"
)
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


def check_delivery(options: WriteOptions) -> None:
    """A batch that was decided may not be published yet: another delivery would write its rows once more."""
    if not options.exactly_once and options.checkpoint is not None and wrote_exactly_once(options.checkpoint):
        raise OptionError(
            f"the checkpoint {options.checkpoint} is of a query with delivery=exactly-once: set that option, or start "
            "with a new checkpoint"
        )


def write(options: WriteOptions, columns: tuple[str, ...], batches: Iterator[pa.RecordBatch]) -> Written:
    """All rows of a task; returns when the brokers have them."""
    delivery = _Delivery(_producer(options.producer), options.producer)
    try:
        for batch in batches:
            lists = {name: batch.column(name).to_pylist() for name in columns}
            _produce(delivery, options.topic, lists, batch.num_rows)
        return Written(delivery.finish())
    except BaseException:
        _forget(options.producer)
        raise


def prepare(options: WriteOptions, columns: tuple[str, ...], batches: Iterator[pa.RecordBatch]) -> Prepared:
    """All rows of a task in a transaction that stays open; returns when the brokers have them."""
    transaction = Transaction(options.producer, *task_identity())
    try:
        for batch in batches:
            lists = {name: batch.column(name).to_pylist() for name in columns}
            _produce(transaction, options.topic, lists, batch.num_rows)
        return transaction.hand_over()
    except Refused as error:
        transaction.drop()
        raise WriteError(advice(error, options.producer)) from None
    except BaseException:
        transaction.drop()
        raise


def _produce(
    delivery: _Delivery | Transaction, fixed_topic: str | None, lists: Mapping[str, list[Any]], rows: int
) -> None:
    nothing = [None] * rows
    topics = [fixed_topic] * rows if fixed_topic is not None else lists["topic"]
    keys, values = lists.get("key", nothing), lists["value"]
    partitions, headers = lists.get("partition", nothing), lists.get("headers", nothing)
    for topic, key, value, partition, pairs in zip(topics, keys, values, partitions, headers, strict=True):
        if topic is None:
            raise WriteError("a row has a null topic: fill the column topic or set the option topic")
        where = {} if partition is None else {"partition": partition}
        if pairs:
            where["headers"] = _headers(pairs)
        delivery.produce(topic, key, value, where)


def _headers(pairs: list[Any]) -> list[tuple[str, bytes | None]]:
    if any(pair is None or pair["key"] is None for pair in pairs):
        raise WriteError(
            "a row has a null header, or one with a null key, and Kafka has none such: leave them out with "
            "filter(headers, h -> h.key is not null). A null value is fine, and so is a null array"
        )
    return [(pair["key"], pair["value"]) for pair in pairs]


def _producer(settings: Mapping[str, str]) -> Any:
    """One producer per configuration for as long as the worker lives: connections and producer ids are reused."""
    from confluent_kafka import KafkaException, Producer

    key = tuple(sorted(settings.items()))
    if key not in _producers:
        try:
            _producers[key] = Producer({**PRODUCER_DEFAULTS, **_translated(settings)}, logger=log)
        except (KafkaException, TypeError, ValueError) as error:
            raise OptionError(f"the producer refuses its configuration: {error}") from None
    return _producers[key]


def _translated(settings: Mapping[str, str]) -> dict[str, Any]:
    translated: dict[str, Any] = dict(for_librdkafka(settings))
    provider = translated.pop("sasl.oauthbearer.token.provider", None)
    if provider is not None:
        translated["oauth_cb"] = lambda _: tuple(token_of(provider))
    return translated


def _forget(settings: Mapping[str, str]) -> None:
    """After a failed task: what it left behind must not be sent by the next, and some errors no producer survives."""
    producer = _producers.pop(tuple(sorted(settings.items())), None)
    if producer is not None:
        producer.purge()


class _Delivery:
    """Counts what the brokers acknowledged; the first refusal fails the task."""

    def __init__(self, producer: Any, settings: Mapping[str, str]) -> None:
        self._producer = producer
        self._settings = settings
        self._sent = self._acknowledged = 0
        self._failure: str | None = None

    def produce(self, topic: str, key: Any, value: Any, where: dict[str, Any]) -> None:
        from confluent_kafka import KafkaException

        while True:
            try:
                self._producer.produce(topic, value, key, on_delivery=self._delivered, **where)
                break
            except BufferError:
                self._ask(self._producer.poll, 0.1)
            except KafkaException as error:
                size = len(key or b"") + len(value or b"")
                raise WriteError(f"{topic}: {self._advice(error.args[0], size)}") from None
        self._sent += 1
        if self._sent % 1000 == 0:
            self._ask(self._producer.poll, 0)

    def _ask(self, method: Callable[[float], int], seconds: float) -> int:
        """Takes the acknowledgements that have come."""
        from confluent_kafka import KafkaError

        try:
            left = method(seconds)
        except (KeyboardInterrupt, SystemExit):
            raise
        except:  # noqa: E722 - confluent-kafka raises fatal errors as a KafkaError, which is no exception, or what comes of that
            cause = sys.exc_info()[1]
            text = cause.str() if isinstance(cause, KafkaError) else "the producer has failed, its log says why"
            raise WriteError(f"{text}: {_FOR_GOOD}") from None
        if self._failure is not None:
            raise WriteError(self._failure)
        return left

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self._acknowledged += 1
        elif self._failure is None:
            size = len(message.key() or b"") + len(message.value() or b"")
            self._failure = f"{message.topic()}-{message.partition()}: {self._advice(error, size)}"

    def _advice(self, error: Any, size: int) -> str:
        """What librdkafka or the broker says, and what to do about it."""
        from confluent_kafka import KafkaError

        text = str(error.str())
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            limit = self._settings.get("message.max.bytes", "1000000, librdkafka's default")
            return (
                f"{text}: a row of {size} bytes is too large. The producer takes kafka.message.max.bytes ({limit}), "
                "the topic its max.message.bytes, compressed: raise what is smaller, or write less into a row"
            )
        if error.fatal() or error.code() == KafkaError._FATAL:
            return f"{text}: {_FOR_GOOD}"
        if error.code() in (KafkaError._MSG_TIMED_OUT, KafkaError._TIMED_OUT):
            return (
                f"{text}: the brokers did not acknowledge it within kafka.delivery.timeout.ms "
                f"({self._settings.get('delivery.timeout.ms', '300000')}): can they be reached, and are enough of "
                "the partition's replicas in sync?"
            )
        return text

    def finish(self) -> int:
        left = self._ask(self._producer.flush, FLUSH_SECONDS)
        if left or self._acknowledged != self._sent:
            raise WriteError(
                f"{self._sent - self._acknowledged} of {self._sent} records were not acknowledged within "
                f"{FLUSH_SECONDS} s"
            )
        return self._sent


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
        options, shares = self._options, tuple(one.share for one in prepared)
        sources = options.checkpoint if options.source_offsets else None
        words = run(kind(batch_id, shares), prepared[0].query, options.producer, options.decisions_topic, sources)
        log.info(words)
