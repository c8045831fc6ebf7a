"""A query's membership in its group: the sans-IO member of kohort.client driven by a thread of its own.

The thread heartbeats, rebalances and commits however long a batch takes. A revocation waits for the batch in flight,
at most for the rebalance timeout, and commits before it gives a partition up. Spark's thread talks to it through the
methods of the second half.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from kohort.assignors import load_assignors
from kohort.client import effects as fx
from kohort.client.config import Config
from kohort.client.member import Member, MemberConfig, MemberState, Step
from kohort.client.types import OffsetAndMetadata, TopicPartition, partition_list
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.spark.group_io import Answer, Event, Failure, GroupIO, Metadata
from kohort.spark.holdings import Holdings
from kohort.spark.options import ReadOptions

log = logging.getLogger("kohort.spark")

TICK_SECONDS = 1.0
LEAVE_SECONDS = 15
REVOKE_COMMIT_MS = 5_000
METADATA_RETRY_MS = 500


def now_ms() -> int:
    return int(time.monotonic() * 1000)


def member_config(config: Config) -> MemberConfig:
    return MemberConfig(
        group_id=config["group.id"],
        group_instance_id=config["group.instance.id"],
        session_timeout_ms=config["session.timeout.ms"],
        heartbeat_interval_ms=config["heartbeat.interval.ms"],
        max_poll_interval_ms=config["max.poll.interval.ms"],
        enable_auto_commit=False,
        request_timeout_ms=config["request.timeout.ms"],
        retry_backoff_ms=config["retry.backoff.ms"],
        retry_backoff_max_ms=config["retry.backoff.max.ms"],
        client_rack=config["client.rack"],
        exclude_internal_topics=config["exclude.internal.topics"],
    )


@dataclass(slots=True)
class _Revocation:
    partitions: frozenset[TopicPartition]
    deadline_ms: int
    commit: Future[None] | None = None
    commit_by_ms: int = 0


class Membership:
    def __init__(self, options: ReadOptions, holdings: Holdings) -> None:
        config = options.config()
        self._subscription = options.subscription
        self._group_id = config["group.id"]
        self._metadata_age_ms = config["metadata.max.age.ms"]
        self._member = Member(
            member_config(config), load_assignors(config["partition.assignment.strategy"]), random.random
        )
        self._io = GroupIO(config)
        self._holdings = holdings
        holdings.on_change(self._holdings_changed)
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="kohort-member", daemon=True)
        self._asks: dict[int, Future[Any]] = {}
        self._last_ask = 0
        self._revocation: _Revocation | None = None
        self._watched: frozenset[str] | None = frozenset()
        self._refresh_at_ms: int | None = None
        self._refreshing = False
        self._stopping: str | None = None
        self._left = False
        self._failure: BaseException | None = None
        self._parent = os.getppid()
        self.metadata_of: Callable[[TopicPartition], str] = lambda partition: ""
        """The metadata of a partition's commits."""

    # -- the member's thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._subscribe()
            while not self._left:
                now = now_ms()
                self._mind(now)
                for event in self._io.wait(self._pause(now), now):
                    self._handle(event)
        except BaseException as error:
            self._failure = error
            if not isinstance(error, SystemExit):
                log.exception("group %s: the membership has failed", self._group_id)
        finally:
            self._holdings.drop(self._holdings.owned())
            self._io.close()
            gone = KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"not in group {self._group_id} any more")
            for ask in self._asks.values():
                with contextlib.suppress(Exception):
                    ask.set_exception(gone)
            self._holdings_changed()

    def _subscribe(self) -> None:
        if self._subscription.pattern is not None:
            self._carry_out(self._member.subscribe_pattern(self._subscription.matches, now_ms()))
        else:
            self._carry_out(self._member.subscribe(self._subscription.topics, now_ms()))

    def _mind(self, now: int) -> None:
        """What is due now."""
        if os.getppid() != self._parent and self._stopping is None:
            self._leave("Spark is gone")
        if self._failure is None and self._stopping is None:
            self._carry_out(self._member.poll(now))
        deadline = self._member.next_deadline()
        if deadline is not None and deadline <= now:
            self._carry_out(self._member.on_time(now))
        if self._refresh_at_ms is not None and now >= self._refresh_at_ms:
            self._refresh()
        self._act(now)

    def _pause(self, now: int) -> float:
        due = [now + int(TICK_SECONDS * 1000)]
        if (deadline := self._member.next_deadline()) is not None:
            due.append(deadline)
        if self._refresh_at_ms is not None:
            due.append(self._refresh_at_ms)
        if self._revocation is not None:
            due.append(self._revocation.deadline_ms)
            due.extend([self._revocation.commit_by_ms] if self._revocation.commit else [])
        return max(min(due) - now, 0) / 1000 if self._member.pending is None else 0.0

    def _handle(self, event: Event) -> None:
        now = now_ms()
        if isinstance(event, Answer):
            self._carry_out(self._member.received(event.token, event.response, now))
        elif isinstance(event, Failure):
            self._carry_out(self._member.send_failed(event.token, event.reason, now, event.error))
        elif isinstance(event, Metadata):
            self._refreshing = False
            if event.snapshot is None:
                self._refresh_at_ms = now + METADATA_RETRY_MS
            else:
                self._refresh_at_ms = now + self._metadata_age_ms
                self._carry_out(self._member.metadata_updated(event.snapshot, now))
        else:
            event()

    def _carry_out(self, effects: Iterable[fx.MemberEffect]) -> None:
        for effect in effects:
            if isinstance(effect, fx.Send):
                self._io.send(effect, now_ms())
            elif isinstance(effect, fx.UseCoordinator):
                self._io.use_coordinator(effect)
            elif isinstance(effect, fx.DropCoordinator):
                self._io.drop_coordinator()
            elif isinstance(effect, fx.WatchTopics):
                self._watched = effect.topics
                self._refresh_at_ms = 0 if effect.topics != frozenset() else None
            elif isinstance(effect, fx.RefreshMetadata):
                self._refresh_at_ms = 0
            elif isinstance(effect, fx.CommitDone):
                self._answer(effect.commit_id, None, effect.error)
            elif isinstance(effect, fx.OffsetsFetched):
                self._answer(effect.fetch_id, effect.offsets, effect.error)
            elif isinstance(effect, fx.Left):
                self._left = True
            elif isinstance(effect, fx.Fail):
                self._failure = effect.error
                self._holdings_changed()
            elif isinstance(effect, fx.Report):
                log.log(logging.getLevelNamesMapping().get(effect.level, logging.INFO), effect.text)

    def _refresh(self) -> None:
        if not self._refreshing:
            self._refreshing = True
            self._refresh_at_ms = None
            self._io.ask_metadata(self._watched)

    def _answer(self, ask_id: int, value: Any, error: Exception | None) -> None:
        ask = self._asks.pop(ask_id, None)
        if ask is None or ask.done():
            return
        if error is None:
            ask.set_result(value)
        else:
            ask.set_exception(error)

    # -- actions -------------------------------------------------------------------------------------------------------

    def _act(self, now: int) -> None:
        while True:
            if self._revocation is not None:
                if not self._go_on_revoking(self._revocation, now):
                    return
                self._revocation = None
                self._carry_out(self._member.revoked(now))
            action = self._member.take(now)
            if action is None:
                return
            if isinstance(action, fx.Assign):
                self._holdings.assign(action.partitions)
                self._carry_out(self._member.assigned(now))
            elif isinstance(action, fx.Lose):
                self._lose(action.partitions, action.reason)
                self._carry_out(self._member.revoked(now))
            elif isinstance(action, fx.Revoke):
                self._holdings.begin_revoke(action.partitions)
                self._revocation = _Revocation(action.partitions, action.deadline_ms)
                if busy := self._holdings.busy(action.partitions):
                    log.info("group %s: the batch in flight reads %s, finishing it before they are given up",
                             self._group_id, partition_list(busy))  # fmt: skip
            else:
                self._carry_out(self._member.auto_commit({}, now))

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
                revocation.commit = self._begin_commit(offsets)
                revocation.commit_by_ms = now + REVOKE_COMMIT_MS
        if revocation.commit is not None and not revocation.commit.done() and now < revocation.commit_by_ms:
            return False
        if revocation.commit is not None and (error := _error_of(revocation.commit)) is not None:
            log.warning("group %s: the commit before giving up %s failed, its records will be read again: %s",
                        self._group_id, partition_list(partitions), error)  # fmt: skip
        self._holdings.drop(partitions)
        return True

    def _begin_commit(self, offsets: Mapping[TopicPartition, int]) -> Future[None]:
        """On the member's thread; the future is done when the coordinator has answered."""
        done: Future[None] = Future()
        done.add_done_callback(
            lambda future: self._holdings.commit_done(offsets) if _error_of(future) is None else None
        )
        values = {tp: OffsetAndMetadata(offset, self.metadata_of(tp)) for tp, offset in offsets.items()}
        self._carry_out(self._member.commit(self._new_ask(done), values, now_ms()))
        return done

    def _leave(self, reason: str) -> None:
        if self._stopping is None:
            self._stopping = reason
            self._carry_out(self._member.leave(reason, now_ms()))

    def _new_ask(self, future: Future[Any]) -> int:
        """The number under which the member will answer `future`."""
        self._last_ask += 1
        self._asks[self._last_ask] = future
        return self._last_ask

    # -- Spark's thread ------------------------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        return f"{self._member.state.value}, {self._member.step.value}"

    @property
    def settled(self) -> bool:
        """In the group with an assignment taken over, and nothing known that would change it."""
        return self._member.state is MemberState.STABLE and self._member.step is Step.IDLE

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
        future: Future[dict[TopicPartition, Any]] = Future()
        wanted = frozenset(partitions)

        def ask() -> None:
            self._carry_out(self._member.fetch_offsets(self._new_ask(future), wanted, now_ms()))

        self._io.post(ask)
        try:
            return future.result(seconds)
        except TimeoutError:
            return None
        except KafkaError as error:
            self.check()
            if not error.code.retriable:
                raise
            log.warning("group %s: committed offsets cannot be had yet: %s", self._group_id, error)
            return None

    def commit(self, offsets: Mapping[TopicPartition, int], seconds: float) -> BaseException | None:
        """Commit with this member's generation; what went wrong, if anything."""
        done: Future[None] = Future()

        def begin() -> None:
            self._begin_commit(offsets).add_done_callback(lambda future: _copy(future, done))

        self._io.post(begin)
        try:
            return done.exception(seconds)
        except TimeoutError as error:
            return error

    def stop(self, reason: str) -> None:
        """Commit what is durable, leave the group, end the thread."""
        if not self._thread.is_alive():
            return
        self._io.post(lambda: self._leave(reason))
        self._thread.join(LEAVE_SECONDS)

    def _wait_until(self, condition: Any, seconds: float) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: condition() or self._failure is not None, seconds)
        self.check()
        return bool(condition())

    def _holdings_changed(self) -> None:
        self._io.wake()
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
