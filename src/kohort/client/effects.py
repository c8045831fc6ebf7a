"""What a client's core asks of its driver, and what the member asks of the core: plain values, never closures.

A driver carries out the core's effects in their order and has no policy of its own. The member's actions
(`AutoCommit`, `Revoke`, `Lose`, `Assign`) wait until the core takes them with `member.take()`, when the application
has finished what it was given; each is answered (`auto_commit`, `revoked`, `assigned`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kohort.client.types import ConsumerRecord, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kohort.client.chunks import Chunk

# -- of the core: the network ------------------------------------------------------------------------------------------


class Role(Enum):
    """What a connection is for. A broker answers a connection's requests one after another, so roles do not share."""

    DATA = "records"
    COORDINATOR = "the group, so that a fetch never delays a heartbeat"
    COORDINATOR_ASIDE = "the group, while a JoinGroup is parked on the other"
    LOOKUP = "questions that must not wait behind a fetch"
    BOOTSTRAP = "a server of bootstrap.servers, its node id is not known"


@dataclass(frozen=True, slots=True)
class Connect:
    """Open a connection and have it ready; answer with Connected or Disconnected."""

    link_id: int
    host: str
    port: int
    role: Role


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Close it, or stop opening it; say no more of it."""

    link_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class Transmit:
    """Send a request; answer with Answered, or Refused where that cannot be done.

    Where the broker does not answer (`answered` is false), Answered without a response says that it was sent.
    """

    link_id: int
    token: int
    request: Any
    min_version: int
    max_version: int | None
    answered: bool


# -- of the core: the application --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Done:
    """The end of something that was asked for."""

    ask_id: int
    value: Any
    error: Exception | None


@dataclass(frozen=True, slots=True)
class Records:
    """Handed out: positions have moved past these."""

    records: list[ConsumerRecord]


@dataclass(frozen=True, slots=True)
class Chunks:
    """Handed out undecoded."""

    chunks: list[Chunk]


@dataclass(frozen=True, slots=True)
class PositionsFound:
    """The group's commits of newly assigned partitions; None where auto.offset.reset decides."""

    committed: Mapping[TopicPartition, OffsetAndMetadata | None]


@dataclass(frozen=True, slots=True)
class Ready:
    """There is something for the poll that waits: poll again."""


@dataclass(frozen=True, slots=True)
class MetadataChanged:
    """The core's metadata is another."""


# -- of the member: to the core, or passed on --------------------------------------------------------------------------


class Destination(Enum):
    COORDINATOR = "coordinator"
    COORDINATOR_ASIDE = "coordinator, on another connection"
    """A JoinGroup parked at the coordinator blocks the connection it came on."""
    LEAST_LOADED = "least loaded node"


@dataclass(frozen=True, slots=True)
class Send:
    """Answer with `member.received(token, response, now_ms)` or `member.send_failed(token, reason, now_ms)`."""

    token: int
    request: Any
    to: Destination
    timeout_ms: int
    min_version: int = 0
    max_version: int | None = None


@dataclass(frozen=True, slots=True)
class UseCoordinator:
    """Found: connect to it on a connection of its own, so that a fetch never delays a heartbeat."""

    node_id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class DropCoordinator:
    """Close its connection; answers still on their way are of no interest."""

    reason: str


@dataclass(frozen=True, slots=True)
class WatchTopics:
    """Keep metadata of these topics fresh; None means all topics (a pattern subscription). `ids` name more of them."""

    topics: frozenset[str] | None
    ids: frozenset[bytes] = frozenset()


@dataclass(frozen=True, slots=True)
class RefreshMetadata:
    """Fetch metadata of the watched topics now; answer with `member.metadata_updated`."""

    reason: str


@dataclass(frozen=True, slots=True)
class AutoCommit:
    """Action: answer with `member.auto_commit(offsets, now_ms)`, the positions the application has finished with."""

    reason: str


