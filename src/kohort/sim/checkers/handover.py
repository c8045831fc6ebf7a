"""Nothing is skipped between one owner and the next, and after a clean hand-over nothing is read again.

A commit claims that everything below it was processed by the group: it must have been, when the commit was sent. A new
owner starts at the group's commit: not behind the last acknowledged one, and not ahead of every one that was sent.
"""

from __future__ import annotations

from typing import Any

from kohort.client.types import TopicPartition
from kohort.protocol.messages import OffsetFetchRequest
from kohort.sim.journal import Removal
from kohort.sim.member import SimMember
from kohort.sim.trace import Checker, CommitAttempt

Key = tuple[str, TopicPartition]


class HandOver(Checker):
    def __init__(self) -> None:
        self._processed_below: dict[Key, int] = {}
        self._ahead: dict[Key, set[int]] = {}
        self._sent: dict[Key, int] = {}
        self._acked: dict[Key, int] = {}
        self._acked_then: dict[str, dict[Key, int]] = {}  # by client, when its last OffsetFetch was answered
        self._removed_ms: dict[Key, int] = {}

    def offset_removed(self, removal: Removal) -> None:
        """Whoever starts then starts from the beginning; whether it was rightly removed is not asked here."""
        key = (removal.group_id, removal.tp)
        self._acked.pop(key, None)
        self._removed_ms[key] = removal.at_ms

    def answered(self, coordinator: Any, call: Any, message: Any, response: Any) -> None:
        """A member that stalls may act late on an answer; it is judged by what was acknowledged when that was given."""
        if isinstance(message, OffsetFetchRequest):
            self._acked_then[call.client_id] = dict(self._acked)

    def processed(self, member: SimMember, tp: TopicPartition, offset: int, value: bytes) -> None:
        key = (member.group_id, tp)
        below = self._processed_below.get(key, 0)
        if offset == below:
            ahead = self._ahead.get(key, set())
            below += 1
            while below in ahead:
                ahead.discard(below)
                below += 1
            self._processed_below[key] = below
        elif offset > below:
            self._ahead.setdefault(key, set()).add(offset)

    def commit_sent(self, attempt: CommitAttempt) -> None:
        if not attempt.of_a_consumer:
            return
        for tp, offset in attempt.offsets.items():
            key = (attempt.group_id, tp)
            if offset > self._processed_below.get(key, 0):
                self.fail(
                    f"{attempt.member} commits {offset} for {tp}, but {attempt.group_id} has processed it only below "
                    f"{self._processed_below.get(key, 0)}"
                )
            self._sent[key] = max(self._sent.get(key, 0), offset)

    def commit_acked(self, attempt: CommitAttempt, tp: TopicPartition) -> None:
        key = (attempt.group_id, tp)
        if attempt.sent_ms <= self._removed_ms.get(key, -1):
            return  # perhaps it was stored before, and is gone
        self._acked[key] = max(self._acked.get(key, 0), attempt.offsets[tp])

    def started_at(self, member: SimMember, tp: TopicPartition, committed: int | None) -> None:
        key, start = (member.group_id, tp), committed or 0
        if start > self._sent.get(key, 0):
            self.fail(f"{member} starts {tp} at {start}, nobody in {member.group_id} committed that far")
        acked = self._acked_then[member.name].get(key, 0)
        if start < acked:
            self.fail(f"{member} starts {tp} at {start}, {acked} was acknowledged before")

    def settled(self, world: Any) -> None:
        """With all faults over, everything that was produced has been processed by every group that subscribes."""
        for member in world.members():
            for tp in member.member.owned:
                if tp not in world.broker.store.logs:
                    self.fail(f"{member} still owns {tp}, which was deleted")
                end = world.broker.store.logs[tp].end_offset
                below = self._processed_below.get((member.group_id, tp), 0)
                if below < end:
                    self.fail(f"{member.group_id} has processed {tp} below {below} only, the end is {end}")
