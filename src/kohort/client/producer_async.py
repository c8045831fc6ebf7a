"""AsyncProducer: batches over asyncio. The batching itself is in `batching`, the blocking API in `producer`."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import time
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from kohort.assignors.types import ConsumerGroupMetadata
from kohort.client.batching import Batch, Batching, Outcome, ProducerId, record_size
from kohort.client.cluster import Cluster
from kohort.client.delivery import Delivery, Headers, RecordMetadata, to_bytes, to_headers
from kohort.client.errors import (
    ConfigError,
    ConsumerClosedError,
    KafkaTimeoutError,
    TransactionAbortableError,
    error_for,
)
from kohort.client.metadata import Metadata
from kohort.client.partitioner import Sticky, key_partitioner
from kohort.client.producer_config import ProducerConfig
from kohort.client.producer_transactions import Offsets, Transactions
from kohort.client.transactions import Step
from kohort.client.types import OpenTransaction, TopicPartition
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages import InitProducerIdRequest
from kohort.records.batch import Record

if TYPE_CHECKING:
    from kohort.client.producer_columns import ColumnsDelivery

__all__ = ["AsyncProducer", "Delivery", "Headers", "RecordMetadata", "now_ms"]

LAST_VERSION_WITH_TOPIC_NAMES = 12
LAST_VERSION_OF_TV1, FIRST_VERSION_OF_TV2 = 11, 12
FLUSH_FOREVER_S = 366 * 86_400.0


class AsyncProducer:
    """Writes records, in batches, with retries that neither double nor reorder them. Use `async with`."""

    def __init__(self, config: Mapping[str, Any] | None = None, **settings: Any) -> None:
        merged = {**(config or {}), **settings}
        if "client_id" not in merged:
            merged.setdefault("client.id", "kohort-producer")
        self.config = ProducerConfig(merged)
        self._batching = Batching(self.config.batching(), Future)
        self._of_value, self._of_key = self.config["value.serializer"], self.config["key.serializer"]
        self._max_request_size, self._buffer_memory = self.config["max.request.size"], self.config["buffer.memory"]
        self._lock = threading.Lock()
        self._unseen: dict[Batch, KafkaError] = {}
        self._sticky: dict[str, Sticky] = {}
        self._partitions: dict[str, tuple[int, Sequence[int]]] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self._topics: set[str] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._partition_of_key = key_partitioner()
        self._asking_id = False
        self._flushing = 0
        self._closed = False
        self._cluster: Cluster | None = None
        transactional_id = self.config["transactional.id"]
        self._transactions = None if transactional_id is None else Transactions(self, transactional_id)

    async def __aenter__(self) -> AsyncProducer:
        self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def start(self) -> Cluster:
        """Called by the first `send`; needs a running loop."""
        if self._closed:
            raise ConsumerClosedError("this producer was closed; create a new one")
        if self._cluster is None:
            self._loop = asyncio.get_running_loop()
            self._progress = asyncio.Event()
            self._cluster = Cluster(self.config)
            self._cluster.on_metadata.append(self._metadata_arrived)
        return self._cluster

    # -- sending ------------------------------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Take the record into a batch; waits only for metadata and room. Await the Delivery to know it is stored."""
        self.start()
        record, size = self.record(value, key, headers, timestamp_ms)
        while (taken := self.enqueue(topic, record, size, partition)) is None:
            await self.prepare(topic, size)
        delivery, news = taken
        if news:
            self.pump()
        return delivery

    async def send_columns(self, topic: str | None, data: Any) -> ColumnsDelivery:
        """Send the rows of an Arrow table, or of anything that can be one: columns key and value (binary or string),
        headers, timestamp and partition, those that are there; with None for the topic a column topic too.

        Rows of a partition keep their order. A row that cannot be sent is told before any is. Waits for metadata and
        room; await what this returns to know where they are stored.
        """
        from kohort.client.producer_columns import sending

        self.start()
        steps = sending(self, topic, data, self.pump)
        while True:
            try:
                need = next(steps)
            except StopIteration as end:
                delivery: ColumnsDelivery = end.value
                return delivery
            await (asyncio.sleep(0) if need is None else self.prepare(*need))

    def record(self, value: Any, key: Any, headers: Headers, timestamp_ms: int | None) -> tuple[Record, int]:
        plain = type(value) is bytes and self._of_value is None
        content = value if plain else to_bytes("value", value, self._of_value)
        plain = type(key) is bytes and self._of_key is None
        name = key if plain else to_bytes("key", key, self._of_key)
        pairs = to_headers(headers) if headers else ()
        size = record_size(name, content, pairs)
        limit = self._max_request_size
        if size > limit:
            text = f"a record of {size} bytes is larger than max.request.size={limit}: raise it and max.message.bytes"
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, text)
        at_ms = int(time.time() * 1000) if timestamp_ms is None else timestamp_ms
        if not 0 <= at_ms < 2**63:
            raise ValueError(f"timestamp_ms={at_ms} is not a time: give milliseconds since 1970")
        return Record(0, at_ms, name, content, pairs), size

    def enqueue(self, topic: str, record: Record, size: int, partition: int | None) -> tuple[Delivery, bool] | None:
        """From any thread, and whether to `pump`; None where metadata or room is missing: then `prepare`."""
        known = self._partitions.get(topic)
        if self._transactions is not None:
            self._transactions.state.require("send()", Step.OPEN)
        if known is None:
            return None
        with self._lock:
            buffered = self._batching.buffered_bytes
            if buffered and size > self._buffer_memory - buffered:
                return None
            number = self._choose(topic, known, record.key, size) if partition is None else partition
            if not 0 <= number < known[0]:
                text = f"{topic} has partitions 0 to {known[0] - 1}, not {number}"
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
            batch, place, news = self._batching.append(TopicPartition(topic, number), record, size, now_ms())
        return Delivery(batch, place, self._unseen), news

    def _choose(self, topic: str, known: tuple[int, Sequence[int]], key: bytes | None, size: int) -> int:
        if key is not None:
            return self._partition_of_key(key, known[0])
        return self._sticky_of(topic).partition(known[1], size)

    def _sticky_of(self, topic: str) -> Sticky:
        sticky = self._sticky.get(topic)
        if sticky is None:
            sticky = self._sticky[topic] = Sticky(self.config["batch.size"], random.random)
        return sticky

    async def prepare(self, topic: str, size: int) -> None:
        """Wait until the topic's partitions are known and the buffer has room for `size` bytes."""
        cluster = self.start()
        patience_ms = self.config["max.block.ms"]
        if topic not in self._topics:
            self._topics.add(topic)
            cluster.watch(self._topics)
        until = asyncio.get_running_loop().time() + patience_ms / 1000
        try:
            if topic not in self._partitions:
                await self._find(cluster, topic, until)
            async with asyncio.timeout_at(until):
                while (
                    self._batching.buffered_bytes
                    and self._batching.buffered_bytes + size > self.config["buffer.memory"]
                ):
                    self._progress.clear()
                    self.pump()
                    await self._progress.wait()
        except TimeoutError as error:
            if isinstance(error, KafkaError):
                raise
            raise self._not_prepared(topic, patience_ms) from None

    async def _find(self, cluster: Cluster, topic: str, until: float) -> None:
        """Where nobody has answered at all, the error of that is raised: it says who could not be reached, and why."""
        loop, answered = asyncio.get_running_loop(), False
        while topic not in self._partitions:
            left_s = until - loop.time()
            if left_s <= 0:
                raise TimeoutError
            try:
                await cluster.refresh(max(round(1000 * left_s), 1))
            except KafkaTimeoutError:
                if not answered:
                    raise
                raise TimeoutError from None
            answered = True
            if topic not in self._partitions:
                await asyncio.sleep(min(self.config["retry.backoff.ms"] / 1000, max(until - loop.time(), 0)))

    def _not_prepared(self, topic: str, patience_ms: int) -> KafkaError:
        if topic in self._partitions:
            return KafkaTimeoutError(
                f"no room in buffer.memory within {patience_ms / 1000:g} s: the broker stores too slowly"
            )
        text = f"no topic {topic} within {patience_ms / 1000:g} s: create it, or allow the broker to"
        return error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)

    # -- batches ------------------------------------------------------------------------------------------------------

    def _metadata_arrived(self, metadata: Metadata) -> None:
        self._leaders = {tp: leader.node_id for tp, leader in metadata.leaders().items()}
        self._partitions = {
            topic.name: (
                len(topic.partitions),
                [p.partition for p in topic.partitions if p.leader >= 0] or [p.partition for p in topic.partitions],
            )
            for topic in metadata.topics.values()
            if topic.partitions
        }
        self.pump()

    def pump(self) -> None:
        """Send what is due and set the timer for the rest. On the loop's thread."""
        cluster = self._cluster
        if cluster is None or self._closed:
            return
        moment = now_ms()
        ready: list[tuple[int, list[Batch]]] = []
        with self._lock:
            outcomes = self._batching.expire(moment)
            ask_id = self._batching.pending and self._batching.wants_producer_id and not self._asking_id
            while found := self._batching.drain(moment, self._leaders):
                ready += found.items()
            deadline = self._batching.next_deadline()
            unenlisted = self._batching.unenlisted()
        self._settle(outcomes)
        if self._transactions is not None:
            self._transactions.enlist_soon(unenlisted)
            ask_id = False
        if ask_id:
            self._asking_id = True
            self._spawn(self._new_producer_id(cluster))
        for node_id, batches in ready:
            self._spawn(self._produce(cluster, node_id, batches))
        self._arm(moment, deadline)

    def _arm(self, moment: int, deadline: int | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if deadline is not None:
            # What is due and was not sent has no leader, or no producer id yet: look again after the backoff.
            wait_ms = deadline - moment if deadline > moment else self.config["retry.backoff.ms"]
            self._timer = self._loop.call_later((wait_ms + 1) / 1000, self.pump)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _produce(self, cluster: Cluster, node_id: int, batches: list[Batch]) -> None:
        try:
            request = self._batching.request(batches)
            is_tv1 = self._transactions is not None and not self._batching.enlists_itself
            response = await cluster.request(
                node_id,
                request,
                min_version=FIRST_VERSION_OF_TV2 if self._batching.enlists_itself else 0,
                max_version=LAST_VERSION_OF_TV1 if is_tv1 else LAST_VERSION_WITH_TOPIC_NAMES,
                answered=request.acks != 0,
            )
        except KafkaError as error:
            with self._lock:
                outcomes = self._batching.unanswered(batches, error, now_ms())
            cluster.refresh_soon()
        except Exception as error:  # nobody may wait for ever on a batch that cannot be encoded
            failure = KafkaError(ErrorCode.INVALID_RECORD, f"{type(error).__name__}: {error}")
            with self._lock:
                outcomes = self._batching.failed(batches, failure)
        else:
            with self._lock:
                if response is None:
                    outcomes = self._batching.unacknowledged(batches)
                else:
                    outcomes = self._batching.answered(batches, response, now_ms())
            if any(r.error_code for t in (response.responses if response else ()) for r in t.partition_responses):
                cluster.refresh_soon()
        self._settle(outcomes)
        self.pump()

    async def _new_producer_id(self, cluster: Cluster) -> None:
        backoff = self.config["retry.backoff.ms"] / 1000
        try:
            while True:
                try:
                    response = await cluster.request(
                        None, InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
                    )
                    if response.error_code:
                        raise error_for(response.error_code)
                    break
                except KafkaError as error:
                    if not error.code.retriable:
                        with self._lock:
                            outcomes = self._batching.abandon(error)
                        return self._settle(outcomes)
                    await asyncio.sleep(backoff)
            with self._lock:
                self._batching.use_producer_id(ProducerId(response.producer_id, response.producer_epoch))
        finally:
            self._asking_id = False
        self.pump()

    def _settle(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            if outcome.error is not None:
                self._unseen[outcome.batch] = outcome.error
                if self._transactions is not None:
                    self._transactions.state.failed(outcome.error)
            if outcome.batch.promise.set_running_or_notify_cancel():
                outcome.batch.promise.set_result(outcome.parts)
        if outcomes:
            self._progress.set()

    # -- the end ------------------------------------------------------------------------------------------------------

    async def flush(self, timeout: float | None = None) -> None:
        """Until everything sent so far is stored; raises the first failure that nobody has looked at."""
        if self._cluster is not None:
            await self._flush(timeout)
        if self._unseen:
            error = next(iter(self._unseen.values()))
            self._unseen.clear()
            raise error

    async def _flush(self, timeout: float | None) -> None:
        with self._lock:
            waiting = self._batching.promises()
            self._flushing += 1
            self._batching.flushing = True
        self.pump()
        try:
            async with asyncio.timeout(FLUSH_FOREVER_S if timeout is None else timeout):
                for promise in waiting:
                    await asyncio.shield(asyncio.wrap_future(promise))
        except TimeoutError:
            raise KafkaTimeoutError(f"not all records are stored after {timeout:g} s") from None
        finally:
            self._flushing -= 1
            self._batching.flushing = self._flushing > 0

    async def close(self, timeout: float | None = None) -> None:
        """Flush, then disconnect; what is not stored within `timeout` seconds fails."""
        if self._closed:
            return
        try:
            if self._transactions is not None and self._transactions.state.step in (Step.OPEN, Step.BROKEN):
                await self.abort()
            await self.flush(timeout)
        finally:
            self._closed = True
            if self._timer is not None:
                self._timer.cancel()
            if self._cluster is not None:
                await self._cluster.close()
                for task in list(self._tasks):
                    task.cancel()
                await asyncio.gather(*self._tasks, return_exceptions=True)
                self._settle(
                    self._batching.abandon(KafkaTimeoutError("the producer was closed before this was stored"))
                )

    # -- transactions -------------------------------------------------------------------------------------------------

    @property
    def _own_transactions(self) -> Transactions:
        if self._transactions is None:
            raise ConfigError("transactions need a transactional.id: AsyncProducer(transactional_id=...)")
        return self._transactions

    async def begin(self) -> None:
        """Begin a transaction. The first one takes the transactional.id over from whoever had it."""
        await self._own_transactions.begin()

    async def send_offsets(self, offsets: Offsets, group: ConsumerGroupMetadata | str) -> None:
        """Commit a consumer's positions in the transaction: {TopicPartition("orders", 0): 17}, and
        `consumer.group_metadata()`, so that a consumer that has lost its partitions cannot."""
        await self._own_transactions.send_offsets(offsets, group)

    async def commit(self) -> None:
        """Everything since begin() is read from now on, whole. TransactionAbortableError: abort() instead."""
        await self._own_transactions.commit()

    async def abort(self) -> None:
        """Nothing since begin() will ever be read by read_committed consumers."""
        await self._own_transactions.abort()

    async def hand_over(self) -> OpenTransaction | None:
        """Store what was sent and leave the transaction open: whoever gets what this returns ends it, from anywhere,
        with `Admin.end_transaction`, within transaction.timeout.ms. None where there is nothing in it. The next
        begin() takes the transactional.id over again, and would abort what has not been ended by then."""
        return await self._own_transactions.hand_over()

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncProducer]:
        """begin(), then commit(), or abort() where the block raises."""
        await self.begin()
        try:
            yield self
        except BaseException:
            await self._abort_unless_stopped()
            raise
        await self._commit_or_abort()

    async def _abort_unless_stopped(self) -> None:
        if self._own_transactions.state.step is not Step.STOPPED:
            await self.abort()

    async def _commit_or_abort(self) -> None:
        try:
            await self.commit()
        except TransactionAbortableError:
            await self.abort()
            raise

    async def partitions_for(self, topic: str) -> list[int]:
        """The partitions of a topic."""
        await self.prepare(topic, 0)
        return list(range(self._partitions[topic][0]))


def now_ms() -> int:
    return int(time.monotonic() * 1000)