@dataclass(frozen=True, slots=True)
class Revoke:
    """Action: finish with these partitions (commit if wanted), then `member.revoked(now_ms)`.

    After `deadline_ms` the coordinator will have gone on without this member.
    """

    partitions: frozenset[TopicPartition]
    reason: str
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class Lose:
    """Action: these partitions may already belong to others; commits would fail. Then `member.revoked(now_ms)`."""

    partitions: frozenset[TopicPartition]
    reason: str


@dataclass(frozen=True, slots=True)
class Assign:
    """Action: `partitions` is the whole assignment, `added` what is new in it. Then `member.assigned(now_ms)`."""

    partitions: frozenset[TopicPartition]
    added: frozenset[TopicPartition]
    generation_id: int


Action = AutoCommit | Revoke | Lose | Assign


@dataclass(frozen=True, slots=True)
class CommitDone:
    commit_id: int
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    error: Exception | None


@dataclass(frozen=True, slots=True)
class OffsetsFetched:
    """`offsets` holds None for a partition without a commit."""

    fetch_id: int
    offsets: Mapping[TopicPartition, OffsetAndMetadata | None] | None
    error: Exception | None


@dataclass(frozen=True, slots=True)
class Left:
    """The member is out of the group; nothing more will be sent until it is told to join again."""

    reason: str


@dataclass(frozen=True, slots=True)
class Fail:
    """To be raised at the application's next call. A fatal error ends the membership."""

    error: Exception
    fatal: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """A line for the log; `level` is a name of the logging module's."""

    level: str
    text: str


class Phase(Enum):
    BEGINS = "begins"
    ENDS = "ends"
    FAILS = "fails"


@dataclass(frozen=True, slots=True)
class Rebalance:
    """How far a member of the consumer protocol is with its part of one. For the metrics."""

    phase: Phase


MemberEffect = (
    Send
    | UseCoordinator
    | DropCoordinator
    | WatchTopics
    | RefreshMetadata
    | Action
    | CommitDone
    | OffsetsFetched
    | Left
    | Fail
    | Report
    | Rebalance
)
Effect = (
    Connect
    | Disconnect
    | Transmit
    | Done
    | Records
    | Chunks
    | PositionsFound
    | Ready
    | MetadataChanged
    | Revoke
    | Lose
    | Assign
    | Left
    | Fail
    | Report
)


@dataclass(frozen=True, slots=True)
class TopicSnapshot:
    """What an assignment depends on: the number of partitions and the racks of their replicas."""

    partition_count: int
    racks: tuple[frozenset[str], ...] = ()
    internal: bool = False


@dataclass(frozen=True, slots=True)
class MetadataSnapshot:
    """Existing topics as of one metadata answer. `covers` is what was asked for; None means all topics."""

    topics: Mapping[str, TopicSnapshot]
    covers: frozenset[str] | None = None
    topic_ids: Mapping[str, bytes] = field(default_factory=dict)


T = TypeVar("T")


class Outbox(Generic[T]):
    """Collects effects while an event is handled."""

    __slots__ = ("_effects",)

    def __init__(self) -> None:
        self._effects: list[T | Report] = []

    def add(self, effect: T) -> None:
        self._effects.append(effect)

    def report(self, text: str, level: str = "INFO") -> None:
        self._effects.append(Report(level, text))

    def drain(self) -> list[T | Report]:
        effects, self._effects = self._effects, []
        return effects


class MemberOutbox(Outbox[MemberEffect]):
    """Numbers the requests too."""

    __slots__ = ("_token",)

    def __init__(self) -> None:
        super().__init__()
        self._token = 0

    def send(
        self,
        request: Any,
        to: Destination,
        timeout_ms: int,
        min_version: int = 0,
        max_version: int | None = None,
    ) -> int:
        self._token += 1
        self.add(Send(self._token, request, to, timeout_ms, min_version, max_version))
        return self._token
