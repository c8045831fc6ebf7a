"""A member of a KIP-848 group: what the log says of it, and its deadlines."""

from __future__ import annotations

from typing import Any

from kohort.coordinator.causes import Who
from kohort.coordinator.modern_records import CurrentAssignment, MemberMetadata, MemberState
from kohort.coordinator.timers import Deadline, TimerKind

NEW = CurrentAssignment()
UNSAID = MemberMetadata()


class Member:
    """`metadata` and `current` are hard state, values that replay.py puts in their place as a whole."""

    __slots__ = ("alive", "current", "heartbeat", "member_id", "metadata", "rebalance", "session_timeout_ms", "sync")

    def __init__(self, group_id: str, member_id: str) -> None:
        self.member_id = member_id
        self.metadata = UNSAID
        self.current = NEW
        self.session_timeout_ms = 0
        self.heartbeat = Deadline(TimerKind.MEMBER_SESSION, group_id, member_id)
        self.rebalance = Deadline(TimerKind.MEMBER_REBALANCE, group_id, member_id)
        self.sync: Deadline | None = None  # of a classic member: until it joins, or syncs
        self.alive: Any = None  # the answer to a heartbeat that changes nothing, encoded once

    @property
    def who(self) -> Who:
        said = self.metadata
        return Who(self.member_id, said.instance_id, said.client_id, said.client_host)

    @property
    def is_classic(self) -> bool:
        return self.metadata.classic is not None

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.current.state is MemberState.STABLE and self.current.member_epoch == epoch

    def cancel_deadlines(self) -> None:
        self.heartbeat.cancel()
        self.rebalance.cancel()
        if self.sync is not None:
            self.sync.cancel()

    def __repr__(self) -> str:
        return f"Member({self.member_id}, {self.current})"
