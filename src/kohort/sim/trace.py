"""What happened in a run, as facts: told to every checker, hashed into a digest, the last kept for the report."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kohort.client.types import TopicPartition
from kohort.coordinator.events import GroupEvent

if TYPE_CHECKING:
    from kohort.broker.connection import Call
    from kohort.coordinator.coordinator import Coordinator
    from kohort.sim.broker import SimBroker
    from kohort.sim.journal import Removal
    from kohort.sim.member import SimMember
    from kohort.sim.scheduler import Scheduler
    from kohort.sim.world import World

KEPT = 400


class CheckFailed(BaseException):
    """A checker found something that must not be. No Exception: a broker survives those of its handlers."""

    def __init__(self, checker: str, text: str) -> None:
        super().__init__(f"{checker}: {text}")
        self.checker = checker


@dataclass(slots=True)
class CommitAttempt:
    """One OffsetCommit on its way: what it wants stored, when it was sent, and what of it is acknowledged."""

    number: int
    group_id: str
    member: str
    generation_id: int
    offsets: Mapping[TopicPartition, int]
    sent_ms: int
    of_a_consumer: bool  # who commits only what it has processed
    acked: set[TopicPartition] = field(default_factory=set)


class Checker:
    """Hears of every fact; overrides what it cares about; `fail` ends the run."""

    def fail(self, text: str) -> None:
        raise CheckFailed(type(self).__name__, text)

    def begin(self, world: World) -> None: ...
    def asked(self, coordinator: Coordinator, call: Call, message: Any) -> None: ...
    def answered(self, coordinator: Coordinator, call: Call, message: Any, response: Any) -> None: ...
    def group_event(self, event: GroupEvent) -> None: ...
    def broker_started(self, broker: SimBroker) -> None: ...
    def assigned(self, member: SimMember, partitions: frozenset[TopicPartition], generation_id: int) -> None: ...
    def given_up(self, member: SimMember, partitions: frozenset[TopicPartition], lost: bool) -> None: ...
    def started_at(self, member: SimMember, tp: TopicPartition, committed: int | None) -> None: ...
    def processed(self, member: SimMember, tp: TopicPartition, offset: int, value: bytes) -> None: ...
    def commit_sent(self, attempt: CommitAttempt) -> None: ...
    def commit_acked(self, attempt: CommitAttempt, tp: TopicPartition) -> None: ...
    def produced(self, tp: TopicPartition, offset: int, value: bytes) -> None: ...
    def offset_removed(self, removal: Removal) -> None: ...
    def group_removed(self, group_id: str) -> None: ...
    def member_gone(self, member: SimMember, how: str) -> None: ...
    def settled(self, world: Any) -> None: ...
    def finished(self, world: Any) -> None: ...


class Trace(Checker):
    """Passes facts on. Facts become text only where somebody looks: the digest and the report."""

    def __init__(self, scheduler: Scheduler, checkers: list[Checker]) -> None:
        self._scheduler = scheduler
        self._checkers = checkers
        self._hash = hashlib.blake2b(digest_size=16)
        self.lines: deque[str] = deque(maxlen=KEPT)
        self.counts: dict[str, int] = {}

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    def note(self, kind: str, text: str) -> None:
        line = f"{self._scheduler.now_ms} {kind} {text}"
        self._hash.update(line.encode())
        self.lines.append(line)
        self.counts[kind] = self.counts.get(kind, 0) + 1

    def begin(self, world: World) -> None:
        for checker in self._checkers:
            checker.begin(world)

    def asked(self, coordinator: Coordinator, call: Call, message: Any) -> None:
        for checker in self._checkers:
            checker.asked(coordinator, call, message)

    def answered(self, coordinator: Coordinator, call: Call, message: Any, response: Any) -> None:
        error = getattr(response, "error_code", 0)
        self.note("answer", f"{call.entry.name} {call.client_id} {error}")
        for checker in self._checkers:
            checker.answered(coordinator, call, message, response)

    def group_event(self, event: GroupEvent) -> None:
        self.note("group", repr(event))
        for checker in self._checkers:
            checker.group_event(event)

    def broker_started(self, broker: SimBroker) -> None:
        self.note("broker", "starts")
        for checker in self._checkers:
            checker.broker_started(broker)

    def assigned(self, member: SimMember, partitions: frozenset[TopicPartition], generation_id: int) -> None:
        self.note("assign", f"{member.name} generation {generation_id} {_listed(partitions)}")
        for checker in self._checkers:
            checker.assigned(member, partitions, generation_id)

    def given_up(self, member: SimMember, partitions: frozenset[TopicPartition], lost: bool) -> None:
        self.note("lose" if lost else "revoke", f"{member.name} {_listed(partitions)}")
        for checker in self._checkers:
            checker.given_up(member, partitions, lost)

    def started_at(self, member: SimMember, tp: TopicPartition, committed: int | None) -> None:
        self.note("start", f"{member.name} {tp} {committed}")
        for checker in self._checkers:
            checker.started_at(member, tp, committed)

    def processed(self, member: SimMember, tp: TopicPartition, offset: int, value: bytes) -> None:
        self.note("process", f"{member.name} {tp} {offset}")
        for checker in self._checkers:
            checker.processed(member, tp, offset, value)

    def commit_sent(self, attempt: CommitAttempt) -> None:
        self.note("commit", f"{attempt.member} #{attempt.number} {_offsets(attempt.offsets)}")
        for checker in self._checkers:
            checker.commit_sent(attempt)

    def commit_acked(self, attempt: CommitAttempt, tp: TopicPartition) -> None:
        self.note("acked", f"#{attempt.number} {tp}")
        for checker in self._checkers:
            checker.commit_acked(attempt, tp)

    def produced(self, tp: TopicPartition, offset: int, value: bytes) -> None:
        self.note("produced", f"{tp} {offset}")
        for checker in self._checkers:
            checker.produced(tp, offset, value)

    def offset_removed(self, removal: Removal) -> None:
        self.note("removed", f"{removal.group_id} {removal.tp} {removal.before.committed_offset}")
        for checker in self._checkers:
            checker.offset_removed(removal)

    def group_removed(self, group_id: str) -> None:
        self.note("removed", group_id)
        for checker in self._checkers:
            checker.group_removed(group_id)

    def member_gone(self, member: SimMember, how: str) -> None:
        self.note("gone", f"{member.name} {how}")
        for checker in self._checkers:
            checker.member_gone(member, how)

    def settled(self, world: Any) -> None:
        for checker in self._checkers:
            checker.settled(world)

    def finished(self, world: Any) -> None:
        for checker in self._checkers:
            checker.finished(world)


def _listed(partitions: frozenset[TopicPartition]) -> str:
    return " ".join(f"{tp.topic}-{tp.partition}" for tp in sorted(partitions))


def _offsets(offsets: Mapping[TopicPartition, int]) -> str:
    return " ".join(f"{tp.topic}-{tp.partition}={offset}" for tp, offset in sorted(offsets.items()))
