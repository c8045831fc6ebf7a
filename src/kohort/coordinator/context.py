"""What the handlers share: the groups, the clock's reading, the timers, and the effects of the current turn.

Handlers are functions over a Context; it holds no rules of its own.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from kohort.coordinator import causes, events
from kohort.coordinator.causes import Cause, Who
from kohort.coordinator.classic.group import Group, Member
from kohort.coordinator.classic.states import GroupState
from kohort.coordinator.effects import Append, Effects, GroupRequest
from kohort.coordinator.events import GroupEvent
from kohort.coordinator.records import Change, encode
from kohort.coordinator.timers import TimerQueue
from kohort.protocol.errors import ErrorCode


@dataclass(slots=True)
class CoordinatorConfig:
    """Kafka's settings with Kafka's defaults."""

    offsets_topic_num_partitions: int = 50
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2_147_483_647
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_minutes: int = 10_080
    offsets_retention_check_interval_ms: int = 600_000
    new_member_join_timeout_ms: int = 300_000  # fixed in Kafka

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * 60_000


class Topics(Protocol):
    """What the coordinator wants to know about topics; the broker answers."""

    def by_name(self, name: str) -> tuple[bytes, int] | None:
        """Topic id and partition count, or None where there is no such topic."""

    def by_id(self, topic_id: bytes) -> str | None:
        """The topic's name, or None."""


class Context:
    __slots__ = ("config", "effects", "groups", "new_uuid", "now_ms", "timers", "topics")

    def __init__(self, config: CoordinatorConfig, topics: Topics, new_uuid: Callable[[], str]) -> None:
        self.config = config
        self.topics = topics
        self.new_uuid = new_uuid
        self.groups: dict[str, Group] = {}  # of the partitions that are led and loaded
        self.timers = TimerQueue()
        self.now_ms = 0
        self.effects = Effects()

    def reply(self, request: GroupRequest, response: Any) -> None:
        self.effects.replies.append((request.token, response))

    def append(self, partition: int, changes: list[Change], then: Any) -> None:
        self.effects.appends.append(Append(partition, [encode(change) for change in changes], changes, then))

    def transition(self, group: Group, state: GroupState, cause: Cause) -> None:
        group.transition_to(state, self.now_ms)
        self.state_changed(group, cause)

    def state_changed(self, group: Group, cause: Cause) -> None:
        self.event(
            group,
            events.StateChanged,
            from_state=group.previous_state.value,
            to_state=group.state.value,
            cause=cause,
        )

    def event(self, group: Group, kind: type[GroupEvent], **fields: Any) -> None:
        happened = kind(at_ms=self.now_ms, group_id=group.group_id, generation=group.generation, **fields)
        group.story.add(happened)
        self.effects.events.append(happened)

    def member_event(
        self, group: Group, kind: type[events.MemberEvent], member: Who | Member, cause: Cause | None, **fields: Any
    ) -> None:
        self.event(
            group,
            kind,
            member_id=member.member_id,
            instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            cause=cause,
            **fields,
        )

    def refused(
        self,
        group: Group,
        request: GroupRequest,
        kind: type[events.JoinRefused | events.SyncRefused | events.CommitRefused],
        error: ErrorCode,
        **data: Any,
    ) -> None:
        """A request that gets an error; of one that comes under an id which another has taken over, MemberFenced."""
        who = who_asks(request)
        if error is ErrorCode.FENCED_INSTANCE_ID:
            return self.fenced(group, request, kind.operation)
        self.member_event(group, kind, who, causes.refusal(error, who, group.state.value, **data), error=error.name)

    def fenced(self, group: Group, request: GroupRequest, operation: str) -> None:
        who = who_asks(request)
        holder = group.members.get(group.static_members.get(who.instance_id or "", ""))
        cause = causes.refusal(
            ErrorCode.FENCED_INSTANCE_ID, who, group.state.value, by=None if holder is None else holder.who
        )
        self.member_event(group, events.MemberFenced, who, cause, operation=operation)

    def reset_heartbeat(self, member: Member, timeout_ms: int | None = None) -> None:
        timeout_ms = member.session_timeout_ms if timeout_ms is None else timeout_ms
        self.timers.set(member.heartbeat, self.now_ms + timeout_ms)


def who_asks(request: GroupRequest) -> Who:
    """The member that a request names, and the client that sends it."""
    message = request.message
    return Who(message.member_id, message.group_instance_id, request.client_id, request.client_host)
