"""The runtime of a coordinator: shards from their load to their end, and between a decision and its answer the log.

    runtime.lead(partition, epoch, now_ms)                 a load is wanted: `effects.loads`
    runtime.loaded(shard, incarnation, offset, now_ms)     it is served from here on
    runtime.decided(shard, decision)                       takes effect at once; its answers wait for the log
    for write in runtime.take_writes(now_ms): ...          append it, then runtime.stored(write, error, now_ms)

A decision sees every earlier one, stored or not. An answer leaves when everything it rests on is stored. Where an
append fails, or takes longer than `append_timeout_ms`, whatever was decided is dropped and the shard loads again: there
is no undoing. It knows nothing of groups or transactions; no clock, no I/O, one owner.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic

from kohort.coordinator.effects import Answer, Decision, Effects, Request, append_error
from kohort.coordinator.shard import Life, S, Shard, Write
from kohort.coordinator.timers import TimerQueue, Wakes
from kohort.protocol.errors import ErrorCode

NewState = Callable[[int, TimerQueue, Any], S]
"""The state of a partition before anything is read, with the one before it (or None) to take over what is no state."""

Failed = Callable[[Request, Any, ErrorCode], Any]
"""The response to a request whose records, or what its answer rests on, could not be stored."""


class Runtime(Generic[S]):
    def __init__(self, new_state: NewState[S], failed: Failed, append_timeout_ms: int) -> None:
        self._new_state = new_state
        self._failed = failed
        self.append_timeout_ms = append_timeout_ms
        self.effects = Effects()
        self.shards_changed: Callable[[], None] | None = None  # told when a partition is led, or no longer
        self.shards: dict[int, Shard[S]] = {}
        self._wakes = Wakes()
        self.open_shards: list[Shard[S]] = []  # have a write of this turn
        self._storing: dict[Shard[S], None] = {}  # have writes in flight
        self._incarnations = 0

    # ---- lives

    def lead(self, partition: int, epoch: int, now_ms: int) -> Shard[S]:
        """This broker leads the partition, in this epoch; an older epoch than the known one is news of yesterday."""
        shard = self.shards.get(partition)
        if shard is not None:
            if epoch <= shard.epoch:
                return shard
            self.resign(partition, now_ms)
        self._incarnations += 1
        shard = Shard(partition, epoch, self._incarnations, Life.LOADING, self._fresh_state(partition, None))
        shard.state.timers.owner = shard
        self.shards[partition] = shard
        self.effects.loads.append(shard)
        if self.shards_changed is not None:
            self.shards_changed()
        return shard

    def resign(self, partition: int, now_ms: int, epoch: int | None = None) -> None:
        """The partition is led elsewhere, or gone: whoever waits here is sent to look for it."""
        shard = self.shards.get(partition)
        if shard is None or (epoch is not None and epoch < shard.epoch):
            return
        del self.shards[partition]
        if self.shards_changed is not None:
            self.shards_changed()
        shard.become(Life.CLOSED)
        self._drop(shard, ErrorCode.NOT_COORDINATOR, now_ms)

    def loaded(
        self, shard: Shard[S], incarnation: int, next_offset: int, now_ms: int, max_append_bytes: int = 1 << 62
    ) -> bool:
        """The log is read up to `next_offset`; False where nobody waits for that any more."""
        if not self.is_loading(shard, incarnation):
            return False
        state = shard.state
        state.now_ms = now_ms
        decisions = state.loaded(max_append_bytes)
        shard.become(Life.ACTIVE)
        shard.next_offset = next_offset
        for decision in decisions:
            self.decided(shard, decision)
        self.decided(shard, None)
        return True

    def load_failed(self, shard: Shard[S], incarnation: int, reason: str) -> bool:
        """The log cannot be read whole: nobody is served from half of it."""
        if not self.is_loading(shard, incarnation):
            return False
        shard.become(Life.FAILED)
        shard.failure = reason
        self._forget_state(shard)
        return True

    def is_loading(self, shard: Shard[S], incarnation: int) -> bool:
        return shard.life is Life.LOADING and shard.incarnation == incarnation

    def _fresh_state(self, partition: int, previous: S | None) -> S:
        return self._new_state(partition, TimerQueue(None, self._wakes), previous)

    def _forget_state(self, shard: Shard[S]) -> None:
        """Another incarnation, of which nothing is known."""
        previous = shard.state
        previous.timers.close()
        self._incarnations += 1
        shard.incarnation = self._incarnations
        shard.records_read = 0
        shard.state = self._fresh_state(shard.partition, previous)
        shard.state.timers.owner = shard

    # ---- decisions

    def decided(self, shard: Shard[S], decision: Decision | None) -> None:
        """What `shard.state` was just asked: its records are to be stored, its answers wait for what they rest on."""
        state = shard.state
        waits_for = shard.resting
        if decision is not None:
            waits_for = shard.open
            if waits_for is None:
                waits_for = shard.open = Write(shard)
                self.open_shards.append(shard)
            waits_for.decisions.append(decision)
            changes = decision.changes
            if changes:
                if not decision.in_effect:
                    state.apply(changes, shard.next_offset)
                waits_for.applied = True
                shard.resting = waits_for
            shard.next_offset += len(decision.records)
            if decision.then is not None:
                waits_for.thens.append(decision.then)
        answers = state.answers
        if answers:
            if waits_for is None:
                self.effects.replies.extend(answers)
            else:
                waits_for.answers.extend(answers)
            answers.clear()

    def take_writes(self, now_ms: int) -> list[Write[S]]:
        """What the turn wants stored, one write a shard."""
        shards, self.open_shards = self.open_shards, []
        writes: list[Write[S]] = []
        for shard in shards:
            write = shard.open
            if write is not None and write.incarnation == shard.incarnation:
                shard.open = None
                write.sent_ms = now_ms
                shard.in_flight.append(write)
                self._storing[shard] = None
                writes.append(write)
        return writes

    def stored(self, write: Write[S], error: int, now_ms: int) -> bool:
        """A part of a write is in the log, or has failed; False where the shard has been dropped since."""
        shard = write.shard
        if write.incarnation != shard.incarnation:
            return False
        write.error = write.error or error
        write.parts -= 1
        if write.parts:
            return True
        in_flight = shard.in_flight
        if in_flight[0] is write:
            in_flight.popleft()
        else:
            in_flight.remove(write)
        if not in_flight:
            del self._storing[shard]
        if shard.resting is write:
            shard.resting = None
        if not write.error:
            self.effects.replies.extend(write.answers)
        elif write.applied:
            in_flight.appendleft(write)
            self._reload(shard, append_error(write.error), now_ms)
            return True
        else:
            self._fail_answers(write.answers, append_error(write.error))
        if write.thens:
            self._follow_up(shard, write, now_ms)
        return True

    def _follow_up(self, shard: Shard[S], write: Write[S], now_ms: int) -> None:
        state = shard.state
        state.now_ms = now_ms
        thens, write.thens = write.thens, []
        for position, then in enumerate(thens, 1):
            try:
                self.decided(shard, state.stored(then, append_error(write.error)))
            except Exception:
                # Nobody is forgotten who stands behind the one that fails: see `crashed`.
                write.answers, write.thens = [], thens[position:]
                shard.in_flight.appendleft(write)
                raise

    # ---- failure

    def crashed(self, shard: Shard[S], now_ms: int) -> None:
        """A handler has failed half way: nobody is served from what that has left behind."""
        if shard.life is Life.ACTIVE:
            self._reload(shard, ErrorCode.COORDINATOR_NOT_AVAILABLE, now_ms)

    def _reload(self, shard: Shard[S], error: ErrorCode, now_ms: int) -> None:
        """What was decided cannot be had: back to what the log says."""
        shard.become(Life.LOADING)
        self._drop(shard, error, now_ms)
        self.effects.loads.append(shard)

    def _drop(self, shard: Shard[S], error: ErrorCode, now_ms: int) -> None:
        """The state is void: its parked requests get the error, and so does whoever waits for the log."""
        state = shard.state
        half_done, state.answers = state.answers, []
        writes = list(shard.in_flight)
        if shard.open is not None:
            writes.append(shard.open)
        shard.in_flight.clear()
        shard.open = shard.resting = None
        self._storing.pop(shard, None)
        self._forget_state(shard)
        state.now_ms = now_ms
        state.close(error, moved=shard.life is Life.CLOSED)
        for write in writes:
            self._fail_answers(write.answers, error)
            for then in write.thens:
                state.stored(then, error)
        self._fail_answers(half_done, error)
        self.effects.replies.extend(state.answers)

    def _fail_answers(self, answers: list[Answer], error: ErrorCode) -> None:
        self.effects.replies.extend((request, self._failed(request, response, error)) for request, response in answers)

    # ---- time

    def on_time(self, now_ms: int) -> None:
        for shard in [s for s in self._storing if s.in_flight[0].sent_ms + self.append_timeout_ms <= now_ms]:
            self._reload(shard, append_error(ErrorCode.REQUEST_TIMED_OUT), now_ms)
        for queue in self._wakes.due(now_ms):
            shard = queue.owner
            try:
                self._ring(shard, queue, now_ms)
            except Exception as error:
                self.effects.crashes.append(error)
                self.crashed(shard, now_ms)

    def _ring(self, shard: Shard[S], queue: TimerQueue, now_ms: int) -> None:
        state = shard.state
        state.now_ms = now_ms
        for deadline in queue.due(now_ms):
            self.decided(shard, state.due(deadline))

    def next_deadline(self) -> int | None:
        first = self._wakes.next()
        for shard in self._storing:
            at_ms = shard.in_flight[0].sent_ms + self.append_timeout_ms
            if first is None or at_ms < first:
                first = at_ms
        return first
