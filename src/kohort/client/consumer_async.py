"""AsyncConsumer: Kafka's consumer API for asyncio. The blocking consumer is made of the same pieces."""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kohort.assignors import ConsumerGroupMetadata
from kohort.client import effects as fx
from kohort.client import events as ev
from kohort.client.chunks import Chunk
from kohort.client.cluster import Asking
from kohort.client.config import Config
from kohort.client.consumer_core import ConsumerCore
from kohort.client.consumer_questions import Questions
from kohort.client.consumer_states import Application
from kohort.client.driver_async import ConsumerDriver
from kohort.client.errors import ConfigError, ConsumerClosedError
from kohort.client.fetcher import Fetcher
from kohort.client.group_member import GroupMember
from kohort.client.listeners import RebalanceListener, as_listener
from kohort.client.subscriptions import Topics, Wanted, as_event, subscription
from kohort.client.types import (
    ConsumerRecord,
    OffsetAndMetadata,
    TopicPartition,
    partition_list,
)

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("kohort.client")

Offsets = Mapping[TopicPartition, OffsetAndMetadata | int]
CommitCallback = Callable[[dict[TopicPartition, OffsetAndMetadata], Exception | None], Any]
ARROW_ROWS = 65_536
NOTHING_TO_READ = (
    "nothing to read: call subscribe() or assign() first; those of AsyncConsumer are coroutines, "
    "so write await consumer.subscribe(...)"
)
BYTES_PER_ROW = 16


@dataclass(slots=True)
class ListenerCall:
    """A listener to be called by whoever owns the thread, then `finish` it."""

    callback: Callable[[list[TopicPartition]], Any]
    partitions: list[TopicPartition]
    action: fx.Revoke | fx.Lose | fx.Assign


