"""A query's membership in its group: the client's core driven by a thread of its own, without reading anything.

The thread heartbeats, rebalances and commits however long a batch takes. A revocation waits for the batch in flight,
at most for the rebalance timeout, and commits before it gives a partition up. Spark's thread talks to it through the
methods of the second half.
"""

from __future__ import annotations

import logging
import os
import random
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from kohort.client import effects as fx
from kohort.client import events as ev
from kohort.client.config import Config, known_name
from kohort.client.consumer_core import ConsumerCore
from kohort.client.driver_threaded import ThreadedDriver, now_ms
from kohort.client.group_member import GroupMember
from kohort.client.types import OffsetAndMetadata, TopicPartition, partition_list
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.spark.holdings import Holdings
from kohort.spark.notices import Board
from kohort.spark.options import ReadOptions

log = logging.getLogger("kohort.spark")

LEAVE_SECONDS = 15
REVOKE_COMMIT_MS = 5_000
GRACE_SECONDS = 1
FOREVER_MS = 1 << 62
OWN_SETTINGS = {"enable.auto.commit": False, "allow.auto.create.topics": False}
"""A query commits what is durable, and reads what is there."""


def core_config(options: ReadOptions) -> Config:
    given = {name: value for name, value in options.settings.items() if known_name(name) not in OWN_SETTINGS}
    return Config({**given, **OWN_SETTINGS})


@dataclass(slots=True)
class _Revocation:
    partitions: frozenset[TopicPartition]
    deadline_ms: int
    commit: Future[None] | None = None
    commit_by_ms: int = 0


