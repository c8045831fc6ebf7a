"""The fields of a member of the classic protocol and what every part of it uses: queries, transitions, reasons.

`joining` and `liveness` build on this, `member` holds the events. Nothing here decides what happens next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kohort.assignors import Assignment, Assignor, RebalanceProtocol, Subscription, rebalance_protocol
from kohort.client.effects import WatchTopics
from kohort.client.group_member import moved
from kohort.client.handing_over import HandingOver
from kohort.client.states import STEPS, TRANSITIONS, MemberConfig, MemberState, Purpose, Step


class MemberBase(HandingOver):
    """State of one consumer in one group of the classic protocol."""

    STEPS = STEPS
    FIRST_PURPOSE = Purpose.REJOIN

    def __init__(self, config: MemberConfig, assignors: Sequence[Assignor], uniform: Callable[[], float]) -> None:
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self.protocol = rebalance_protocol(assignors) if assignors else RebalanceProtocol.EAGER
        super().__init__(config, uniform)
        self.state = MemberState.UNJOINED
        self.is_leader = False
        self._init_rebalance()

    def _init_rebalance(self) -> None:
        self._rejoin_needed = False
        self._rejoin_reason = ""
        self._cause = ""
        self._rebalance_began_ms: int | None = None
        self._next_assignment: Assignment | None = None
        self._joined_topics: frozenset[str] | None = None
        self._skip_assignment = False
        self._group: dict[str, Subscription] = {}
        self._group_topics: frozenset[str] = frozenset()
        self._assigned_from: dict[str, Any] | None = None
        self._is_unseen = False  # it leads an assignment that it did not make, and has not looked at: `returning`
        self._look: int | None = None

    # -- queries ------------------------------------------------------------------------------------------------------

    @property
    def settled(self) -> bool:
        return self.state is MemberState.STABLE and self.step is Step.IDLE

    @property
    def in_group(self) -> bool:
        return self.state is MemberState.STABLE

    @property
    def standing(self) -> str:
        return f"{self.state.value}, {self.step.value}"

    @property
    def rebalancing(self) -> bool:
        return self.state in (MemberState.PREPARING_REBALANCE, MemberState.COMPLETING_REBALANCE)

    # -- for all parts ------------------------------------------------------------------------------------------------

    def _transition_to(self, state: MemberState) -> None:
        if state is not self.state:
            self.state = moved(self.state, state, TRANSITIONS)

    def _request_rejoin(self, reason: str, now_ms: int) -> None:
        if not self._rejoin_needed and self.state is not MemberState.UNJOINED:
            self._note(f"joins again: {reason}", now_ms)
        self._rejoin_needed = True
        self._rejoin_reason = reason

    def _interest(self) -> WatchTopics:
        return WatchTopics(None if self._matches is not None else self.topics | self._group_topics)
