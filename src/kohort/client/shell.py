"""Drives a member and a fetcher over asyncio: carries out effects, feeds back answers, keeps one timer.

No user-facing API here and no listener is called: the consumers do that, on the thread they promise.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Mapping
from typing import Any

from kohort.assignors import load_assignors
from kohort.client.cluster import COORDINATOR, DATA, Cluster, Metadata
from kohort.client.config import Config
from kohort.client.effects import (
    Assign,
    AutoCommit,
    CommitDone,
    Destination,
    DropCoordinator,
    Effect,
    Fail,
    Left,
    Lose,
    OffsetsFetched,
    RefreshMetadata,
    Report,
    Revoke,
    Send,
    UseCoordinator,
    WatchTopics,
)
from kohort.client.errors import KafkaTimeoutError, error_for
from kohort.client.fetcher import Fetcher, FetcherConfig, NodeRequest
from kohort.client.member import Member, MemberConfig
from kohort.client.types import OffsetAndMetadata, TopicPartition, partition_list
from kohort.protocol.errors import KafkaError

log = logging.getLogger("kohort.client")


def member_config(config: Config) -> MemberConfig:
    return MemberConfig(
        group_id=config.group_id,
        group_instance_id=config.group_instance_id,
        session_timeout_ms=config.session_timeout_ms,
        heartbeat_interval_ms=config.heartbeat_interval_ms,
        max_poll_interval_ms=config.max_poll_interval_ms,
        enable_auto_commit=config.enable_auto_commit,
        auto_commit_interval_ms=config.auto_commit_interval_ms,
        request_timeout_ms=config.request_timeout_ms,
        retry_backoff_ms=config.retry_backoff_ms,
        retry_backoff_max_ms=config.retry_backoff_max_ms,
        client_rack=config.client_rack,
        exclude_internal_topics=config.exclude_internal_topics,
    )


def fetcher_config(config: Config) -> FetcherConfig:
    return FetcherConfig(
        min_bytes=config.fetch_min_bytes,
        max_bytes=config.fetch_max_bytes,
        max_partition_bytes=config.max_partition_fetch_bytes,
        max_wait_ms=config.fetch_max_wait_ms,
        prefetch_max_bytes=config.prefetch_max_bytes,
        read_committed=config.isolation_level == "read_committed",
        check_crcs=config.check_crcs,
        auto_offset_reset=config.auto_offset_reset,
        client_rack=config.client_rack,
        request_timeout_ms=config.request_timeout_ms,
        retry_backoff_ms=config.retry_backoff_ms,
        metadata_max_age_ms=config.metadata_max_age_ms,
        key_deserializer=config.key_deserializer,
        value_deserializer=config.value_deserializer,
    )


class Shell:
    """Everything of a consumer but its API."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.cluster = Cluster(config)
        self.cluster.on_metadata.append(self._metadata_arrived)
        self.fetcher = Fetcher(fetcher_config(config))
        self.member: Member | None = None
        if config.group_id is not None:
            assignors = load_assignors(config.partition_assignment_strategy)
            self.member = Member(member_config(config), assignors, random.random)
        self.errors: list[Exception] = []
        self.in_poll = False
        self.left = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._coordinator: UseCoordinator | None = None
        self._asks: dict[int, asyncio.Future[Any]] = {}
        self._ask_id = 0
        self._initializing = False

    # -- time and tasks -----------------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def spawn(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a background task failed", exc_info=error)
            self.errors.append(error if isinstance(error, Exception) else RuntimeError(repr(error)))
            self.wake()

    def wake(self) -> None:
        self._news.set()

    async def wait_for_news(self, deadline: float) -> bool:
        """False when the deadline (in loop time) passed first."""
        remaining = deadline - self._loop.time()
        if remaining <= 0:
            return False
        self._news.clear()
        try:
            async with asyncio.timeout(remaining):
                await self._news.wait()
        except TimeoutError:
            return False
        return True

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadlines = [self.member.next_deadline()] if self.member is not None else []
        deadlines.append(self.fetcher.next_retry(self.now_ms()))
        due = min((deadline for deadline in deadlines if deadline is not None), default=None)
        if due is not None:
            self._timer = self._loop.call_at(max(due / 1000 + 0.001, self._loop.time() + 0.001), self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        if self.member is not None:
            now_ms = self.now_ms()
            if self.in_poll:
                self.apply(self.member.poll(now_ms))
            self.apply(self.member.on_time(now_ms))
        self.pump()

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self.cluster.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- the member's effects -----------------------------------------------------------------------------------------

    def apply(self, effects: list[Effect]) -> None:
        for effect in effects:
            self._carry_out(effect)
        self._arm()

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Send():
                self.spawn(self._send(effect))
            case UseCoordinator():
                self._coordinator = effect
            case DropCoordinator():
                if self._coordinator is not None:
                    self.cluster.disconnect(COORDINATOR, self._coordinator.node_id, effect.reason)
                    self._coordinator = None
            case WatchTopics():
                self.cluster.watch(effect.topics)
            case RefreshMetadata():
                self.cluster.refresh_soon()
            case AutoCommit() | Revoke() | Lose() | Assign():
                self.wake()
            case CommitDone():
                self._resolve(effect.commit_id, None, effect.error)
            case OffsetsFetched():
                self._resolve(effect.fetch_id, effect.offsets, effect.error)
            case Left():
                self.left.set()
                self.wake()
            case Fail():
                self.errors.append(effect.error)
                self.wake()
            case Report():
                log.log(logging.getLevelNamesMapping()[effect.level], "%s", effect.text)

    async def _send(self, send: Send) -> None:
        assert self.member is not None
        try:
            response = await self._answer(send)
        except KafkaError as error:
            self.apply(self.member.send_failed(send.token, str(error), self.now_ms(), error))
            return
        self.apply(self.member.received(send.token, response, self.now_ms()))

    async def _answer(self, send: Send) -> Any:
        limits = (send.timeout_ms, send.min_version, send.max_version)
        if send.to is Destination.LEAST_LOADED:
            return await self.cluster.request_any(send.request, *limits)
        node = self._coordinator
        if node is None:
            raise KafkaTimeoutError("the coordinator was lost before the request was sent")
        role = COORDINATOR if send.to is Destination.COORDINATOR else DATA
        connection = await self.cluster.connect(role, node.node_id, node.host, node.port)
        return await connection.request(send.request, *limits)

    def _resolve(self, ask_id: int, value: Any, error: Exception | None) -> None:
        future = self._asks.pop(ask_id, None)
        if future is None or future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(value)

    def _ask(self) -> tuple[int, asyncio.Future[Any]]:
        self._ask_id += 1
        future = self._loop.create_future()
        self._asks[self._ask_id] = future
        return self._ask_id, future

    # -- commits ------------------------------------------------------------------------------------------------------

    def send_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> asyncio.Future[None]:
        assert self.member is not None
        ask_id, future = self._ask()
        self.apply(self.member.commit(ask_id, offsets, self.now_ms()))
        return future

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: int) -> None:
        """Until it is stored; retriable failures are repeated."""
        what = f"commit of {partition_list(offsets)}"
        await self._retried(what, timeout_ms, lambda: self.send_commit(offsets))

    async def committed(
        self, partitions: frozenset[TopicPartition], timeout_ms: int
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        def ask() -> asyncio.Future[Any]:
            assert self.member is not None
            ask_id, future = self._ask()
            self.apply(self.member.fetch_offsets(ask_id, partitions, self.now_ms()))
            return future

        return await self._retried(f"committed offsets of {partition_list(partitions)}", timeout_ms, ask)

    async def _retried(self, what: str, timeout_ms: int, ask: Any) -> Any:
        last: KafkaError | None = None
        backoff = self.cluster.backoff("retry.backoff")
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while True:
                    try:
                        return await ask()
                    except KafkaError as error:
                        if not error.code.retriable:
                            raise
                        last = error
                    await asyncio.sleep(backoff.next_ms() / 1000)
        except TimeoutError:
            servers = self.cluster.servers()
            hint = f"the last answer was {last}" if last else f"the coordinator was not reached through {servers}"
            raise KafkaTimeoutError(f"{what}: not done within {timeout_ms / 1000:g} s; {hint}") from last

    # -- metadata and fetching ----------------------------------------------------------------------------------------

    def _metadata_arrived(self, metadata: Metadata) -> None:
        for topic, code in metadata.refused.items():
            refusal = error_for(code, f"topic {topic!r}: {code.message}")
            if str(refusal) not in map(str, self.errors):
                self.errors.append(refusal)
                self.wake()
        self.fetcher.metadata_updated(metadata.leaders(), metadata.topic_ids())
        if self.member is not None:
            self.apply(self.member.metadata_updated(metadata.snapshot(), self.now_ms()))
        self.pump()

    def pump(self) -> None:
        """Send what the fetcher can ask for now."""
        for request in self.fetcher.plan(self.now_ms(), int(time.time() * 1000)):
            self.spawn(self._fetch(request))
        if self.fetcher.metadata_wanted:
            self.fetcher.metadata_wanted = False
            self.cluster.refresh_soon()
        if not self._initializing and self.fetcher.initializing():
            self._initializing = True
            self.spawn(self._initialize())
        if self._timer is None:
            self._arm()

    async def _fetch(self, planned: NodeRequest) -> None:
        wait_ms = self.config.request_timeout_ms
        try:
            response = await self.cluster.request(
                planned.node_id, planned.request, wait_ms, planned.min_version, planned.max_version
            )
        except KafkaError as error:
            self.fetcher.failed(planned.token, self.now_ms(), error)
            self._arm()
        else:
            self.fetcher.received(planned.token, response, self.now_ms())
        self.pump()
        if self.fetcher.has_data:
            self.wake()

    async def _initialize(self) -> None:
        """Committed offsets for partitions that have no position."""
        try:
            while partitions := self.fetcher.initializing():
                if self.member is None:
                    self.fetcher.committed(dict.fromkeys(partitions))
                else:
                    self.fetcher.committed(await self.committed(partitions, self.config.default_api_timeout_ms))
        except KafkaError as error:
            self.errors.append(error)
        finally:
            self._initializing = False
            self.wake()
        if not self.fetcher.initializing():
            self.pump()
