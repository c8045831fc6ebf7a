"""A member of a group as the core, its drivers and the simulator know it, whatever the protocol of the group.

Its fields, its queries, the actions of the application, and the questions for offsets. What an event means for the
membership is up to the member of the classic protocol (`member`) and that of the consumer protocol (`modern.member`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any, TypeVar

from kohort.assignors import ConsumerGroupMetadata
from kohort.client.commits import NO_GENERATION, Ask, Commits, Kind
from kohort.client.effects import Action, Assign, MemberEffect, MemberOutbox, MetadataSnapshot, WatchTopics
from kohort.client.finding import CoordinatorFinder
from kohort.client.states import MemberConfig
from kohort.client.timing import Backoff, Heartbeat
from kohort.client.types import OffsetAndMetadata, TopicPartition
from kohort.protocol.errors import KafkaError


class IllegalTransition(RuntimeError):
    """A bug in the member: a move that the table does not allow."""


_E = TypeVar("_E", bound=Enum)


def moved(now: _E, to: _E, moves: Mapping[_E, frozenset[_E]]) -> _E:
    """Where a member is after a move that its table allows."""
    if to not in moves[now]:
        raise IllegalTransition(f"{now.name} -> {to.name}")
    return to


class GroupMember(ABC):
    """Membership of one consumer in one group. Every event returns the effects to carry out, in order."""

    def __init__(self, config: MemberConfig, uniform: Callable[[], float]) -> None:
        self.config = config
        self._out = MemberOutbox()

        def backoff() -> Backoff:
            return Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, uniform)

        self._finder = CoordinatorFinder(config.group_id, config.request_timeout_ms, backoff(), self._out)
        self._commits = Commits(config.group_id, config.group_instance_id, config.request_timeout_ms, self._out)
        self._heartbeat = Heartbeat(
            config.heartbeat_interval_ms, config.session_timeout_ms, config.max_poll_interval_ms, backoff()
        )
        self._init_membership()
        self._init_hand_over()

    def _init_membership(self) -> None:
        self.generation = NO_GENERATION
        """The member's epoch, in a group of the consumer protocol."""
        self.owned: frozenset[TopicPartition] = frozenset()
        self.fatal: Exception | None = None
        self.topics: frozenset[str] = frozenset()
        self._matches: Callable[[str], object] | None = None
        self._manual = False
        self._active = False
        self._next_auto_commit_ms = 0
        self._why_out = ""
        self.story: deque[tuple[int, str]] = deque(maxlen=200)
        self._snapshot: MetadataSnapshot | None = None
        self._watched = WatchTopics(frozenset())

    def _init_hand_over(self) -> None:
        self._pending: Action | None = None
        self._taken: Action | None = None
        self._restart = False
        self._give_up_by_ms = 0
        self._retry_at_ms = 0
        self._prepare_ask: Ask | None = None
        self._token: int | None = None
        self._leaving: str | None = None
        self._leave_forced: bool | None = None

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
    @abstractmethod
    def settled(self) -> bool:
        """In the group with its assignment taken over, and nothing known that would change it."""

    @property
    @abstractmethod
    def in_group(self) -> bool:
        """The group counts on it, whether or not something is about to change."""

    @property
    @abstractmethod
    def standing(self) -> str:
        """Where it is, in words."""

    @property
    @abstractmethod
    def held_back(self) -> frozenset[TopicPartition]:
        """Partitions about to be given up, their positions perhaps being committed: hand out no more of them."""

    @property
    def holds_back(self) -> bool:
        """For shells that hold back all or nothing."""
        return bool(self.held_back)

    @property
    def heartbeat_interval_ms(self) -> int:
        return self._heartbeat.interval_ms

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

    # -- events: the application --------------------------------------------------------------------------------------

    def assign_manually(self, now_ms: int) -> list[MemberEffect]:
        """The application names its partitions itself: commits carry no generation, nothing is joined."""
        self._manual = True
        self._next_auto_commit_ms = now_ms + self.config.auto_commit_interval_ms
        return self._advance(now_ms)

    def poll(self, now_ms: int) -> list[MemberEffect]:
        """The application is alive and done with what it was given: join if needed, renew the poll interval."""
        self._heartbeat.last_poll_ms = now_ms
        self._active = self._leaving is None and self.fatal is None
        return self._advance(now_ms)

    def take(self, now_ms: int) -> Action | None:
        """The next action for the application, now the shell's to carry out and answer."""
        action, self._pending = self._pending, None
        if action is not None:
            assert self._taken is None, "one action at a time"
            self._taken = action
            if isinstance(action, Assign):
                self.owned = action.partitions
        return action

    def commit(
        self, commit_id: int, offsets: Mapping[TopicPartition, OffsetAndMetadata], now_ms: int
    ) -> list[MemberEffect]:
        """Answered by `CommitDone(commit_id, ...)`; waits while the coordinator is not known."""
        ask = Ask(Kind.COMMIT, commit_id, dict(offsets))
        if offsets:
            self._commits.submit(ask)
        else:
            self._commits.finish(ask, None)
        return self._advance(now_ms)

    def fetch_offsets(self, fetch_id: int, partitions: Iterable[TopicPartition], now_ms: int) -> list[MemberEffect]:
        """Answered by `OffsetsFetched(fetch_id, ...)`; waits while the coordinator is not known."""
        self._commits.submit(Ask(Kind.FETCH, fetch_id, {}, frozenset(partitions)))
        return self._advance(now_ms)

    def forget(self, ask_id: int) -> bool:
        """Whoever asked has given up waiting: do not send it if it was not sent yet. Whether it was."""
        return not self._commits.take_back(ask_id)

    @abstractmethod
    def subscribe(self, topics: Iterable[str], now_ms: int) -> list[MemberEffect]: ...

    @abstractmethod
    def subscribe_pattern(self, matches: Callable[[str], object], now_ms: int) -> list[MemberEffect]:
        """Topics with a name that matches, those that appear later included."""

    @abstractmethod
    def subscribe_regex(self, regex: str, now_ms: int) -> list[MemberEffect]:
        """Topics whose name matches an expression that the broker evaluates, where the protocol has that."""

    @abstractmethod
    def request_rejoin(self, reason: str, now_ms: int) -> list[MemberEffect]:
        """Rebalance although nothing changed (KIP-568), where the protocol has that."""

    @abstractmethod
    def leave(self, reason: str, now_ms: int, send: bool | None = None) -> list[MemberEffect]:
        """Give everything up and leave; ends with `Left`. `send` overrides whether the group is told (KIP-1092)."""

    @abstractmethod
    def auto_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], now_ms: int) -> list[MemberEffect]:
        """The answer to AutoCommit."""

    @abstractmethod
    def revoked(self, now_ms: int) -> list[MemberEffect]:
        """The answer to Revoke and to Lose."""

    @abstractmethod
    def assigned(self, now_ms: int) -> list[MemberEffect]:
        """The answer to Assign."""

    # -- events: the world --------------------------------------------------------------------------------------------

    @abstractmethod
    def metadata_updated(self, snapshot: MetadataSnapshot, now_ms: int) -> list[MemberEffect]: ...

    @abstractmethod
    def received(self, token: int, response: Any, now_ms: int) -> list[MemberEffect]: ...

    @abstractmethod
    def send_failed(self, token: int, reason: str, now_ms: int, error: KafkaError | None = None) -> list[MemberEffect]:
        """No answer: the connection broke, the request timed out, or (`error`) the broker cannot take the request."""

    @abstractmethod
    def coordinator_disconnected(self, reason: str, now_ms: int) -> list[MemberEffect]: ...

    @abstractmethod
    def on_time(self, now_ms: int) -> list[MemberEffect]: ...

    @abstractmethod
    def next_deadline(self) -> int | None:
        """When `on_time` has something to do next."""

    # -- for all parts ------------------------------------------------------------------------------------------------

    @abstractmethod
    def _advance(self, now_ms: int) -> list[MemberEffect]:
        """Do whatever can be done now."""

    def _no_action(self) -> bool:
        return self._pending is None and self._taken is None

    def _offer(self, action: Action) -> None:
        self._pending = action
        self._out.add(action)

    def _interest(self) -> WatchTopics:
        """Whose metadata is to be kept fresh."""
        return WatchTopics(None if self._matches is not None else self.topics)

    def _watch(self) -> None:
        interest = self._interest()
        if interest != self._watched:
            self._watched = interest
            self._out.add(interest)

    def _match(self, snapshot: MetadataSnapshot) -> bool:
        """The topics of a pattern are those of the snapshot that match; whether the snapshot can say which."""
        matches = self._matches
        if matches is None:
            return True
        if snapshot.covers is not None:
            return False
        self.topics = frozenset(
            name
            for name, topic in snapshot.topics.items()
            if matches(name) and not (topic.internal and self.config.exclude_internal_topics)
        )
        return True

    def _note(self, text: str, now_ms: int, level: str = "INFO") -> None:
        self.story.append((now_ms, text))
        self._out.report(f"group {self.config.group_id}: {text}", level)
