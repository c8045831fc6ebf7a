"""What goes into the coordinator core and all that may come out of it: plain values, no behaviour.

The order of effects is a promise that the broker keeps: records are appended, then replayed, and only then do the
replies that depend on them leave (`Coordinator.stored` produces those).
"""

from dataclasses import dataclass
from typing import Any

from kohort.coordinator.events import GroupEvent
from kohort.protocol.errors import ErrorCode


@dataclass(slots=True, eq=False)
class GroupRequest:
    """A request of a client; `token` is the broker's own name for it and comes back in its Reply."""

    token: Any
    message: Any
    version: int
    client_id: str = ""
    client_host: str = ""


class Append:
    """Records for one partition of `__consumer_offsets`: stored together or not at all."""

    __slots__ = ("changes", "partition", "records", "token")

    def __init__(
        self, partition: int, records: list[tuple[bytes, bytes | None]], changes: list[Any], token: Any
    ) -> None:
        self.partition = partition
        self.records = records  # encoded (key, value), value None for a tombstone
        self.changes = changes  # the same records decoded, one for one, so that a live replay need not parse them
        self.token = token  # to be given back to `Coordinator.stored`: what is to happen then, see below

    def __repr__(self) -> str:
        return f"Append(partition={self.partition}, changes={self.changes}, then={self.token})"


Reply = tuple[Any, Any]
"""The token of a request and the response to it."""


class Effects:
    """Collected by the broker over one turn of its loop."""

    __slots__ = ("appends", "events", "replies")

    def __init__(self) -> None:
        self.appends: list[Append] = []
        self.replies: list[Reply] = []
        self.events: list[GroupEvent] = []

    def __bool__(self) -> bool:
        return bool(self.appends or self.replies or self.events)

    def __repr__(self) -> str:
        return f"Effects(appends={self.appends}, replies={self.replies}, events={self.events})"


SHARED: dict[int, Any] = {}
"""By id: responses that are given out again and again and never changed, so that their encoding may be kept."""


def share(response: Any) -> Any:
    SHARED[id(response)] = response
    return response


# What the coordinator does when an append is stored, or has failed: plain values, one class a case, the append's token.


@dataclass(slots=True, eq=False)
class ReplyStored:
    """Answer the request with what is ready, or with the error."""

    request: GroupRequest
    response: Any


@dataclass(slots=True)
class GroupCreated:
    """The empty record of a new group; without it the group and whoever waits in it are gone."""

    group_id: str


@dataclass(slots=True)
class GroupEmptied:
    """The record of a group without members; who has just left with LeaveGroup waits for it."""

    group_id: str
    generation: int
    request: GroupRequest | None = None
    response: Any = None


@dataclass(slots=True)
class SyncStored:
    """The leader's assignment of a generation."""

    group_id: str
    generation: int
    leader_id: str


@dataclass(slots=True)
class StaticMemberStored:
    """A static member that came back under a new member id without a rebalance, and what to restore if that fails."""

    group_id: str
    instance_id: str
    old_member_id: str
    new_member_id: str
    old_leader_id: str | None
    old_protocols: tuple[tuple[str, bytes], ...]
    old_rebalance_timeout_ms: int
    old_session_timeout_ms: int
    version: int


@dataclass(slots=True)
class GroupsDeleted:
    """DeleteGroups: groups of several partitions are several appends, and the last one stored sends the answer."""

    request: GroupRequest
    response: Any
    group_ids: tuple[str, ...]
    outstanding: set[int]  # the partitions of the request that are still on their way, shared by its appends
    partition: int
    events: list[GroupEvent]


@dataclass(slots=True)
class GroupsTombstoned:
    """Groups being removed by expiry or by topic deletion: nobody waits for an answer."""

    group_ids: tuple[str, ...]
    events: list[GroupEvent]


# Kafka tells clients something they can act on instead of what went wrong underneath.
APPEND_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def append_error(error: int) -> ErrorCode:
    code = ErrorCode(error)
    return APPEND_ERRORS.get(code, code)