class Membership:
    def __init__(self, options: ReadOptions, holdings: Holdings) -> None:
        self._subscription = options.subscription
        self._group_id = options.group_id
        core = ConsumerCore(core_config(options), random.random, fetching=False)
        assert core.member is not None
        self._member: GroupMember = core.member
        self._driver = ThreadedDriver(core, self._take, log)
        self._holdings = holdings
        holdings.on_change(self._holdings_changed)
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="kohort-member", daemon=True)
        self._revocation: _Revocation | None = None
        self._stopping: str | None = None
        self._left = False
        self._failure: BaseException | None = None
        self._parent = os.getppid()
        self.metadata_of: Callable[[TopicPartition], str] = lambda partition: ""
        """The metadata of a partition's commits."""
        self.board = Board(None)
        """For the sink of the same query."""

    # -- the member's thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._subscribe()
            while not self._left:
                self._mind(now_ms())
                self._driver.wait(self._wait_until_ms())
        except BaseException as error:
            self._failure = error
            if not isinstance(error, SystemExit):
                log.exception("group %s: the membership has failed", self._group_id)
        finally:
            self._holdings.drop(self._holdings.owned())
            gone = KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"not in group {self._group_id} any more")
            self._driver.close(gone)
            self._holdings_changed()

    def _subscribe(self) -> None:
        if self._subscription.pattern is not None:
            pattern = re.compile(self._subscription.pattern)
            self._driver.tell(ev.Subscribe(frozenset(), pattern, anywhere=True))
        else:
            self._driver.tell(ev.Subscribe(frozenset(self._subscription.topics)))

    def _mind(self, now: int) -> None:
        """What is due now."""
        self.board.place(self._member.group_metadata(), self._holdings.owned())
        if os.getppid() != self._parent and self._stopping is None:
            self._leave("Spark is gone")
        if self._failure is None and self._stopping is None:
            self._driver.tell(ev.Poll())
        if self._revocation is not None and self._go_on_revoking(self._revocation, now):
            self._revocation = None
            self._driver.tell(ev.ActionDone())

    def _wait_until_ms(self) -> int:
        if self._member.pending is not None and self._revocation is None and self._failure is None:
            return 0
        if self._revocation is None:
            return FOREVER_MS
        return self._revocation.commit_by_ms if self._revocation.commit else self._revocation.deadline_ms

    def _take(self, effect: fx.Effect) -> None:
        """What the core has for the query."""
        if isinstance(effect, fx.Assign):
            self._holdings.assign(effect.partitions)
            self._driver.tell(ev.ActionDone())
        elif isinstance(effect, fx.Lose):
            self._lose(effect.partitions, effect.reason)
            self._driver.tell(ev.ActionDone())
        elif isinstance(effect, fx.Revoke):
            self._begin_revoking(effect)
        elif isinstance(effect, fx.Left):
            self._left = True
        elif isinstance(effect, fx.Fail):
            self._failure = effect.error
            self._holdings_changed()

    # -- actions -------------------------------------------------------------------------------------------------------

    def _begin_revoking(self, action: fx.Revoke) -> None:
        """Gone on with by `_mind`: the batch in flight comes first."""
        self._holdings.begin_revoke(action.partitions)
        self._revocation = _Revocation(action.partitions, action.deadline_ms)
        if busy := self._holdings.busy(action.partitions):
            log.info("group %s: the batch in flight reads %s, finishing it before they are given up",
                     self._group_id, partition_list(busy))  # fmt: skip
        self._driver.wake()

    def _lose(self, partitions: frozenset[TopicPartition], reason: str) -> None:
        busy = self._holdings.busy(partitions)
        self._holdings.drop(partitions)
        note = f"; the batch in flight still reads {partition_list(busy)}, others may read it too" if busy else ""
        log.warning("group %s: lost %s: %s%s", self._group_id, partition_list(partitions), reason, note)

    def _go_on_revoking(self, revocation: _Revocation, now: int) -> bool:
        """Whether the partitions may be given up now: their batch is done and committed, or no more can be waited."""
        partitions = revocation.partitions
        if not self._member.generation.valid:
            self._lose(partitions, self._member.why_out)
            return True
        if revocation.commit is None:
            busy = self._holdings.busy(partitions)
            if busy and now < revocation.deadline_ms and self._stopping is None:
                return False
            if busy and self._stopping is None:
                log.warning("group %s: the rebalance timeout is over, giving up %s within a batch; "
                            "its records will be read again by the next owner",
                            self._group_id, partition_list(busy))  # fmt: skip
            if offsets := self._holdings.uncommitted(partitions):
                revocation.commit = self._begin_commit(offsets, REVOKE_COMMIT_MS)
                revocation.commit_by_ms = now + REVOKE_COMMIT_MS
        if revocation.commit is not None and not revocation.commit.done() and now < revocation.commit_by_ms:
            return False
        if revocation.commit is not None and (error := _error_of(revocation.commit)) is not None:
            log.warning("group %s: the commit before giving up %s failed, its records will be read again: %s",
                        self._group_id, partition_list(partitions), error)  # fmt: skip
        self._holdings.drop(partitions)
        return True

    def _begin_commit(self, offsets: Mapping[TopicPartition, int], timeout_ms: int) -> Future[None]:
        """On the member's thread; the future is done when the coordinator has answered, or the time is up."""
        values = {tp: OffsetAndMetadata(offset, self.metadata_of(tp)) for tp, offset in offsets.items()}
        done = self._driver.ask(lambda ask_id: ev.Commit(ask_id, values, timeout_ms, repeated=False))
        done.add_done_callback(
            lambda future: self._holdings.commit_done(offsets) if _error_of(future) is None else None
        )
        return done

    def _leave(self, reason: str) -> None:
        if self._stopping is None:
            self._stopping = reason
            self._driver.tell(ev.Leave(reason))

    # -- Spark's thread ------------------------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        return self._member.standing

    @property
    def heartbeat_seconds(self) -> float:
        return self._member.heartbeat_interval_ms / 1000

    @property
    def settled(self) -> bool:
        """In the group with an assignment taken over, and nothing known that would change it."""
        return self._member.settled

    def start(self) -> None:
        self._thread.start()

    def check(self) -> None:
        """Raises what ended the membership."""
        if self._failure is not None:
            raise RuntimeError(f"group {self._group_id}: {self._failure}") from self._failure
        if self._left:
            raise RuntimeError(f"group {self._group_id}: the query has left")

    def wait_for_assignment(self, seconds: float) -> bool:
        return self._wait_until(lambda: self._holdings.assignments > 0, seconds)

    def wait_for_partitions(self, seconds: float) -> bool:
        return self._wait_until(lambda: bool(self._holdings.owned()), seconds)

    def committed(self, partitions: Iterable[TopicPartition], seconds: float) -> dict[TopicPartition, Any] | None:
        """The group's commits, None for partitions without; None at all while the coordinator cannot say."""
        wanted, timeout_ms = frozenset(partitions), int(seconds * 1000)
        asked = self._on_thread(lambda: self._driver.ask(lambda ask_id: ev.FetchCommitted(ask_id, wanted, timeout_ms)))
        try:
            found: dict[TopicPartition, Any] = asked.result(seconds + GRACE_SECONDS)
            return found
        except KafkaError as error:
            self.check()
            if not error.code.retriable:
                raise
            log.warning("group %s: committed offsets cannot be had yet: %s", self._group_id, error)
            return None
        except TimeoutError:
            return None

    def begin_commit(self, offsets: Mapping[TopicPartition, int], seconds: float) -> Future[None]:
        """Commit with this member's generation."""
        return self._on_thread(lambda: self._begin_commit(offsets, int(seconds * 1000)))

    def outcome(self, done: Future[None], seconds: float) -> BaseException | None:
        """What went wrong with a commit, if anything."""
        try:
            return done.exception(seconds + GRACE_SECONDS)
        except TimeoutError as error:
            return error

    def _on_thread(self, begin: Callable[[], Future[Any]]) -> Future[Any]:
        """What `begin`, called on the member's thread, will come to."""
        future: Future[Any] = Future()
        self._driver.post(lambda: begin().add_done_callback(lambda done: _copy(done, future)))
        return future

    def stop(self, reason: str) -> None:
        """Commit what is durable, leave the group, end the thread."""
        if not self._thread.is_alive():
            return
        self._driver.post(lambda: self._leave(reason))
        self._thread.join(LEAVE_SECONDS)

    def _wait_until(self, condition: Any, seconds: float) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: condition() or self._failure is not None, seconds)
        self.check()
        return bool(condition())

    def _holdings_changed(self) -> None:
        self._driver.wake()
        with self._changed:
            self._changed.notify_all()


def _error_of(future: Future[Any]) -> BaseException | None:
    return future.exception() if future.done() else TimeoutError("no answer in time")


def _copy(source: Future[Any], target: Future[Any]) -> None:
    if target.done():
        return
    if (error := source.exception()) is not None:
        target.set_exception(error)
    else:
        target.set_result(source.result())
