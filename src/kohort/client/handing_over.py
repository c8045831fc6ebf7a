"""How partitions change hands, whatever the protocol: commit, revoke or lose, take over, each with the application.

`step` says how far it is, and `_go` is its only writer. Which partitions, why, and what follows say the members
themselves; when a step may go on is decided in their `_advance`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar

from kohort.client.committing import Committing
from kohort.client.effects import Assign, AutoCommit, Lose, MemberEffect, Revoke
from kohort.client.group_member import moved
from kohort.client.states import MemberConfig, Purpose, Step
from kohort.client.types import TopicPartition


class HandingOver(Committing):
    STEPS: ClassVar[Mapping[Step, frozenset[Step]]]
    FIRST_PURPOSE: ClassVar[Purpose]

    def __init__(self, config: MemberConfig, uniform: Callable[[], float]) -> None:
        super().__init__(config, uniform)
        self.step = Step.IDLE
        self._purpose = self.FIRST_PURPOSE

    def _go(self, step: Step) -> None:
        self.step = moved(self.step, step, self.STEPS)

    # -- the application has done its part ----------------------------------------------------------------------------

    def revoked(self, now_ms: int) -> list[MemberEffect]:
        action = self._taken
        assert isinstance(action, Revoke | Lose)
        self._taken = None
        self.owned -= action.partitions
        if not self._resumed(now_ms):
            self._given_up(now_ms)
        return self._advance(now_ms)

    def assigned(self, now_ms: int) -> list[MemberEffect]:
        assert isinstance(self._taken, Assign)
        self._taken = None
        if not self._resumed(now_ms):
            self._go(Step.IDLE)
        return self._advance(now_ms)

    def _resumed(self, now_ms: int) -> bool:
        """While the application was busy the member dropped out or was told to leave: that comes first now."""
        dropped_out, self._restart = self._restart, False
        if self._leaving is not None and (dropped_out or self._purpose is not Purpose.LEAVE):
            self._begin_leave(now_ms)
            return True
        if dropped_out:
            self._dropped_out(now_ms)
        return dropped_out

    # -- giving partitions up -----------------------------------------------------------------------------------------

    def _begin_giving_up(self, purpose: Purpose, give_up_by_ms: int, now_ms: int) -> None:
        self._purpose = purpose
        self._give_up_by_ms = give_up_by_ms
        is_owner = self._may_commit() and self.generation.valid and bool(self.owned)
        if self.config.enable_auto_commit and (is_owner or (self._manual and purpose is Purpose.LEAVE)):
            self._go(Step.COMMITTING)
            self._offer(AutoCommit(purpose.value))
        else:
            self._give_up(now_ms)

    def _give_up(self, now_ms: int) -> None:
        self._go(Step.REVOKING)
        self._prepare_ask = None
        partitions, lost = self._to_give_up()
        if not partitions:
            self._given_up(now_ms)
        elif lost:
            self._offer(Lose(partitions, self._why_out or self._why_given_up()))
        else:
            self._offer(Revoke(partitions, self._why_given_up() or self._purpose.value, self._give_up_by_ms))

    @property
    def held_back(self) -> frozenset[TopicPartition]:
        return self._to_give_up()[0] if self.step in (Step.COMMITTING, Step.REVOKING) else frozenset()

    def _commit_awaited(self) -> bool:
        return self.step is Step.COMMITTING and self._no_action()

    # -- said by the members ------------------------------------------------------------------------------------------

    def _why_given_up(self) -> str:
        return self._leaving or ""

    @abstractmethod
    def _to_give_up(self) -> tuple[frozenset[TopicPartition], bool]:
        """Which partitions, and whether they are lost already."""

    @abstractmethod
    def _given_up(self, now_ms: int) -> None:
        """They are: what follows depends on the purpose."""

    @abstractmethod
    def _dropped_out(self, now_ms: int) -> None:
        """Of the group, while the application was busy."""

    @abstractmethod
    def _begin_leave(self, now_ms: int) -> None: ...
