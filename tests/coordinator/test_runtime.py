"""The runtime of coordinators with a state that is no group: a list of words, each a record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from kohort.coordinator.effects import Answer, Decision, Request
from kohort.coordinator.runtime import Runtime
from kohort.coordinator.shard import LIVES, Damage, Life, Shard, Write
from kohort.coordinator.timers import Deadline, TimerKind, TimerQueue
from kohort.protocol.errors import ErrorCode

TIMEOUT_MS = 5_000
NOT_AVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE


@dataclass
class Said:
    """A word that counts only when it is stored."""

    word: str

    def stored(self, state: Words, error: ErrorCode) -> Decision | None:
        state.heard.append((self.word, error))
        if not error:
            state.words.append(self.word)
        return None


class Words:
    def __init__(self, timers: TimerQueue) -> None:
        self.now_ms = 0
        self.answers: list[Answer] = []
        self.timers = timers
        self.words: list[str] = []
        self.heard: list[tuple[str, ErrorCode]] = []
        self.closed: ErrorCode | None = None
        self.rang: list[int] = []

    def apply(self, changes: Sequence[str], offset: int) -> None:
        self.words += changes

    def stored(self, then: Any, error: ErrorCode) -> Decision | None:
        return then.stored(self, error)

    def due(self, deadline: Deadline) -> Decision | None:
        if deadline.group_id == "crash":
            self.answers.append((Request("half done", None, 0), "ok"))
            raise ValueError("crash")
        self.rang.append(self.now_ms)
        return None

    def read(self, key: bytes, value: bytes | None, offset: int, producer_id: int) -> None:
        self.words.append(key.decode())

    def read_marker(self, producer_id: int, committed: bool) -> None: ...

    def settle(self, limit: int) -> bool:
        return True

    def loaded(self, max_append_bytes: int) -> list[Decision]:
        return []

    def close(self, error: ErrorCode, *, moved: bool) -> None:
        self.closed = error


class World:
    def __init__(self) -> None:
        self.runtime: Runtime[Words] = Runtime(
            lambda partition, timers, previous: Words(timers), lambda request, response, error: error, TIMEOUT_MS
        )
        self.now_ms = 0
        self.logs: dict[int, list[str]] = {}

    def lead(self, partition: int, epoch: int = 1) -> Shard[Words]:
        shard = self.runtime.lead(partition, epoch, self.now_ms)
        self.load()
        return shard

    def load(self) -> None:
        loads, self.runtime.effects.loads = self.runtime.effects.loads, []
        for shard in loads:
            log = self.logs.setdefault(shard.partition, [])
            for offset, word in enumerate(log):
                shard.state.read(word.encode(), b"", offset, -1)
            self.runtime.loaded(shard, shard.incarnation, len(log), self.now_ms)

    def say(self, shard: Shard[Words], word: str, who: str | None = None) -> None:
        if who is not None:
            shard.state.answers.append((Request(who, None, 0), "ok"))
        self.runtime.decided(shard, Decision([(word.encode(), b"")], [word]))

    def ask(self, shard: Shard[Words], who: str) -> None:
        shard.state.answers.append((Request(who, None, 0), tuple(shard.state.words)))
        self.runtime.decided(shard, None)

    def writes(self) -> list[Write[Words]]:
        return self.runtime.take_writes(self.now_ms)

    def store(self, write: Write[Words], error: ErrorCode = ErrorCode.NONE) -> bool:
        if not error:
            log = self.logs.setdefault(write.shard.partition, [])
            log += [key.decode() for decision in write.decisions for key, _ in decision.records]
        return self.runtime.stored(write, error, self.now_ms)

    def answers(self) -> list[tuple[Any, Any]]:
        replies, self.runtime.effects.replies = self.runtime.effects.replies, []
        return [(request.call, response) for request, response in replies]


def test_a_decision_sees_every_earlier_one_and_answers_wait_for_what_they_rest_on() -> None:
    world = World()
    shard = world.lead(0)
    world.ask(shard, "early")
    assert world.answers() == [("early", ())]
    world.say(shard, "a", "writer")
    world.ask(shard, "reader")
    assert shard.state.words == ["a"] and world.answers() == []
    (write,) = world.writes()
    world.ask(shard, "late")
    assert world.answers() == []
    assert world.store(write)
    assert world.answers() == [("writer", "ok"), ("reader", ("a",)), ("late", ("a",))]


def test_an_answer_rests_on_the_last_write_that_it_saw() -> None:
    world = World()
    shard = world.lead(0)
    world.say(shard, "a", "first")
    (first,) = world.writes()
    world.say(shard, "b", "second")
    (second,) = world.writes()
    world.ask(shard, "reader")
    world.store(first)
    assert world.answers() == [("first", "ok")]
    world.store(second)
    assert world.answers() == [("second", "ok"), ("reader", ("a", "b"))]


def test_what_counts_when_it_is_stored_is_seen_by_nobody_before() -> None:
    world = World()
    shard = world.lead(0)
    world.runtime.decided(shard, Decision([(b"later", b"")], (), Said("later")))
    world.ask(shard, "reader")
    assert world.answers() == [("reader", ())]
    (write,) = world.writes()
    world.store(write)
    assert shard.state.words == ["later"]
    world.runtime.decided(shard, Decision([(b"never", b"")], (), Said("never")))
    (write,) = world.writes()
    world.store(write, ErrorCode.KAFKA_STORAGE_ERROR)
    assert shard.state.heard[-1] == ("never", ErrorCode.NOT_COORDINATOR)
    assert shard.life is Life.ACTIVE and shard.state.words == ["later"]


def test_a_failed_append_takes_the_shard_back_to_the_log() -> None:
    world = World()
    shard = world.lead(0)
    world.say(shard, "a")
    world.store(*world.writes())
    before = shard.state
    world.say(shard, "lost", "writer")
    world.ask(shard, "reader")
    (write,) = world.writes()
    world.say(shard, "also lost", "next")
    world.store(write, ErrorCode.NOT_ENOUGH_REPLICAS)
    assert shard.life is Life.LOADING and before.closed is NOT_AVAILABLE
    assert world.answers() == [(who, NOT_AVAILABLE) for who in ("writer", "reader", "next")]
    assert world.writes() == []
    world.load()
    assert shard.life is Life.ACTIVE and shard.state.words == ["a"]


def test_an_append_that_takes_too_long_is_void_and_its_late_answer_does_nothing() -> None:
    world = World()
    shard = world.lead(0)
    world.say(shard, "a", "writer")
    (write,) = world.writes()
    assert world.runtime.next_deadline() == TIMEOUT_MS
    world.now_ms = TIMEOUT_MS
    world.runtime.on_time(world.now_ms)
    assert world.answers() == [("writer", NOT_AVAILABLE)]
    assert world.runtime.next_deadline() is None
    assert not world.store(write)  # it is in the log now, and the load reads it there
    assert world.answers() == [] and shard.state.words == []
    world.load()
    assert shard.state.words == ["a"]


def test_a_resignation_ends_one_shard_and_no_other() -> None:
    world = World()
    gone, stays = world.lead(0), world.lead(1)
    deadline = Deadline(TimerKind.EXPIRE_OFFSETS, "")
    for shard in (gone, stays):
        shard.state.timers.set(deadline if shard is gone else Deadline(TimerKind.EXPIRE_OFFSETS, ""), 100)
        world.say(shard, "a", shard.partition)
    state = gone.state
    first, second = world.writes()
    world.runtime.resign(0, world.now_ms)
    assert gone.life is Life.CLOSED and state.closed is ErrorCode.NOT_COORDINATOR
    assert world.answers() == [(0, ErrorCode.NOT_COORDINATOR)]
    assert not world.store(first)
    world.store(second)
    assert world.answers() == [(1, "ok")]
    world.now_ms = 100
    world.runtime.on_time(world.now_ms)
    assert state.rang == [] and stays.state.rang == [100]


def test_news_of_yesterday_does_nothing() -> None:
    world = World()
    shard = world.lead(0, epoch=5)
    assert world.runtime.lead(0, 4, 0) is shard and world.runtime.lead(0, 5, 0) is shard
    world.runtime.resign(0, 0, epoch=4)
    assert shard.life is Life.ACTIVE
    again = world.runtime.lead(0, 6, 0)
    assert again is not shard and shard.life is Life.CLOSED and again.life is Life.LOADING
    assert not world.runtime.loaded(shard, shard.incarnation, 0, 0)
    assert not world.runtime.loaded(again, shard.incarnation, 0, 0)
    assert not world.runtime.load_failed(again, shard.incarnation, "damaged")
    assert again.life is Life.LOADING
    assert world.runtime.loaded(again, again.incarnation, 0, 0)


def test_a_load_that_cannot_be_completed_leaves_nothing_behind() -> None:
    world = World()
    shard = world.runtime.lead(0, 1, 0)
    shard.state.read(b"half", b"", 0, -1)
    assert world.runtime.load_failed(shard, shard.incarnation, str(Damage(7, "the checksum is wrong")))
    assert shard.life is Life.FAILED and shard.failure == "at offset 7: the checksum is wrong"
    assert shard.state.words == []
    world.runtime.resign(0, 0)
    assert world.lead(0, epoch=2).life is Life.ACTIVE


@pytest.mark.parametrize("before", Life)
@pytest.mark.parametrize("after", Life)
def test_lives_are_a_table_with_one_writer(before: Life, after: Life) -> None:
    shard = Shard(0, 0, 0, before, Words(TimerQueue()))
    if after in LIVES[before]:
        shard.become(after)
        assert shard.life is after
    else:
        with pytest.raises(AssertionError):
            shard.become(after)


def test_a_write_in_parts_is_done_when_the_last_part_is() -> None:
    world = World()
    shard = world.lead(0)
    world.say(shard, "a", "writer")
    (write,) = world.writes()
    write.parts = 2
    world.store(write)
    assert world.answers() == []
    world.runtime.stored(write, ErrorCode.KAFKA_STORAGE_ERROR, 0)
    assert world.answers() == [("writer", ErrorCode.NOT_COORDINATOR)] and shard.life is Life.LOADING


def test_a_deadline_that_fails_costs_its_shard_its_state_and_nobody_else_anything() -> None:
    world = World()
    crashes, other = world.lead(0), world.lead(1)
    world.say(crashes, "a")
    world.store(*world.writes())
    world.say(crashes, "b", "waits")
    for shard in (crashes, other):
        shard.state.timers.set(Deadline(TimerKind.EXPIRE_OFFSETS, "crash" if shard is crashes else ""), 100)
    world.now_ms = 100
    world.runtime.on_time(world.now_ms)
    assert [str(error) for error in world.runtime.effects.crashes] == ["crash"]
    assert sorted(world.answers()) == [("half done", NOT_AVAILABLE), ("waits", NOT_AVAILABLE)]
    assert crashes.life is Life.LOADING and other.state.rang == [100]
    world.load()
    assert crashes.state.words == ["a"]


@dataclass
class Crash:
    def stored(self, state: Words, error: ErrorCode) -> Decision | None:
        if error:
            return None
        raise ValueError("crash")


def test_what_fails_when_it_is_stored_leaves_nobody_behind_it_without_an_answer() -> None:
    world = World()
    shard = world.lead(0)
    before = shard.state
    world.runtime.decided(shard, Decision([(b"a", b"")], (), Crash()))
    world.runtime.decided(shard, Decision([(b"b", b"")], (), Said("b")))
    world.say(shard, "c", "writer")
    (write,) = world.writes()
    with pytest.raises(ValueError):
        world.store(write)
    assert world.answers() == [("writer", "ok")], "it is stored, whatever else was to happen then"
    world.runtime.crashed(shard, 0)
    assert before.heard == [("b", NOT_AVAILABLE)]
    world.load()
    assert shard.state.words == ["a", "b", "c"] and world.answers() == []
    world.say(shard, "d", "writer")
    world.store(*world.writes())
    assert world.answers() == [("writer", "ok")]
