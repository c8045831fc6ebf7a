"""What the handlers share: the groups of one shard, the clock's reading, the timers, and what a decision answers.

Handlers are functions over a Context that return the Decision they want stored, or None; it holds no rules of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from kohort.assignors import ServerAssignor, load_server_assignors
from kohort.coordinator import causes, events
from kohort.coordinator.causes import Cause, Who
from kohort.coordinator.effects import Answer, Decision, Effects, Request, size_of
from kohort.coordinator.events import GroupEvent
from kohort.coordinator.group import Group
from kohort.coordinator.records import Change, encode
from kohort.coordinator.timers import Deadline, TimerQueue
from kohort.protocol.errors import ErrorCode


class MigrationPolicy(Enum):
    """Which groups may move between the protocols while they run."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def upgrades(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)

    @property
    def downgrades(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)


class GroupSettings(Protocol):
    """What groups have of their own."""

    def get(self, group_id: str, /) -> Mapping[str, int] | None:
        """All three of consumer.session.timeout.ms and so on; None where nothing is other than the defaults."""


class NoSettings:
    def get(self, group_id: str, /) -> Mapping[str, int] | None:
        return None


@dataclass(slots=True)
class CoordinatorConfig:
    """Kafka's settings with Kafka's defaults, and kohort's own."""

    offsets_topic_num_partitions: int = 50
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2_147_483_647
    max_groups: int = 200_000
    max_pending_members: int = 10_000
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_minutes: int = 10_080
    offsets_retention_check_interval_ms: int = 600_000
    offsets_commit_timeout_ms: int = 5_000
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_assignment_interval_ms: int = 1_000
    consumer_max_size: int = 2_147_483_647
    consumer_regex_refresh_interval_ms: int = 600_000
    assignor_timeout_ms: int = 10_000
    consumer_migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    assignors: Mapping[str, ServerAssignor] = field(default_factory=lambda: load_server_assignors(("uniform", "range")))
    of_groups: GroupSettings = field(default_factory=lambda: NoSettings())
    new_member_join_timeout_ms: int = 300_000  # fixed in Kafka

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * 60_000

    def session_timeout_ms(self, group_id: str) -> int:
        own = self.of_groups.get(group_id)
        return self.consumer_session_timeout_ms if own is None else own["consumer.session.timeout.ms"]

    def heartbeat_interval_ms(self, group_id: str) -> int:
        own = self.of_groups.get(group_id)
        return self.consumer_heartbeat_interval_ms if own is None else own["consumer.heartbeat.interval.ms"]

    def assignment_interval_ms(self, group_id: str) -> int:
        own = self.of_groups.get(group_id)
        return self.consumer_assignment_interval_ms if own is None else own["consumer.assignment.interval.ms"]


class Topics(Protocol):
    """What the coordinator wants to know about topics; the broker answers."""

    def by_name(self, name: str) -> tuple[bytes, int] | None:
        """Topic id and partition count, or None where there is no such topic."""

    def by_id(self, topic_id: bytes) -> str | None:
        """The topic's name, or None."""

    def names(self) -> Iterable[str]:
        """Of all topics."""

    @property
    def rack(self) -> str:
        """Of the replicas; empty where they have none."""


class Session(Protocol):
    """A member, as far as its timer goes."""

    session_timeout_ms: int
    heartbeat: Deadline


class Context:
    __slots__ = (
        "answers",
        "config",
        "count_groups",
        "effects",
        "groups",
        "max_append_bytes",
        "new_uuid",
        "now_ms",
        "partition",
        "safe_commits",
        "timers",
        "topics",
    )

    def __init__(
        self,
        partition: int,
        config: CoordinatorConfig,
        topics: Topics,
        new_uuid: Callable[[], str],
        timers: TimerQueue,
        effects: Effects,
    ) -> None:
        self.partition = partition
        self.config = config
        self.topics = topics
        self.new_uuid = new_uuid
        self.timers = timers
        self.effects = effects
        self.groups: dict[str, Group] = {}
        self.count_groups: Callable[[], int] = self.groups.__len__  # of all shards, where there are several
        self.answers: list[Answer] = []  # of the decision under way; see Runtime.decided
        self.now_ms = 0
        self.max_append_bytes = self.safe_commits = 0  # so many commits fit for sure; known when it is loaded

    def turns_away(self) -> bool:
        """Whether there may be no further group; whoever is sent away for that is counted."""
        is_full = self.count_groups() >= self.config.max_groups
        self.effects.turned_away += is_full
        return is_full

    def apply(self, changes: Sequence[Change], offset: int) -> None:
        """The only writer of hard state: see replay.py."""
        raise NotImplementedError

    def reply(self, request: Request, response: Any) -> None:
        """Leaves when everything that it rests on is stored."""
        self.answers.append((request, response))

    def tell(self, request: Request, response: Any) -> None:
        """Leaves now: sessions, and who waits in a rebalance, are no business of the log."""
        self.effects.replies.append((request, response))

    def decide(self, changes: Sequence[Change], *, divisible: bool = False) -> Decision:
        """They take effect at once."""
        return Decision([encode(change) for change in changes], changes, divisible=divisible)

    def decide_when_stored(self, change: Change, then: Any) -> Decision:
        """It takes effect when it is stored: `then` says how."""
        return Decision([encode(change)], (), then)

    def fits(self, decision: Decision) -> bool:
        """Whether the log can take the decision: it must not be applied where that is known to be impossible."""
        return size_of(decision.records) <= self.max_append_bytes

    def event(self, group: Group, kind: type[GroupEvent], **fields: Any) -> None:
        happened = kind(at_ms=self.now_ms, group_id=group.group_id, generation=group.generation, **fields)
        group.story.add(happened)
        self.effects.events.append(happened)

    def member_event(
        self, group: Group, kind: type[events.MemberEvent], who: Who, cause: Cause | None, **fields: Any
    ) -> None:
        member_id, instance_id, client_id, client_host = who
        happened = kind(
            at_ms=self.now_ms,
            group_id=group.group_id,
            generation=group.generation,
            member_id=member_id,
            instance_id=instance_id,
            client_id=client_id,
            client_host=client_host,
            cause=cause,
            **fields,
        )
        group.story.add(happened)
        self.effects.events.append(happened)

    def refused(
        self,
        group: Group,
        request: Request,
        kind: type[events.JoinRefused | events.SyncRefused | events.CommitRefused],
        error: ErrorCode,
        **data: Any,
    ) -> None:
        """A request that gets an error; of one that comes under an id which another has taken over, MemberFenced."""
        who = who_asks(request)
        if error is ErrorCode.FENCED_INSTANCE_ID:
            return self.fenced(group, request, kind.operation)
        self.member_event(group, kind, who, causes.refusal(error, who, group.state_name, **data), error=error.name)

    def fenced(self, group: Group, request: Request, operation: str) -> None:
        who = who_asks(request)
        holder = group.holder(who.instance_id or "")
        cause = causes.refusal(
            ErrorCode.FENCED_INSTANCE_ID, who, group.state_name, by=None if holder is None else holder.who
        )
        self.member_event(group, events.MemberFenced, who, cause, operation=operation)

    def reset_heartbeat(self, member: Session, timeout_ms: int | None = None) -> None:
        timeout_ms = member.session_timeout_ms if timeout_ms is None else timeout_ms
        self.timers.set(member.heartbeat, self.now_ms + timeout_ms)


def who_asks(request: Request) -> Who:
    """The member that a request names, and the client that sends it."""
    message = request.message
    return Who(message.member_id, message.group_instance_id, request.client_id, request.client_host)
