"""A broker inside this process, for tests and tools: a background thread with its own event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from kohort.broker.acls import Acl
from kohort.broker.boot import RunningBroker, StartError, make_config, open_store, start_broker
from kohort.broker.client_requests import ClientRequest, RequestLog
from kohort.broker.clock import Clock, ManualClock
from kohort.broker.controls import EVICTED, BrokerClock, BrokerFaults, FaultError, Whom, not_on_a_loop
from kohort.broker.easy_security import TestSecurity
from kohort.broker.faults import Fault, Function

if TYPE_CHECKING:
    from kohort.broker.inside import GroupSnapshot, StoredRecord
    from kohort.coordinator.events import GroupEvent

_T = TypeVar("_T")
_START_TIMEOUT_S = 60
_CLOCKS = {"running": Clock, "manual": ManualClock}
_QUICK = {"group.initial.rebalance.delay.ms": 0}


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's where it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class Broker:
    """A Kafka broker that any client can use, as a context manager (also asynchronous) or with start() and stop().

        with kohort.Broker() as broker:
            producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})

    Everything is kept in memory unless `data_dir` names a directory; port 0 takes a free one. `config` takes Kafka's
    broker configs by name; unlike in Kafka, `group.initial.rebalance.delay.ms` is 0 where it is not given.

    `clock.advance(45)` lets 45 seconds pass at once; with clock="manual" time passes in no other way. `faults` makes
    requests fail, wait or get lost; its rules outlive a restart(). What is in it and what was sent to it can be asked
    without a client: records(), committed(), group(), story(), requests().

    `tls=True` encrypts with a certificate of its own authority, `users={"alice": "secret"}` lets nobody else in (PLAIN
    and SCRAM), `acls=[kohort.acl(...)]` lets them do nothing else; `security.client("alice")` is what a client sets.
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str] | None = None,
        port: int = 0,
        host: str = "127.0.0.1",
        config: Mapping[str, Any] | None = None,
        clock: str = "running",
        *,
        tls: bool = False,
        users: Mapping[str, str] | None = None,
        acls: Sequence[Acl] | None = None,
    ) -> None:
        if clock not in _CLOCKS:
            raise ValueError(f"clock is {clock!r}: it can be running or manual")
        self.data_dir = data_dir
        self.host = host
        self.port = port
        self.security = TestSecurity(tls, users, acls)
        self.config = _QUICK | self.security.config() | dict(config or {})
        make_config(self.config)
        self._clock = _CLOCKS[clock]()
        self.clock = BrokerClock(self, self._clock)
        self.faults = BrokerFaults(self)
        self._request_log = RequestLog()
        self._asked_port = port
        self._memory: Any = None
        self._running: RunningBroker | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def bootstrap_servers(self) -> str:
        if self._running is None:
            raise RuntimeError("the broker is not running: use it as a context manager or call start()")
        return self._running.address

    def start(self) -> Broker:
        """Start and wait until it accepts connections; StartError says why it cannot."""
        if self._running is not None:
            raise RuntimeError("the broker is running already")
        self._loop = new_event_loop()
        self._thread = threading.Thread(target=self._run, args=(self._loop,), name="kohort-broker", daemon=True)
        self._thread.start()
        try:
            self._running = self._await(self._start())
        except BaseException:
            self._end_thread()
            raise
        self.port = self._running.port
        return self

    async def _start(self) -> RunningBroker:
        config = make_config(self.config)
        store = self._memory or open_store(config, self.data_dir)
        log = self._request_log
        given = self.security.given
        running = await start_broker(
            config, store, self.host, self.port, self._clock, self.faults.rules, None, log, security=given
        )
        if self.data_dir is None:
            self._memory = store
        return running

    def stop(self) -> None:
        """Close all connections and the logs. Memory is kept for a later start()."""
        running, self._running = self._running, None
        if running is None:
            return
        try:
            self._await(running.stop())
        finally:
            self._end_thread()

    def restart(self) -> None:
        """Stop, then start on the same port with the same data."""
        port = self.port
        self.stop()
        self.port = port
        self.start()

    def close(self) -> None:
        """Stop and forget everything. Raises what a function given to fault() has raised, if it did."""
        self.stop()
        self.security.close()
        self._memory = None
        self.port = self._asked_port
        self.faults.raise_errors()

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        """A topic, without a client; KafkaError where that is refused."""
        self._call(lambda running: running.core.topics.create(name, partitions, dict(configs or {})))

    def story(self, group_id: str) -> list[GroupEvent]:
        """What happened to a group lately, when and why, oldest first."""
        return self._call(lambda running: running.story(group_id))

    def records(self, topic: str, partition: int | None = None) -> list[StoredRecord]:
        """What is stored in a topic, or in one partition of it, by partition and offset; no client, no group."""
        return self._call_async(lambda running: running.inside.records(topic, partition))

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        """What a group has committed: {("orders", 0): 17}, each the offset of the next record to read."""
        return self._call_async(lambda running: running.inside.committed(group))

    def group(self, group: str) -> GroupSnapshot:
        """A group as it is now: its state, its members and what each of them has."""
        return self._call_async(lambda running: running.inside.group(group))

    def evict(
        self,
        group: str,
        member: str | None = None,
        *,
        client: str | None = None,
        group_instance_id: str | None = None,
        reason: str = EVICTED,
    ) -> list[str]:
        """Put members out of a group, by id, by client.id or by instance id; returns the ids of those who were put out.

        They learn it from their next heartbeat or commit (UNKNOWN_MEMBER_ID), as after a session that ran out; the
        others rebalance.
        """
        return self._call_async(lambda running: running.inside.evict(group, member, client, group_instance_id, reason))

    def wait_stable(
        self, group: str, members: int | None = None, *, partitions: int | None = None, timeout: float = 30.0
    ) -> GroupSnapshot:
        """Until a group is stable with so many members, who have so many partitions together.

        With members=0 until nobody is in it. TimeoutError after `timeout` seconds of real time says what is there
        instead. Cooperative members give partitions up in one rebalance and get them in the next: name `partitions`
        to wait for both.
        """
        not_on_a_loop("broker.wait_stable")
        return self._call_async(
            lambda running: running.inside.wait_stable(group, members, partitions, timeout), timeout + _START_TIMEOUT_S
        )

    def requests(self, api: str | None = None, client: str | None = None) -> list[ClientRequest]:
        """What clients have sent lately, decoded, oldest first: of one api, of one client.id.

        The last 10,000 requests are kept, or 32 MB of them; `forget_requests()` begins anew.
        """
        if self._running is None:
            return list(self._request_log.select(api, client))
        return self._call(lambda running: list(self._request_log.select(api, client)))

    def forget_requests(self) -> None:
        """What was sent so far is no longer in requests()."""
        if self._running is None:
            self._request_log.clear()
        else:
            self._call(lambda running: self._request_log.clear())

    def fault(self, api: str, function: Function, **whom: Unpack[Whom]) -> Fault:
        """Let a function decide on each request of an api ("*" is any): broker.faults.ask."""
        return self.faults.ask(api, function, **whom)

    @property
    def running(self) -> bool:
        return self._running is not None

    def _call(self, function: Callable[[RunningBroker], _T]) -> _T:
        """Run a function on the broker's thread; what it causes to be sent is sent when this returns."""

        async def call(running: RunningBroker) -> _T:
            result = function(running)
            running.server.end_turn()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            return result

        return self._call_async(call)

    def _call_async(
        self, function: Callable[[RunningBroker], Coroutine[Any, Any, _T]], timeout: float = _START_TIMEOUT_S
    ) -> _T:
        running = self._running
        if running is None:
            raise RuntimeError("the broker is not running")
        return self._await(function(running), timeout)

    def _await(self, coroutine: Coroutine[Any, Any, _T], timeout: float = _START_TIMEOUT_S) -> _T:
        assert self._loop is not None
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result(timeout)
        except StartError as error:
            raise StartError(str(error)) from error.__cause__
        except CancelledError:
            raise RuntimeError("the broker was stopped while it was being asked") from None

    @staticmethod
    def _run(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            waiting = asyncio.all_tasks(loop)
            for task in waiting:
                task.cancel()
            if waiting:
                loop.run_until_complete(asyncio.gather(*waiting, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    def _end_thread(self) -> None:
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_START_TIMEOUT_S)
        self._loop = self._thread = None

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        if kind is None:
            self.close()
            return
        with contextlib.suppress(FaultError):  # the test has failed already, and says why
            self.close()

    async def __aenter__(self) -> Broker:
        return await asyncio.to_thread(self.start)

    async def __aexit__(self, *exc: Any) -> None:
        await asyncio.to_thread(self.__exit__, *exc)
