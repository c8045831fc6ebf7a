"""One client connection as the core sees it: requests that wait for their answer, answers that wait to be sent.

Answers leave in the order of their requests (Kafka's promise), however long one of them is parked. No sockets here.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kohort.broker.authentication import Guard
    from kohort.broker.purgatory import Waiter
    from kohort.broker.table import Entry
    from kohort.broker.throttling import Mutations

Part = bytes | bytearray | memoryview


_RESPONSE = struct.Struct(">ii")
_FLEXIBLE_RESPONSE = struct.Struct(">iib")
ANONYMOUS = "User:ANONYMOUS"
MAX_TOKEN_BYTES = 524_288
"""Of a message of SASL, and of any request of whoever is not known yet."""
SHOWN_CHARACTERS = 300
NEW_COST_S = 0.001
"""What a connection is taken to have cost before it has sent anything: those that are known to cost less come first."""


def shown(text: str | None) -> str:
    """What a client says of itself, fit for a line of a log: bounded, and nothing in it that a terminal obeys."""
    if not text:
        return ""
    cut = text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."
    return cut if cut.isprintable() else ascii(cut)[1:-1]


def response_head(flexible: bool, size: int, correlation_id: int) -> bytes:
    if flexible:
        return _FLEXIBLE_RESPONSE.pack(size + 5, correlation_id, 0)
    return _RESPONSE.pack(size + 4, correlation_id)


class Call:
    """One request on its way: where it came from and, once there is one, its encoded answer."""

    __slots__ = ("began", "client_id", "connection", "correlation_id", "entry", "mutations", "parts", "size", "version")

    def __init__(
        self,
        connection: Connection,
        correlation_id: int,
        client_id: str | None,
        version: int,
        entry: Entry,
        size: int = 0,
    ) -> None:
        self.connection = connection
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.version = version
        self.entry = entry
        self.parts: list[Part] | None = None
        self.size = size  # of the request, in bytes
        self.began = 0.0  # on the meter's clock, where there is one
        self.mutations: Mutations | None = None  # of a request that changes topics

    @property
    def client_host(self) -> str:
        """The peer as Kafka shows it to tools, e.g. `/127.0.0.1`."""
        return self.connection.client_host

    def __repr__(self) -> str:
        return f"{self.entry.name} v{self.version} #{self.correlation_id} of {self.connection}"


class Connection:
    """What the core keeps of a peer. The shell that owns the socket reads `out` after every flush."""

    __slots__ = (
        "address",
        "client_host",
        "client_id",
        "close_reason",
        "cost_s",
        "guard",
        "host",
        "last_active_ms",
        "long_works",
        "muted_until_ms",
        "out",
        "pending",
        "principal",
        "raw_client_id",
        "reading",
        "shell",
        "software",
        "waiters",
    )

    def __init__(self, host: str, shell: Any = None) -> None:
        self.host = host
        self.client_host = f"/{host}"
        self.shell = shell
        self.pending: deque[Call] = deque()
        self.out: list[Part] = []
        self.close_reason: str | None = None
        self.raw_client_id: bytes = b""
        self.client_id: str | None = ""
        self.software = ""
        self.last_active_ms = 0
        self.cost_s = NEW_COST_S
        """Seconds of the loop it has taken, older ones counting less."""
        self.address: tuple[str, int] | None = None
        """Of the listener it came by, as clients are told."""
        self.guard: Guard | None = None
        """Of a connection that has to authenticate."""
        self.principal: str | None = None
        """Who it is; None is the broker itself."""
        self.reading: Any = None
        """The large request that is being decoded elsewhere; what came behind it waits."""
        self.muted_until_ms = 0
        """Over its quota: nothing is read from it until then."""
        self.long_works = 0
        """Requests that are handled in slices, or whose answer is encoded elsewhere: what came behind them waits."""
        self.waiters: dict[Waiter, None] = {}

    @property
    def is_occupied(self) -> bool:
        """Whether what comes next has to wait for something large."""
        return self.reading is not None or self.long_works > 0

    @property
    def closed(self) -> bool:
        return self.close_reason is not None

    def close(self, reason: str) -> None:
        """Drop what waits; a parked request of a closed connection is never answered."""
        if self.close_reason is None:
            self.close_reason = reason
            self.pending.clear()

    def take_output(self) -> list[Part]:
        out, self.out = self.out, []
        return out

    def __repr__(self) -> str:
        return f"{self.host} ({shown(self.client_id) or 'no client id'})"
