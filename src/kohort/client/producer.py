"""Producer: the blocking API. Records are batched on the caller's thread and sent on a background thread."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kohort.client.background import LoopThread, blocking
from kohort.client.delivery import Delivery, Headers
from kohort.client.errors import ConsumerClosedError
from kohort.client.producer_async import AsyncProducer
from kohort.protocol.errors import KafkaError

if TYPE_CHECKING:
    from kohort.client.producer_columns import ColumnsDelivery

CLOSE_AFTER_ERROR_S = 5.0


class Producer:
    """Writes records, in batches, with retries that neither double nor reorder them.

    with Producer(bootstrap_servers="localhost:9092") as producer:
        producer.send("orders", b"...", key="customer-7")

    Any number of threads may use one. Settings are Kafka's, dotted in `config` or underscored as keywords; keys and
    values are bytes, str (UTF-8) or None. With a transactional_id:

    with producer.transaction():
        producer.send("totals", b"...")
        producer.send_offsets({TopicPartition("orders", 0): 17}, consumer.group_metadata())
    """

    def __init__(self, config: Mapping[str, Any] | None = None, **settings: Any) -> None:
        self._async = AsyncProducer(config, **settings)
        self._thread: LoopThread | None = LoopThread("kohort producer")
        self._blocking_call(_start)

    @property
    def config(self) -> Any:
        return self._async.config

    def _blocking_call(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self._thread is None:
            raise ConsumerClosedError("this producer was closed; create a new one")
        return self._thread.call(method(self._async, *args, **kwargs))

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, kind: object, *exc: object) -> None:
        if kind is None:
            self.close()
            return
        try:
            self.close(CLOSE_AFTER_ERROR_S)
        except KafkaError:
            pass  # the error that ended the block is the one to see

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Take the record into a batch and return at once, unless metadata or room in the buffer must be waited for.

        `result()` of the Delivery waits until it is stored. Without a partition, equal keys go to equal partitions as
        with every Kafka client, and records without a key to one partition after the other.
        """
        if self._thread is None:
            raise ConsumerClosedError("this producer was closed; create a new one")
        producer = self._async
        record, size = producer.record(value, key, headers, timestamp_ms)
        while (taken := producer.enqueue(topic, record, size, partition)) is None:
            self._blocking_call(AsyncProducer.prepare, topic, size)
        delivery, news = taken
        if news:
            producer._loop.call_soon_threadsafe(producer.pump)
        return delivery

    def send_columns(self, topic: str | None, data: Any) -> ColumnsDelivery:
        """Send the rows of an Arrow table, or of anything that can be one: columns key and value (binary or string),
        headers, timestamp and partition, those that are there; with None for the topic a column topic too.

        Without a Python object per row, compressed, partitioned, idempotent and in transactions as by send(). Rows of a
        partition keep their order. A row that cannot be sent is told before any is. Waits for metadata and room in the
        buffer; `result()` of what this returns waits until all rows are stored, and says where.
        """
        from kohort.client.producer_columns import sending

        if self._thread is None:
            raise ConsumerClosedError("this producer was closed; create a new one")
        producer = self._async
        steps = sending(producer, topic, data, lambda: producer._loop.call_soon_threadsafe(producer.pump))
        while True:
            try:
                need = next(steps)
            except StopIteration as end:
                delivery: ColumnsDelivery = end.value
                return delivery
            if need is not None:
                self._blocking_call(AsyncProducer.prepare, *need)

    def close(self, timeout: float | None = None) -> None:
        """Flush, then disconnect; what is not stored within `timeout` seconds fails, and that is raised."""
        if self._thread is not None:
            try:
                self._blocking_call(AsyncProducer.close, timeout)
            finally:
                self._thread.close()
                self._thread = None

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Producer]:
        """begin(), then commit(), or abort() where the block raises."""
        self.begin()
        try:
            yield self
        except BaseException:
            self._blocking_call(AsyncProducer._abort_unless_stopped)
            raise
        self._blocking_call(AsyncProducer._commit_or_abort)

    begin = blocking(AsyncProducer.begin)
    send_offsets = blocking(AsyncProducer.send_offsets)
    commit = blocking(AsyncProducer.commit)
    abort = blocking(AsyncProducer.abort)
    hand_over = blocking(AsyncProducer.hand_over)
    flush = blocking(AsyncProducer.flush)
    partitions_for = blocking(AsyncProducer.partitions_for)


async def _start(producer: AsyncProducer) -> None:
    producer.start()
