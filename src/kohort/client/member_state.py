"""The fields of a member and what every part of it uses: queries, transitions, actions, reasons.

`joining` and `liveness` build on this, `member` holds the events. Nothing here decides what happens next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from kohort.assignors import (
    Assignment,
    Assignor,
    ConsumerGroupMetadata,
    RebalanceProtocol,
    Subscription,
    rebalance_protocol,
)
from kohort.client.commits import NO_GENERATION, Ask, Commits
from kohort.client.effects import Action, MemberOutbox, MetadataSnapshot, WatchTopics
from kohort.client.finding import CoordinatorFinder
from kohort.client.states import STEPS, TRANSITIONS, MemberConfig, MemberState, Purpose, Step
from kohort.client.timing import Backoff, Heartbeat
from kohort.client.types import TopicPartition


class IllegalTransition(RuntimeError):
    """A bug in the member: a move that the table does not allow."""


class MemberBase:
    """State of one consumer in one group; queries for shells and tests."""

    def __init__(self, config: MemberConfig, assignors: Sequence[Assignor], uniform: Callable[[], float]) -> None:
        self.config = config
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self.protocol = rebalance_protocol(assignors) if assignors else RebalanceProtocol.EAGER
        self._out = MemberOutbox()

        def backoff() -> Backoff:
            return Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, uniform)

        self._finder = CoordinatorFinder(config.group_id, config.request_timeout_ms, backoff(), self._out)
        self._commits = Commits(config.group_id, config.group_instance_id, config.request_timeout_ms, self._out)
        self._heartbeat = Heartbeat(
            config.heartbeat_interval_ms, config.session_timeout_ms, config.max_poll_interval_ms, backoff()
        )
        self._init_membership()
        self._init_rebalance()

    def _init_membership(self) -> None:
        self.state = MemberState.UNJOINED
        self.generation = NO_GENERATION
        self.is_leader = False
        self.owned: frozenset[TopicPartition] = frozenset()
        self.fatal: Exception | None = None
        self.topics: frozenset[str] = frozenset()
        self._matches: Callable[[str], object] | None = None
        self._manual = False
        self._active = False
        self._next_auto_commit_ms = 0
        self._why_out = ""
        self.story: deque[tuple[int, str]] = deque(maxlen=200)

    def _init_rebalance(self) -> None:
        self.step = Step.IDLE
        self._purpose = Purpose.REJOIN
        self._pending: Action | None = None
        self._taken: Action | None = None
        self._restart = False
        self._rejoin_needed = False
        self._rejoin_reason = ""
        self._cause = ""
        self._rebalance_began_ms: int | None = None
        self._give_up_by_ms = 0
        self._retry_at_ms = 0
        self._prepare_ask: Ask | None = None
        self._next_assignment: Assignment | None = None
        self._token: int | None = None
        self._leaving: str | None = None
        self._leave_forced: bool | None = None
        self._joined_topics: frozenset[str] | None = None
        self._skip_assignment = False
        self._group: dict[str, Subscription] = {}
        self._group_topics: frozenset[str] = frozenset()
        self._snapshot: MetadataSnapshot | None = None
        self._assigned_from: dict[str, Any] | None = None
        self._watched: frozenset[str] | None = frozenset()

    # -- queries ------------------------------------------------------------------------------------------------------

    @property
    def member_id(self) -> str:
        return self.generation.member_id

    @property
    def subscribed(self) -> bool:
        return bool(self.topics) or self._matches is not None

    @property
    def pending(self) -> Action | None:
        """The action that waits to be taken."""
        return self._pending

    @property
    def taken(self) -> Action | None:
        """The action the shell is working on."""
        return self._taken

    @property
    def rebalancing(self) -> bool:
        return self.state in (MemberState.PREPARING_REBALANCE, MemberState.COMPLETING_REBALANCE)

    @property
    def coordinator_known(self) -> bool:
        return self._finder.known

    @property
    def why_out(self) -> str:
        """Why this member last dropped out of the group, in words."""
        return self._why_out

    def group_metadata(self) -> ConsumerGroupMetadata:
        generation = self.generation
        return ConsumerGroupMetadata(
            self.config.group_id, generation.generation_id, generation.member_id, self.config.group_instance_id
        )

    # -- for all parts ------------------------------------------------------------------------------------------------

    def _transition_to(self, state: MemberState) -> None:
        if state is self.state:
            return
        if state not in TRANSITIONS[self.state]:
            raise IllegalTransition(f"{self.state.name} -> {state.name}")
        self.state = state

    def _go(self, step: Step) -> None:
        """The only writer of `step`."""
        if step not in STEPS[self.step]:
            raise IllegalTransition(f"{self.step.name} -> {step.name}")
        self.step = step

    def _no_action(self) -> bool:
        return self._pending is None and self._taken is None

    def _offer(self, action: Action) -> None:
        self._pending = action
        self._out.add(action)

    def _request_rejoin(self, reason: str, now_ms: int) -> None:
        if not self._rejoin_needed and self.state is not MemberState.UNJOINED:
            self._note(f"joins again: {reason}", now_ms)
        self._rejoin_needed = True
        self._rejoin_reason = reason

    def _watch(self) -> None:
        topics = None if self._matches is not None else self.topics | self._group_topics
        if topics != self._watched:
            self._watched = topics
            self._out.add(WatchTopics(topics))

    def _note(self, text: str, now_ms: int, level: str = "INFO") -> None:
        self.story.append((now_ms, text))
        self._out.report(f"group {self.config.group_id}: {text}", level)
