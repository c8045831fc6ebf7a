"""What goes into a coordinator and all that may come out of it: plain values, no behaviour.

The order of effects is a promise that runtime.py keeps: a decision takes effect at once, its records are appended, and
an answer leaves when every record that it rests on is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kohort.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from kohort.coordinator.events import GroupEvent
    from kohort.coordinator.shard import Shard

Records = list[tuple[bytes, bytes | None]]
"""Encoded keys and values; None for a tombstone."""

RECORD_OVERHEAD, BATCH_OVERHEAD = 21, 61


class Request:
    """A request of a client; `call` is the broker's own name for it."""

    __slots__ = ("call", "client_host", "client_id", "message", "version")

    def __init__(self, call: Any, message: Any, version: int, client_id: str = "", client_host: str = "") -> None:
        self.call = call
        self.message = message
        self.version = version
        self.client_id = client_id
        self.client_host = client_host

    def __repr__(self) -> str:
        return f"Request({self.call!r}, {self.message!r}, v{self.version})"


Producer = tuple[int, int]
"""A producer id and its epoch."""

Answer = tuple[Request, Any]
"""A request and the response to it."""


class Decision:
    """Records of one shard, stored together or not at all unless they are `divisible`.

    `changes` are the same records decoded: they take effect at once. Where they are to take effect only when they are
    stored, there are none, and `then` says what is to happen: a plain value that the state is given back. A decision
    that is made in steps, each seeing those before it, is `in_effect` when it comes.

    Where there is a `producer` they are part of its transaction, or with `control` the marker that ends it.
    """

    __slots__ = ("changes", "control", "divisible", "in_effect", "producer", "records", "then")

    def __init__(
        self,
        records: Records,
        changes: Sequence[Any] = (),
        then: Any = None,
        *,
        divisible: bool = False,
        in_effect: bool = False,
        producer: Producer | None = None,
        control: bool = False,
    ) -> None:
        self.records = records
        self.changes = changes
        self.then = then
        self.divisible = divisible
        self.in_effect = in_effect
        self.producer = producer
        self.control = control

    def __repr__(self) -> str:
        return f"Decision({len(self.records)} records, changes={list(self.changes)}, then={self.then})"


class Effects:
    """Collected over one turn; whoever carries them out empties the lists."""

    __slots__ = ("crashes", "events", "loads", "replies", "turned_away", "work")

    def __init__(self) -> None:
        self.replies: list[Answer] = []
        self.events: list[GroupEvent] = []
        self.turned_away = 0  # requests for a group that there is no room for
        self.loads: list[Shard[Any]] = []  # to be read from the log, from its start
        self.crashes: list[Exception] = []  # of deadlines; their shards are loaded again
        self.work: list[Any] = []  # to be computed elsewhere; see Coordinator.computed

    def __bool__(self) -> bool:
        return bool(self.replies or self.events or self.loads or self.work)

    def __repr__(self) -> str:
        return f"Effects(replies={self.replies}, events={self.events}, loads={self.loads})"


class SharedResponse:
    """A response that is given out again and again and never changed: it is encoded once per version."""

    __slots__ = ("_bodies", "message")

    def __init__(self, message: Any) -> None:
        self.message = message
        self._bodies: dict[int, bytes] = {}

    def body(self, version: int) -> bytes:
        body = self._bodies.get(version)
        if body is None:
            body = self._bodies[version] = self.message.encode(version)
        return body

    def __repr__(self) -> str:
        return f"SharedResponse({self.message!r})"


def plain(response: Any) -> Any:
    """The message of a response, shared or not."""
    return response.message if type(response) is SharedResponse else response


def size_of(records: Records) -> int:
    """Not less than the size of a batch of these records."""
    return BATCH_OVERHEAD + sum(len(key) + len(value or b"") + RECORD_OVERHEAD for key, value in records)


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
