"""What happened to a group, when and why: typed, JSON-able, kept in a bounded ring per group.

`Story` is the ring, `Coordinator.story(group_id)` returns it; Effects carry each new event to the broker, which logs
it, counts it and may produce it to `__kohort_group_events`; event_json.py reads it back. Nothing here decides anything.
"""

from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, fields
from json import JSONEncoder
from json.encoder import encode_basestring_ascii
from operator import attrgetter
from typing import Any, ClassVar, TypeVar, dataclass_transform

from kohort.coordinator.causes import Cause, Who

EVENTS_TOPIC = "__kohort_group_events"
STORY_LENGTH = 64


E = TypeVar("E")


@dataclass_transform(kw_only_default=True, frozen_default=True)
def event(kind: type[E]) -> type[E]:
    """A value that nobody changes: the type checker sees to that, as eight of them are made for every new group and
    a dataclass that is frozen at run time takes twice as long to make. What they all do alike is in the first of them,
    not made anew for each, and how one is made is compiled when the first of its kind happens: every broker pays for
    that at its start."""
    made: Any = dataclass(init=False, slots=True, kw_only=True, eq=False, repr=False, match_args=False)(kind)

    def first(self: E, **given: Any) -> None:
        made.__init__ = _init(made)
        made.__init__(self, **given)

    made.__init__ = first
    return made  # type: ignore[no-any-return]


def _init(kind: Any) -> Any:
    scope = {field.name: field.default for field in fields(kind) if field.default is not MISSING}
    given = (f"{field.name}={field.name}" if field.name in scope else field.name for field in fields(kind))
    body = "; ".join(f"self.{field.name} = {field.name}" for field in fields(kind))
    exec(f"def __init__(self, *, {', '.join(given)}): {body}", scope)
    return scope["__init__"]


@event
class GroupEvent:
    """Common to all: the time, the group and the generation it was in."""

    at_ms: int
    group_id: str
    generation: int
    cause: Cause | None = None

    @property
    def type(self) -> str:
        return type(self).__name__

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, field.name) == getattr(other, field.name) for field in fields(self))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{self.type}({', '.join(f'{field.name}={getattr(self, field.name)!r}' for field in fields(self))})"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; `type` first, empty fields left out."""
        plain: dict[str, Any] = {"type": self.type}
        for name in _names(type(self)):
            value = getattr(self, name)
            if value is None or value == "":
                continue
            if type(value) is Cause:
                value = self._plain_cause(value)
            plain[name] = list(value) if type(value) is tuple else value
        return plain

    def to_json(self) -> str:
        """`to_dict` as JSON without blanks, in one go: a large group makes one of them for each member at a time."""
        labels, values_of = _LABELS.get(type(self)) or _labels(type(self))
        parts = ['{"type":"', self.type, '"']
        for label, value in zip(labels, values_of(self), strict=True):
            if value is None or value == "":
                continue
            if type(value) is str:
                parts += (label, encode_basestring_ascii(value))
            elif type(value) is int:
                parts += (label, str(value))
            else:
                plain = self._plain_cause(value) if type(value) is Cause else value
                parts += (label, _to_json(plain))
        parts.append("}")
        return "".join(parts)

    def _plain_cause(self, cause: Cause) -> dict[str, Any]:
        return cause.to_dict()


_NAMES: dict[type, tuple[str, ...]] = {}


def _names(kind: type[GroupEvent]) -> tuple[str, ...]:
    found = _NAMES.get(kind)
    if found is None:
        found = _NAMES[kind] = tuple(field.name for field in fields(kind))
    return found


_to_json = JSONEncoder(separators=(",", ":")).encode
_LABELS: dict[type, tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]] = {}


def _labels(kind: type[GroupEvent]) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]:
    names = _names(kind)
    made = _LABELS[kind] = tuple(f',"{name}":' for name in names), attrgetter(*names)
    return made


@event
class StateChanged(GroupEvent):
    """One of the legal moves between the states of a group."""

    from_state: str
    to_state: str


@event
class RebalanceStarted(GroupEvent):
    """Members are to join again, within `rebalance_timeout_ms`; an empty group waits `initial_delay_ms` first."""

    members: int
    rebalance_timeout_ms: int
    initial_delay_ms: int | None = None


