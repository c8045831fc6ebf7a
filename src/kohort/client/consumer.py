"""Consumer: the blocking API. A thin layer over AsyncConsumer, whose loop runs on a background thread.

Listeners and commit callbacks are called on the user's thread, within poll(), commit(), unsubscribe() and close().
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from kohort.client.background import LoopThread, blocking
from kohort.client.consumer_async import (
    ARROW_ROWS,
    AsyncConsumer,
    CommitCallback,
    ListenerCall,
    Offsets,
    decode_arrow,
)
from kohort.client.errors import ConsumerClosedError
from kohort.client.listeners import RebalanceListener
from kohort.client.subscriptions import Topics
from kohort.client.types import ConsumerRecord, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")


class Consumer:
    """Reads topics as a member of a group, or partitions of its own choice.

    with Consumer(bootstrap_servers="localhost:9092", group_id="orders", auto_offset_reset="earliest") as consumer:
        consumer.subscribe("orders")
        for record in consumer:
            print(record.value)

    One thread at a time may use it. Settings are Kafka's, dotted in `config` or underscored as keywords.
    """

    def __init__(self, config: Mapping[str, Any] | None = None, **settings: Any) -> None:
        self._async = AsyncConsumer(config, **settings)
        self._thread: LoopThread | None = LoopThread(f"kohort consumer {self._async.config.group_id or ''}".strip())
        self._callbacks: deque[tuple[CommitCallback, dict[TopicPartition, OffsetAndMetadata], Exception | None]] = (
            deque()
        )
        self._blocking_call(AsyncConsumer.start)

    @property
    def config(self) -> Any:
        return self._async.config

    def _blocking_call(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self._thread is None:
            raise ConsumerClosedError("this consumer was closed; create a new one")

        async def call() -> Any:
            result = method(self._async, *args, **kwargs)
            return await result if hasattr(result, "__await__") else result

        return self._thread.call(call())

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        thread = getattr(self, "_thread", None)
        if thread is not None:
            thread._loop.call_soon_threadsafe(thread._loop.stop)

    # -- listeners, on this thread --------------------------------------------------------------------------------

    def _call_listener(self, call: ListenerCall) -> BaseException | None:
        failure: BaseException | None = None
        try:
            call.callback(call.partitions)
        except BaseException as error:
            failure = error
        self._blocking_call(AsyncConsumer._finish, call)
        return failure

    def _until_done(self, step: Callable[..., Any], *args: Any) -> None:
        """Unsubscribing and closing: listeners in between; the first exception of theirs is raised at the end."""
        failure: BaseException | None = None
        while (call := self._blocking_call(step, *args)) is not None:
            failure = self._call_listener(call) or failure
        if failure is not None:
            raise failure

    def _steps(self, timeout: float, step: Callable[..., Any], *args: Any) -> Any:
        self._run_callbacks()
        deadline = time.monotonic() + timeout
        while True:
            result = self._blocking_call(step, deadline, *args)
            if not isinstance(result, ListenerCall):
                return result
            failure = self._call_listener(result)
            if failure is not None:
                raise failure

    def _run_callbacks(self) -> None:
        while self._callbacks:
            callback, offsets, error = self._callbacks.popleft()
            callback(offsets, error)

    # -- what to read -------------------------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Topics,
        listener: RebalanceListener | None = None,
        *,
        on_partitions_revoked: Callable[..., Any] | None = None,
        on_partitions_assigned: Callable[..., Any] | None = None,
        on_partitions_lost: Callable[..., Any] | None = None,
    ) -> None:
        """Share these topics with the group. A compiled pattern or a string that begins with ^ matches topic names.

        The listener is an object with `on_partitions_*` methods, or up to three functions.
        """
        self._blocking_call(
            AsyncConsumer.subscribe,
            topics,
            listener,
            on_partitions_revoked=on_partitions_revoked,
            on_partitions_assigned=on_partitions_assigned,
            on_partitions_lost=on_partitions_lost,
        )

    def unsubscribe(self) -> None:
        """Leave the group, or give up what was assigned."""
        self._until_done(AsyncConsumer._unsubscribing)

    def close(self, timeout: float = 30.0, leave_group: bool | None = None) -> None:
        """Commit (where automatic), revoke, leave the group, disconnect. A listener's exception is raised at the end.

        `leave_group` overrides that dynamic members leave and static ones keep their place for a restart.
        """
        if self._thread is None:
            return
        try:
            self._until_done(AsyncConsumer._closing, timeout, leave_group)
            self._run_callbacks()
        finally:
            self._thread.close()
            self._thread = None

    # -- reading ------------------------------------------------------------------------------------------------------

    def poll(self, timeout: float = 1.0, max_records: int | None = None) -> list[ConsumerRecord]:
        """Records, as soon as there are any; [] after `timeout` seconds. Listeners are called in here."""
        records: list[ConsumerRecord] = self._steps(timeout, AsyncConsumer._poll_step, max_records)
        return records

    def poll_arrow(
        self, timeout: float = 1.0, columns: Sequence[str] | None = None, max_rows: int = ARROW_ROWS
    ) -> list[pa.RecordBatch]:
        """Like poll(), as Arrow record batches with the columns of Spark's Kafka source; about `max_rows` at a time.

        They are decoded on this thread while the next ones are fetched on the other.
        """
        return decode_arrow(self._steps(timeout, AsyncConsumer._chunks_step, max_rows), columns)

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return self

    def __next__(self) -> ConsumerRecord:
        while not self._async._unread:
            records = self.poll(timeout=3600.0)
            self._async._unread.extend(records)
        return self._async._unread.popleft()

    def commit_async(self, offsets: Offsets | None = None, callback: CommitCallback | None = None) -> None:
        """Send a commit and go on; `callback(offsets, error)` is called in a later poll(), commit() or close()."""
        queue = self._callbacks

        def done(committed: dict[TopicPartition, OffsetAndMetadata], error: Exception | None) -> None:
            assert callback is not None
            queue.append((callback, committed, error))

        self._run_callbacks()
        self._blocking_call(AsyncConsumer.commit_async, offsets, None if callback is None else done)

    def commit(self, offsets: Offsets | None = None, timeout: float | None = None) -> None:
        """Store offsets (default: the positions) for the group and wait until that is done.

        CommitFailedError says that the partitions moved to other members and why.
        """
        self._run_callbacks()
        self._blocking_call(AsyncConsumer.commit, offsets, timeout)

    # -- the rest is the same --------------------------------------------------------------------------------

    assign = blocking(AsyncConsumer.assign)
    assignment = blocking(AsyncConsumer.assignment)
    subscription = blocking(AsyncConsumer.subscription)
    seek = blocking(AsyncConsumer.seek)
    seek_to_beginning = blocking(AsyncConsumer.seek_to_beginning)
    seek_to_end = blocking(AsyncConsumer.seek_to_end)
    position = blocking(AsyncConsumer.position)
    pause = blocking(AsyncConsumer.pause)
    resume = blocking(AsyncConsumer.resume)
    paused = blocking(AsyncConsumer.paused)
    committed = blocking(AsyncConsumer.committed)
    offsets_for_times = blocking(AsyncConsumer.offsets_for_times)
    beginning_offsets = blocking(AsyncConsumer.beginning_offsets)
    end_offsets = blocking(AsyncConsumer.end_offsets)
    lag = blocking(AsyncConsumer.lag)
    partitions_for = blocking(AsyncConsumer.partitions_for)
    group_metadata = blocking(AsyncConsumer.group_metadata)
    story = blocking(AsyncConsumer.story)
    metrics = blocking(AsyncConsumer.metrics)
    enforce_rebalance = blocking(AsyncConsumer.enforce_rebalance)
