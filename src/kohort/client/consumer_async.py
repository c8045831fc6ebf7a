"""AsyncConsumer: Kafka's consumer API for asyncio. The blocking consumer is made of the same pieces."""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kohort.client.chunks import Chunk
from kohort.client.config import Config
from kohort.client.consumer_questions import Questions
from kohort.client.effects import Assign, AutoCommit, Lose, Revoke
from kohort.client.errors import ConfigError, ConsumerClosedError, KafkaTimeoutError
from kohort.client.listeners import RebalanceListener, as_listener
from kohort.client.shell import Shell
from kohort.client.types import (
    ConsumerGroupMetadata,
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


@dataclass(slots=True)
class ListenerCall:
    """A listener to be called by whoever owns the thread, then `finish` it."""

    callback: Callable[[list[TopicPartition]], Any]
    partitions: list[TopicPartition]
    action: Revoke | Lose | Assign


class AsyncConsumer(Questions):
    """Reads topics as a member of a group, or partitions of its own choice. Use `async with`, or `close` at the end."""

    def __init__(self, config: Mapping[str, Any] | None = None, **settings: Any) -> None:
        self.config = Config({**(config or {}), **settings})
        self._shell: Shell | None = None
        self._listener: RebalanceListener | None = None
        self._subscribed: frozenset[str] | re.Pattern[str] | None = None
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

    def _open(self) -> Shell:
        if self._closed:
            raise ConsumerClosedError("this consumer was closed; create a new one")
        if self._shell is None:
            self._shell = Shell(self.config)
        return self._shell

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
        if self._shell is None or self._closed:
            self._closed = True
            return None
        call = await self._leaving("the consumer is being closed", timeout, leave_group)
        if call is None:
            self._closed = True
            await self._shell.close()
        return call

    async def _leaving(self, reason: str, timeout: float, leave_group: bool | None = None) -> ListenerCall | None:
        shell = self._open()
        member = shell.member
        loop = asyncio.get_running_loop()
        if member is None or not (member.subscribed or member.owned or self.config.enable_auto_commit):
            return None
        if self._leave_by is None:
            self._leave_by = loop.time() + timeout
            shell.left.clear()
            shell.apply(member.leave(reason, shell.now_ms(), leave_group))
        while not shell.left.is_set():
            call = await self._next_call()
            if call is not None:
                return call
            if not shell.left.is_set() and not await shell.wait_for_news(self._leave_by or 0):
                log.warning("leaving group %s took longer than %g s", self.config.group_id, timeout)
                break
        self._leave_by = None
        return None

    # -- what to read -------------------------------------------------------------------------------------------------

    async def subscribe(
        self,
        topics: str | Iterable[str] | re.Pattern[str],
        listener: RebalanceListener | None = None,
        *,
        on_partitions_revoked: Callable[..., Any] | None = None,
        on_partitions_assigned: Callable[..., Any] | None = None,
        on_partitions_lost: Callable[..., Any] | None = None,
    ) -> None:
        """Share these topics with the group. A compiled pattern or a string that begins with ^ matches topic names."""
        shell = self._open()
        if shell.member is None:
            raise ConfigError("subscribe() needs a group.id; assign() reads without a group")
        if self._subscribed is None and shell.fetcher.assigned:
            raise ConfigError("partitions were assigned by assign(); unsubscribe() first")
        wanted = subscription(topics)
        self._listener = as_listener(listener, on_partitions_revoked, on_partitions_assigned, on_partitions_lost)
        self._subscribed = wanted
        if isinstance(wanted, re.Pattern):
            shell.apply(shell.member.subscribe_pattern(wanted.fullmatch, shell.now_ms()))
        else:
            shell.apply(shell.member.subscribe(wanted, shell.now_ms()))

    def subscription(self) -> frozenset[str]:
        shell = self._open()
        return shell.member.topics if shell.member is not None else frozenset()

    async def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions; no group takes part, though offsets can be committed to one."""
        shell = self._open()
        if self._subscribed is not None:
            raise ConfigError("topics were subscribed to; unsubscribe() first")
        wanted = {TopicPartition(*tp) for tp in partitions}
        if shell.member is not None:
            shell.apply(shell.member.assign_manually(shell.now_ms()))
        shell.cluster.watch({tp.topic for tp in wanted})
        shell.fetcher.assign(wanted)
        self._drop_unread(lambda tp: tp not in wanted)
        shell.pump()

    def assignment(self) -> frozenset[TopicPartition]:
        return self._open().fetcher.assigned

    async def unsubscribe(self) -> None:
        """Leave the group, or give up what was assigned."""
        failure: BaseException | None = None
        while (call := await self._unsubscribing()) is not None:
            failure = await self._call_listener(call) or failure
        if failure is not None:
            raise failure

    async def _unsubscribing(self) -> ListenerCall | None:
        shell = self._open()
        if self._subscribed is not None:
            patience = self.config.default_api_timeout_ms / 1000
            call = await self._leaving("the consumer unsubscribed from all topics", patience)
            if call is not None:
                return call
        self._subscribed, self._listener = None, None
        self._unread.clear()
        shell.fetcher.assign(())
        shell.cluster.watch(())
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
        limit = max_records or self.config.max_poll_records

        def take(shell: Shell) -> list[ConsumerRecord]:
            if self._unread:
                taken = [self._unread.popleft() for _ in range(min(limit, len(self._unread)))]
                return taken
            return shell.fetcher.take(limit)

        return await self._step(deadline, take)

    async def _chunks_step(self, deadline: float, max_rows: int) -> list[Chunk] | ListenerCall:
        size = 0

        def enough(chunk: Chunk) -> bool:
            nonlocal size
            size += len(chunk.data)
            return size >= max_rows * 16

        return await self._step(deadline, lambda shell: shell.fetcher.take_chunks(enough))

    async def _step(self, deadline: float, take: Callable[[Shell], list[Any]]) -> list[Any] | ListenerCall:
        """One stretch of poll(): data, or a listener that must be called before more can happen."""
        shell = self._open()
        if not self._subscribed and not shell.fetcher.assigned:
            raise ConfigError("nothing to read: call subscribe() or assign() first")
        shell.in_poll = True
        try:
            if shell.member is not None:
                shell.apply(shell.member.poll(shell.now_ms()))
            while True:
                call = await self._next_call()
                if call is not None:
                    return call
                self._raise_errors(shell)
                if shell.member is not None:
                    shell.fetcher.hold_back(shell.member.held_back)
                taken = take(shell)
                shell.pump()
                if taken:
                    return taken
                if not await shell.wait_for_news(deadline):
                    return []
        finally:
            shell.in_poll = False
            if shell.member is not None:
                shell.apply(shell.member.poll(shell.now_ms()))

    def _raise_errors(self, shell: Shell) -> None:
        if shell.errors:
            raise shell.errors.pop(0)
        if shell.member is not None and shell.member.fatal is not None:
            raise shell.member.fatal
        if (error := shell.fetcher.take_error()) is not None:
            raise error

    # -- the member's actions -----------------------------------------------------------------------------------------

    async def _next_call(self) -> ListenerCall | None:
        """Carry out actions until one needs a listener."""
        shell = self._open()
        member = shell.member
        if member is None:
            return None
        if self._running is not None:
            raise RuntimeError("poll(), unsubscribe() and close() cannot be called from within a listener")
        while (action := member.take(shell.now_ms())) is not None:
            if isinstance(action, AutoCommit):
                shell.apply(member.auto_commit(self._consumed(), shell.now_ms()))
                continue
            call = self._prepare(action)
            if call is not None:
                self._running = call
                return call
        return None

    def _prepare(self, action: Revoke | Lose | Assign) -> ListenerCall | None:
        listener = self._listener
        if isinstance(action, Assign):
            self._open().fetcher.assign(action.partitions)
            callback = getattr(listener, "on_partitions_assigned", None)
            partitions = action.added
        else:
            name = "on_partitions_lost" if isinstance(action, Lose) else "on_partitions_revoked"
            callback = getattr(listener, name, None)
            partitions = action.partitions
        call = ListenerCall(callback or (lambda _: None), sorted(partitions), action)
        if callback is not None:
            return call
        self._finish(call)
        return None

    def _finish(self, call: ListenerCall) -> None:
        """The listener has returned: tell the member."""
        shell = self._open()
        assert shell.member is not None
        self._running = None
        if isinstance(call.action, Assign):
            shell.apply(shell.member.assigned(shell.now_ms()))
        else:
            gone = set(call.action.partitions)
            shell.fetcher.unassign(gone)
            self._drop_unread(lambda tp: tp in gone)
            shell.apply(shell.member.revoked(shell.now_ms()))
        shell.pump()

    # -- positions ----------------------------------------------------------------------------------------------------

    def _consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Positions, without what iteration has fetched but not handed out yet."""
        consumed = self._open().fetcher.consumed()
        for record in reversed(self._unread):
            tp = record.topic_partition
            if tp in consumed:
                consumed[tp] = OffsetAndMetadata(record.offset, "", record.leader_epoch)
        return consumed

    def _drop_unread(self, gone: Callable[[TopicPartition], bool]) -> None:
        if self._unread:
            self._unread = deque(record for record in self._unread if not gone(record.topic_partition))

    async def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Read on from `offset` at the next poll()."""
        shell = self._open()
        tp = TopicPartition(*partition)
        target = offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
        shell.fetcher.seek(tp, target.offset, target.leader_epoch)
        self._drop_unread(lambda other: other == tp)
        shell.pump()

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        await self._seek_to(partitions, "earliest")

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        await self._seek_to(partitions, "latest")

    async def _seek_to(self, partitions: Iterable[TopicPartition], where: str) -> None:
        shell = self._open()
        wanted = {TopicPartition(*tp) for tp in partitions} or shell.fetcher.assigned
        shell.fetcher.seek_to(wanted, where)
        self._drop_unread(lambda tp: tp in wanted)
        shell.pump()

    async def position(self, partition: TopicPartition, timeout: float | None = None) -> int:
        """The offset of the next record; waits until it is known."""
        shell = self._open()
        tp = TopicPartition(*partition)
        patience = self.config.default_api_timeout_ms / 1000 if timeout is None else timeout
        deadline = asyncio.get_running_loop().time() + patience
        for record in self._unread:
            if record.topic_partition == tp:
                return record.offset
        while (offset := shell.fetcher.position(tp)) is None:
            if (error := shell.fetcher.take_error()) is not None:
                raise error
            shell.pump()
            step = min(deadline, asyncio.get_running_loop().time() + 0.05)
            if not await shell.wait_for_news(step) and step == deadline:
                raise KafkaTimeoutError(f"the position of {tp} was not found within {patience:g} s")
        return offset

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand out nothing of these partitions until resume(); membership is not touched."""
        self._open().fetcher.pause([TopicPartition(*tp) for tp in partitions])

    def resume(self, *partitions: TopicPartition) -> None:
        shell = self._open()
        shell.fetcher.resume([TopicPartition(*tp) for tp in partitions])
        shell.pump()
        shell.wake()

    def paused(self) -> frozenset[TopicPartition]:
        return self._open().fetcher.paused

    # -- commits ------------------------------------------------------------------------------------------------------

    def _to_commit(self, offsets: Offsets | None) -> dict[TopicPartition, OffsetAndMetadata]:
        if self._open().member is None:
            raise ConfigError("commits need a group.id")
        if offsets is None:
            return self._consumed()
        return {
            TopicPartition(*tp): found if isinstance(found, OffsetAndMetadata) else OffsetAndMetadata(found)
            for tp, found in offsets.items()
        }

    async def commit(self, offsets: Offsets | None = None, timeout: float | None = None) -> None:
        """Store offsets (default: the positions) for the group and wait until that is done.

        CommitFailedError says that the partitions moved to other members and why.
        """
        to_commit = self._to_commit(offsets)
        timeout_ms = self.config.default_api_timeout_ms if timeout is None else int(timeout * 1000)
        if to_commit:
            await self._open().commit(to_commit, timeout_ms)

    def commit_async(self, offsets: Offsets | None = None, callback: CommitCallback | None = None) -> None:
        """Send a commit and go on; `callback(offsets, error)` hears of its end. It is not repeated."""
        to_commit = self._to_commit(offsets)

        def done(future: asyncio.Future[None]) -> None:
            error = future.exception() if not future.cancelled() else ConsumerClosedError("closed")
            if callback is not None:
                callback(to_commit, error if isinstance(error, Exception) else None)
            elif error is not None:
                log.error("commit of %s failed: %s", partition_list(to_commit), error)

        self._open().send_commit(to_commit).add_done_callback(done)

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has stored; None for a partition without a commit."""
        shell = self._open()
        if shell.member is None:
            raise ConfigError("committed() needs a group.id")
        timeout_ms = self.config.default_api_timeout_ms if timeout is None else int(timeout * 1000)
        return await shell.committed(frozenset(TopicPartition(*tp) for tp in partitions), timeout_ms)

    # -- membership ----------------------------------------------------------------------------------------------------

    def group_metadata(self) -> ConsumerGroupMetadata:
        member = self._open().member
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
        member = self._open().member
        return list(member.story) if member is not None else []

    async def enforce_rebalance(self, reason: str = "rebalance enforced by user") -> None:
        shell = self._open()
        if shell.member is not None:
            shell.apply(shell.member.request_rejoin(reason, shell.now_ms()))


def subscription(topics: str | Iterable[str] | re.Pattern[str]) -> frozenset[str] | re.Pattern[str]:
    if isinstance(topics, re.Pattern):
        return topics
    if isinstance(topics, str):
        if topics.startswith("^"):
            return re.compile(topics)
        topics = [topics]
    names = frozenset(topics)
    if not names or "" in names or not all(isinstance(name, str) for name in names):
        raise ConfigError("subscribe() needs one or more topic names, or a pattern; unsubscribe() ends a subscription")
    return names


def decode_arrow(chunks: list[Chunk], columns: Sequence[str] | None) -> list[pa.RecordBatch]:
    return [batch for chunk in chunks for batch in chunk.arrow(columns)]