@event
class GenerationStarted(GroupEvent):
    """The join phase is over: everybody who is in has been told the generation, the protocol and the leader."""

    protocol: str
    leader_id: str
    members: int
    duration_ms: int


@event
class RebalanceCompleted(GroupEvent):
    """The assignment is stored and given out; `duration_ms` counts from RebalanceStarted."""

    protocol: str
    leader_id: str
    members: int
    duration_ms: int


@event
class RebalanceFailed(GroupEvent):
    """The assignment could not be stored; the group rebalances again."""

    error: str
    duration_ms: int


@event
class EpochStarted(GroupEvent):
    """KIP-848: members or topics have changed, a new target assignment is due; `generation` is the epoch."""

    members: int


@event
class TargetAssigned(GroupEvent):
    """KIP-848: the assignor has made the target of this epoch; members go to it one by one."""

    assignor: str
    members: int


@event
class TargetFailed(GroupEvent):
    """KIP-848: the assignor has failed, or its answer was none; the last target stands."""

    assignor: str


@event
class GroupConverted(GroupEvent):
    """The group has moved to the other protocol, with its members and its commits."""

    from_type: str
    to_type: str
    members: int


@event
class MemberEvent(GroupEvent):
    """About one member."""

    member_id: str
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""

    @property
    def who(self) -> Who:
        return Who(self.member_id, self.instance_id, self.client_id, self.client_host)

    def _plain_cause(self, cause: Cause) -> dict[str, Any]:
        """The event says already whom it is about."""
        plain = cause.to_dict()
        if cause.members == (self.who,):
            del plain["members"]
        return plain


@event
class MemberIdAssigned(MemberEvent):
    """KIP-394: the client must come back with this id before it counts."""


@event
class MemberJoined(MemberEvent):
    """A new member waits in the group."""


@event
class MemberRejoined(MemberEvent):
    """A known member waits in the group again."""


@event
class MemberReplaced(MemberEvent):
    """KIP-345: a static member came back and got a new member id."""

    replaced_member_id: str


@event
class MemberFenced(MemberEvent):
    """A request under an id that another member has taken over."""

    operation: str


@event
class MemberLeft(MemberEvent):
    """It asked to leave, or somebody asked on its behalf."""


@event
class MemberEvicted(MemberEvent):
    """It was silent for too long, in its session, its join or its sync."""


@event
class LeaderElected(MemberEvent):
    """The leader is gone or did not come back; this member leads now."""


@event
class JoinRefused(MemberEvent):
    """A JoinGroup was answered with an error."""

    operation: ClassVar[str] = "JoinGroup"
    error: str


@event
class SyncRefused(MemberEvent):
    """A SyncGroup was answered with an error, other than that a rebalance is under way."""

    operation: ClassVar[str] = "SyncGroup"
    error: str


@event
class HeartbeatRefused(MemberEvent):
    """KIP-848: a ConsumerGroupHeartbeat was answered with an error."""

    operation: ClassVar[str] = "ConsumerGroupHeartbeat"
    error: str


@event
class MemberReconciled(MemberEvent):
    """KIP-848: the member has moved on towards its target, or waits for what others hold."""

    member_epoch: int
    state: str
    assigned: int
    pending: int


@event
class CommitRefused(MemberEvent):
    """An OffsetCommit was answered with an error."""

    operation: ClassVar[str] = "OffsetCommit"
    error: str


@event
class GroupLoaded(GroupEvent):
    """Read back from the log."""

    state: str
    members: int
    offsets: int


@event
class GroupUnloaded(GroupEvent):
    """Its partition is led elsewhere now."""


@event
class GroupDeleted(GroupEvent):
    """Tombstoned in the log."""


@event
class OffsetsRemoved(GroupEvent):
    """Deleted, expired, or gone with their topic."""

    topics: tuple[str, ...]
    partitions: int


class Story:
    """The last events of one group."""

    __slots__ = ("_events",)

    def __init__(self) -> None:
        self._events: list[GroupEvent] = []  # a list, as a deque costs 600 bytes even when it is empty

    def add(self, event: GroupEvent) -> None:
        events = self._events
        events.append(event)
        if len(events) >= 2 * STORY_LENGTH:
            del events[:-STORY_LENGTH]

    def __iter__(self) -> Iterator[GroupEvent]:
        return iter(self._events[-STORY_LENGTH:])

    def __len__(self) -> int:
        return min(len(self._events), STORY_LENGTH)
