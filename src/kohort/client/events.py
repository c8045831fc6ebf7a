"""What can happen to a client's core: plain values, so that a run can be recorded and replayed.

`core.handle(event, now_ms)` gives the effects (see `effects`). Time is an argument, chance is given once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kohort.client.links import Place
from kohort.client.types import OffsetAndMetadata, TopicPartition
from kohort.protocol.errors import KafkaError

# -- the network -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Connected:
    """The answer to Connect: versions are agreed on, authentication is over."""

    link_id: int


@dataclass(frozen=True, slots=True)
class Disconnected:
    """A connection broke, or could not be made."""

    link_id: int
    error: KafkaError


@dataclass(frozen=True, slots=True)
class Answered:
    token: int
    response: Any


@dataclass(frozen=True, slots=True)
class Refused:
    """The request of a Transmit cannot be sent: the broker does not speak it, or it cannot be encoded."""

    token: int
    error: Exception


@dataclass(frozen=True, slots=True)
class Tick:
    """The time of `core.next_deadline()` has come."""


# -- questions to the cluster ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Request:
    """One request, not repeated. `to` is a node by its id, a place, or None for the least loaded node."""

    ask_id: int
    request: Any
    timeout_ms: int
    to: int | Place | None = None
    lookup: bool = False
    min_version: int = 0
    max_version: int | None = None
    answered: bool = True


@dataclass(frozen=True, slots=True)
class Refresh:
    """Metadata that is asked for after this, of the watched topics and of these."""

    ask_id: int
    timeout_ms: int
    topics: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class RefreshSoon:
    """Metadata seems to be stale; nobody waits."""


@dataclass(frozen=True, slots=True)
class Watch:
    topics: frozenset[str] | None


# -- the application ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Subscribe:
    """To topics by name, or to those whose whole name matches, or where a match is found anywhere in the name.

    `regex` is an expression that the broker evaluates.
    """

    topics: frozenset[str]
    pattern: re.Pattern[str] | None = None
    anywhere: bool = False
    regex: str = ""


@dataclass(frozen=True, slots=True)
class AssignManually:
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Poll:
    """The application is done with what it was given and wants more: records, or chunks of about so many bytes.

    `unread` are positions of records that it was given and has not looked at. `wall_ms` is the time of day.
    """

    max_records: int = 0
    max_bytes: int = 0
    wall_ms: int = 0
    unread: Mapping[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StopPoll:
    """It waits no longer and goes on with other things."""


@dataclass(frozen=True, slots=True)
class ActionDone:
    """The listener has returned: what Revoke, Lose or Assign asked for is done."""


@dataclass(frozen=True, slots=True)
class Leave:
    """Give everything up; ends with Left. `send` overrides whether LeaveGroup is sent."""

    reason: str
    send: bool | None = None
    unread: Mapping[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Unassign:
    """Nothing is read any more (after Left, or instead of it where there is no group)."""


@dataclass(frozen=True, slots=True)
class Rejoin:
    reason: str


@dataclass(frozen=True, slots=True)
class Seek:
    partition: TopicPartition
    target: OffsetAndMetadata


@dataclass(frozen=True, slots=True)
class SeekTo:
    """To `earliest` or `latest`."""

    partitions: frozenset[TopicPartition]
    where: str


@dataclass(frozen=True, slots=True)
class Pause:
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Resume:
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Commit:
    """Answered by Done within `timeout_ms`; `repeated` where the failure is one that passes."""

    ask_id: int
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    timeout_ms: int
    repeated: bool = True


@dataclass(frozen=True, slots=True)
class FetchCommitted:
    """The group's commits: Done with a mapping that has None where there is no commit."""

    ask_id: int
    partitions: frozenset[TopicPartition]
    timeout_ms: int
    repeated: bool = True


@dataclass(frozen=True, slots=True)
class FindPosition:
    """Done with the offset of the next record, once it is known."""

    ask_id: int
    partition: TopicPartition
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class Forget:
    """Whoever asked has given up waiting."""

    ask_id: int


Event = (
    Connected
    | Disconnected
    | Answered
    | Refused
    | Tick
    | Request
    | Refresh
    | RefreshSoon
    | Watch
    | Subscribe
    | AssignManually
    | Poll
    | StopPoll
    | ActionDone
    | Leave
    | Unassign
    | Rejoin
    | Seek
    | SeekTo
    | Pause
    | Resume
    | Commit
    | FetchCommitted
    | FindPosition
    | Forget
)