class AsyncConsumer(Questions):
    """Reads topics as a member of a group, or partitions of its own choice. Use `async with`, or `close` at the end."""

    def __init__(self, config: Mapping[str, Any] | None = None, **settings: Any) -> None:
        self.config = Config({**(config or {}), **settings})
        self._driver: ConsumerDriver | None = None
        self._listener: RebalanceListener | None = None
        self._subscribed: Wanted | None = None
        self._unread: deque[ConsumerRecord] = deque()
        self._running: ListenerCall | None = None
        self._leave_by: float | None = None
        self._closed = False

    # -- life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> AsyncConsumer:
        """Needed only outside of `async with`; other calls start the consumer by themselves."""
        self._open()
        return self

    async def __aenter__(self) -> AsyncConsumer:
        return await self.start()

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def _open(self) -> ConsumerDriver:
        if self._closed:
            raise ConsumerClosedError("this consumer was closed; create a new one")
        if self._driver is None:
            self._driver = ConsumerDriver(ConsumerCore(self.config, random.random))
        return self._driver

    def _cluster(self) -> Asking:
        driver = self._open()
        return Asking(driver, driver.core)

    @property
    def _member(self) -> GroupMember | None:
        return self._open().core.member

    @property
    def _fetcher(self) -> Fetcher:
        fetcher = self._open().core.fetcher
        assert fetcher is not None
        return fetcher

    async def close(self, timeout: float = 30.0, leave_group: bool | None = None) -> None:
        """Commit (where automatic), revoke, leave the group, disconnect. A listener's exception is raised at the end.

        `leave_group` overrides that dynamic members leave and static ones keep their place for a restart.
        """
        failure: BaseException | None = None
        while (call := await self._closing(timeout, leave_group)) is not None:
            failure = await self._call_listener(call) or failure
        if failure is not None:
            raise failure

    async def _closing(self, timeout: float, leave_group: bool | None) -> ListenerCall | None:
        """A listener to call first, or None when all is closed."""
        if self._driver is None or self._closed:
            self._closed = True
            return None
        call = await self._leaving("the consumer is being closed", timeout, leave_group)
        if call is None:
            self._closed = True
            await self._driver.close()
        return call

    async def _leaving(self, reason: str, timeout: float, leave_group: bool | None = None) -> ListenerCall | None:
        driver, member = self._open(), self._member
        if member is None or not (member.subscribed or member.owned or self.config["enable.auto.commit"]):
            return None
        self._not_within_a_listener()
        if self._leave_by is None:
            self._leave_by = asyncio.get_running_loop().time() + timeout
            driver.left.clear()
            driver.tell(ev.Leave(reason, leave_group, self._unread_positions()))
        while True:
            driver.expect_news()
            if (call := self._next_call()) is not None:
                return call
            if driver.left.is_set():
                break
            if not await driver.news(self._leave_by):
                log.warning("leaving group %s took longer than %g s", self.config["group.id"], timeout)
                break
        self._leave_by = None
        return None

    # -- what to read -------------------------------------------------------------------------------------------------

    async def subscribe(
        self,
        topics: Topics,
        listener: RebalanceListener | None = None,
        *,
        on_partitions_revoked: Callable[..., Any] | None = None,
        on_partitions_assigned: Callable[..., Any] | None = None,
        on_partitions_lost: Callable[..., Any] | None = None,
    ) -> None:
        """Share these topics with the group. A compiled pattern or a string that begins with ^ matches topic names.

        A SubscriptionPattern is matched by the broker (group.protocol=consumer).
        """
        driver = self._open()
        if self._member is None:
            raise ConfigError("subscribe() needs a group.id; assign() reads without a group")
        if self._subscribed is None and self._fetcher.assigned:
            raise ConfigError("partitions were assigned by assign(); unsubscribe() first")
        wanted = subscription(topics)
        heard = as_listener(listener, on_partitions_revoked, on_partitions_assigned, on_partitions_lost)
        driver.tell(as_event(wanted))
        self._listener, self._subscribed = heard, wanted

    def subscription(self) -> frozenset[str]:
        member = self._member
        return member.topics if member is not None else frozenset()

    async def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions; no group takes part, though offsets can be committed to one."""
        driver = self._open()
        if self._subscribed is not None:
            raise ConfigError("topics were subscribed to; unsubscribe() first")
        wanted = frozenset(TopicPartition(*tp) for tp in partitions)
        self._drop_unread(lambda tp: tp not in wanted)
        driver.tell(ev.AssignManually(wanted))

    def assignment(self) -> frozenset[TopicPartition]:
        return self._fetcher.assigned

    async def unsubscribe(self) -> None:
        """Leave the group, or give up what was assigned."""
        failure: BaseException | None = None
        while (call := await self._unsubscribing()) is not None:
            failure = await self._call_listener(call) or failure
        if failure is not None:
            raise failure

    async def _unsubscribing(self) -> ListenerCall | None:
        driver = self._open()
        if self._subscribed is not None:
            patience = self.config["default.api.timeout.ms"] / 1000
            call = await self._leaving("the consumer unsubscribed from all topics", patience)
            if call is not None:
                return call
        self._subscribed, self._listener = None, None
        self._unread.clear()
        driver.tell(ev.Unassign())
        return None

    # -- reading ------------------------------------------------------------------------------------------------------

    async def poll(self, timeout: float = 1.0, max_records: int | None = None) -> list[ConsumerRecord]:
        """Records, as soon as there are any; [] after `timeout` seconds. Listeners are called in here."""
        deadline = asyncio.get_running_loop().time() + timeout
        while True:
            result = await self._poll_step(deadline, max_records)
            if isinstance(result, list):
                return result
            await self._answer_listener(result)

    async def poll_arrow(
        self, timeout: float = 1.0, columns: Sequence[str] | None = None, max_rows: int = ARROW_ROWS
    ) -> list[pa.RecordBatch]:
        """Like poll(), as Arrow record batches with the columns of Spark's Kafka source; about `max_rows` at a time."""
        deadline = asyncio.get_running_loop().time() + timeout
        while True:
            result = await self._chunks_step(deadline, max_rows)
            if isinstance(result, list):
                return decode_arrow(result, columns)
            await self._answer_listener(result)

    def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        return self

    async def __anext__(self) -> ConsumerRecord:
        while not self._unread:
            self._unread.extend(await self.poll(timeout=3600.0))
        return self._unread.popleft()

    async def _answer_listener(self, call: ListenerCall) -> None:
        failure = await self._call_listener(call)
        if failure is not None:
            raise failure

    async def _call_listener(self, call: ListenerCall) -> BaseException | None:
        failure: BaseException | None = None
        try:
            result = call.callback(call.partitions)
            if inspect.isawaitable(result):
                await result
        except BaseException as error:
            failure = error
        self._finish(call)
        return failure

    async def _poll_step(self, deadline: float, max_records: int | None) -> list[ConsumerRecord] | ListenerCall:
        limit = max_records or self.config["max.poll.records"]
        if not self._unread:
            return await self._step(deadline, max_records=limit)
        result = await self._step(0, max_records=0)
        return result or [self._unread.popleft() for _ in range(min(limit, len(self._unread)))]

    async def _chunks_step(self, deadline: float, max_rows: int) -> list[Chunk] | ListenerCall:
        return await self._step(deadline, max_bytes=max_rows * BYTES_PER_ROW)

    async def _step(self, deadline: float, max_records: int = 0, max_bytes: int = 0) -> list[Any] | ListenerCall:
        """One stretch of poll(): data, or a listener that must be called before more can happen."""
        driver = self._open()
        if not self._subscribed and not self._fetcher.assigned:
            raise ConfigError(NOTHING_TO_READ)
        self._not_within_a_listener()
        try:
            while True:
                driver.expect_news()
                wall_ms = int(time.time() * 1000)
                driver.tell(ev.Poll(max_records, max_bytes, wall_ms, self._unread_positions()))
                if driver.broken is not None:
                    raise driver.broken
                if driver.given:
                    if (taken := self._taken(driver.given)) is not None:
                        return taken
                elif not await driver.news(deadline):
                    return []
        finally:
            if driver.core.application is Application.POLLING:
                driver.tell(ev.StopPoll())

    def _taken(self, given: deque[fx.Effect]) -> list[Any] | ListenerCall | None:
        """None for an action that needed no listener: there may be more."""
        effect = given.popleft()
        if isinstance(effect, fx.Records):
            return effect.records
        if isinstance(effect, fx.Chunks):
            return effect.chunks
        if isinstance(effect, fx.Fail):
            raise effect.error
        assert isinstance(effect, fx.Revoke | fx.Lose | fx.Assign)
        return self._prepare(effect)

    # -- the member's actions -----------------------------------------------------------------------------------------

    def _not_within_a_listener(self) -> None:
        if self._running is not None:
            raise RuntimeError("poll(), unsubscribe() and close() cannot be called from within a listener")

    def _next_call(self) -> ListenerCall | None:
        """While leaving: carry out actions until one needs a listener."""
        given = self._open().given
        while given:
            effect = given.popleft()
            if isinstance(effect, fx.Revoke | fx.Lose | fx.Assign) and (call := self._prepare(effect)) is not None:
                return call
        return None

    def _prepare(self, action: fx.Revoke | fx.Lose | fx.Assign) -> ListenerCall | None:
        listener = self._listener
        if isinstance(action, fx.Assign):
            callback = getattr(listener, "on_partitions_assigned", None)
            partitions = action.added
        else:
            name = "on_partitions_lost" if isinstance(action, fx.Lose) else "on_partitions_revoked"
            callback = getattr(listener, name, None)
            partitions = action.partitions
        call = ListenerCall(callback or (lambda _: None), sorted(partitions), action)
        if callback is not None:
            self._running = call
            return call
        self._finish(call)
        return None

    def _finish(self, call: ListenerCall) -> None:
        """The listener has returned: tell the core."""
        self._running = None
        if not isinstance(call.action, fx.Assign):
            gone = set(call.action.partitions)
            self._drop_unread(lambda tp: tp in gone)
        self._open().tell(ev.ActionDone())

    # -- positions ----------------------------------------------------------------------------------------------------

    def _unread_positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Where the records begin that iteration has fetched but not handed out yet."""
        if not self._unread:
            return {}
        return {r.topic_partition: OffsetAndMetadata(r.offset, "", r.leader_epoch) for r in reversed(self._unread)}

    def _drop_unread(self, gone: Callable[[TopicPartition], bool]) -> None:
        if self._unread:
            self._unread = deque(record for record in self._unread if not gone(record.topic_partition))

    async def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Read on from `offset` at the next poll()."""
        tp = TopicPartition(*partition)
        target = offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
        self._open().tell(ev.Seek(tp, target))
        self._drop_unread(lambda other: other == tp)

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        self._seek_to(partitions, "earliest")

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        self._seek_to(partitions, "latest")

    def _seek_to(self, partitions: Iterable[TopicPartition], where: str) -> None:
        wanted = frozenset(TopicPartition(*tp) for tp in partitions) or self._fetcher.assigned
        self._open().tell(ev.SeekTo(wanted, where))
        self._drop_unread(lambda tp: tp in wanted)

    async def position(self, partition: TopicPartition, timeout: float | None = None) -> int:
        """The offset of the next record; waits until it is known."""
        tp = TopicPartition(*partition)
        for record in self._unread:
            if record.topic_partition == tp:
                return record.offset
        patience_ms = self._patience_ms(timeout)
        found: int = await self._open().wait_for(lambda ask_id: ev.FindPosition(ask_id, tp, patience_ms))
        return found

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand out nothing of these partitions until resume(); membership is not touched."""
        self._open().tell(ev.Pause(tuple(TopicPartition(*tp) for tp in partitions)))

    def resume(self, *partitions: TopicPartition) -> None:
        self._open().tell(ev.Resume(tuple(TopicPartition(*tp) for tp in partitions)))

    def paused(self) -> frozenset[TopicPartition]:
        return self._fetcher.paused

    # -- commits ------------------------------------------------------------------------------------------------------

    def _patience_ms(self, timeout: float | None) -> int:
        patience_ms: int = self.config["default.api.timeout.ms"]
        return patience_ms if timeout is None else int(timeout * 1000)

    def _to_commit(self, offsets: Offsets | None) -> dict[TopicPartition, OffsetAndMetadata]:
        if self._member is None:
            raise ConfigError("commits need a group.id")
        if offsets is None:
            consumed, unread = self._fetcher.consumed(), self._unread_positions()
            return {tp: unread.get(tp, position) for tp, position in consumed.items()}
        return {
            TopicPartition(*tp): found if isinstance(found, OffsetAndMetadata) else OffsetAndMetadata(found)
            for tp, found in offsets.items()
        }

    async def commit(self, offsets: Offsets | None = None, timeout: float | None = None) -> None:
        """Store offsets (default: the positions) for the group and wait until that is done.

        CommitFailedError says that the partitions moved to other members and why.
        """
        to_commit = self._to_commit(offsets)
        patience_ms = self._patience_ms(timeout)
        if to_commit:
            await self._open().wait_for(lambda ask_id: ev.Commit(ask_id, to_commit, patience_ms))

    def commit_async(self, offsets: Offsets | None = None, callback: CommitCallback | None = None) -> None:
        """Send a commit and go on; `callback(offsets, error)` hears of its end. It is not repeated."""
        to_commit = self._to_commit(offsets)

        def done(future: asyncio.Future[None]) -> None:
            error = future.exception() if not future.cancelled() else ConsumerClosedError("closed")
            if callback is not None:
                callback(to_commit, error if isinstance(error, Exception) else None)
            elif error is not None:
                log.error("commit of %s failed: %s", partition_list(to_commit), error)

        patience_ms = self._patience_ms(None)
        _, future = self._open().ask(lambda ask_id: ev.Commit(ask_id, to_commit, patience_ms, repeated=False))
        future.add_done_callback(done)

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has stored; None for a partition without a commit."""
        if self._member is None:
            raise ConfigError("committed() needs a group.id")
        wanted = frozenset(TopicPartition(*tp) for tp in partitions)
        patience_ms = self._patience_ms(timeout)
        found: dict[TopicPartition, OffsetAndMetadata | None] = await self._open().wait_for(
            lambda ask_id: ev.FetchCommitted(ask_id, wanted, patience_ms)
        )
        return found

    # -- membership ----------------------------------------------------------------------------------------------------

    def group_metadata(self) -> ConsumerGroupMetadata:
        member = self._member
        if member is None:
            raise ConfigError("group_metadata() needs a group.id")
        return ConsumerGroupMetadata(
            member.config.group_id,
            member.generation.generation_id,
            member.member_id,
            member.config.group_instance_id,
        )

    def story(self) -> list[tuple[int, str]]:
        """What happened to this member, latest last: (milliseconds, text)."""
        member = self._member
        return list(member.story) if member is not None else []

    def metrics(self) -> dict[str, dict[str, float]]:
        """What this consumer measures, by Kafka's groups and names: `metrics()["consumer-coordinator-metrics"]`.

        What is about one partition is in a group of its own: "consumer-fetch-manager-metrics.orders-0".
        """
        driver = self._open()
        return driver.core.measured(driver.now_ms())

    async def enforce_rebalance(self, reason: str = "rebalance enforced by user") -> None:
        driver = self._open()
        if self._member is not None:
            driver.tell(ev.Rejoin(reason))


def decode_arrow(chunks: list[Chunk], columns: Sequence[str] | None) -> list[pa.RecordBatch]:
    return [batch for chunk in chunks for batch in chunk.arrow(columns)]
