"""A small ZooKeeper as consumers of Kafka 0.8 met it: sessions, ephemeral znodes, watches, servers that lag.

Writes are ordered by the leader and reach each follower in that order, later. Reads and watches are served by the
server a client is connected to, from its own copy: two clients may see different things at the same moment.
Left out: the election of the leader, the vote of the quorum (a write is decided at once), versions, access rights.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import Any

from kohort.schemes.line import MAX_DELAY_MS, Line
from kohort.schemes.znodes import Change, Fired, NodeExists, NoNode, Tree, Znode
from kohort.sim.scheduler import Event, Scheduler

# What a server spends on a read, a write or a notification: some 29,000 a second, as the ZooKeeper paper measured.
SERVICE_US = 35
SYNC_LIMIT_MS = 10_000
"""A follower further behind than this is dropped by its leader (syncLimit 5 x tickTime 2000 ms)."""


class Kind(Enum):
    GET = "get"
    CHILDREN = "children"
    EXISTS = "exists"
    CREATE = "create"
    DELETE = "delete"
    SET = "set"
    CLOSE = "close"


READS = frozenset((Kind.GET, Kind.CHILDREN, Kind.EXISTS))


@dataclass(slots=True, eq=False)
class Operation:
    """One request of a client; yielded by a process, it waits for the answer. `counted`: not a commit of offsets."""

    client: Client
    kind: Kind
    path: str = ""
    data: str = ""
    ephemeral: bool = False
    watch: bool = False
    counted: bool = True
    answered: Callable[[Any, Exception | None], None] | None = None

    def begin(self, answered: Callable[[Any, Exception | None], None]) -> None:
        self.answered = answered
        self.client.submit(self)


@dataclass(slots=True)
class Counts:
    reads: int = 0
    writes: int = 0
    notifications: int = 0
    longest_wait_us: int = 0


class Server:
    """One of the ensemble, with its copy of the tree and a queue in front of it."""

    def __init__(self, ensemble: Ensemble, index: int) -> None:
        self.index = index
        self.tree = Tree()
        self._behind_until_ms = 0
        self._ensemble = ensemble
        self._busy_until_us = 0
        self._applies_ms = 0

    @property
    def leads(self) -> bool:
        return self.index == 0

    def receive(self, client: Client, session_id: int, operation: Operation) -> None:
        self._when_served(self._serve, client, session_id, operation)

    def _when_served(self, action: Callable[..., None], *arguments: Any) -> None:
        """After everything that waits before it: this is how a herd slows down all others."""
        scheduler, counts = self._ensemble.scheduler, self._ensemble.counts
        now_us = scheduler.now_ms * 1000
        self._busy_until_us = max(self._busy_until_us, now_us) + SERVICE_US
        counts.longest_wait_us = max(counts.longest_wait_us, self._busy_until_us - now_us)
        scheduler.at(-(-self._busy_until_us // 1000), action, *arguments)

    def _serve(self, client: Client, session_id: int, operation: Operation) -> None:
        if session_id not in self._ensemble.sessions:
            client.down.send(client.told_expired, session_id)
        elif operation.kind in READS:
            self._read(client, operation)
        else:
            delay_ms = 0 if self.leads else self._ensemble.random.randint(1, MAX_DELAY_MS)
            self._ensemble.scheduler.after(delay_ms, self._ensemble.write, self, client, session_id, operation)

    def _read(self, client: Client, operation: Operation) -> None:
        self._ensemble.counts.reads += operation.counted
        value: Any = None
        error: Exception | None = None
        try:
            if operation.kind is Kind.CHILDREN:
                value = self.tree.children(operation.path)
            elif operation.kind is Kind.EXISTS:
                value = operation.path in self.tree.nodes
            else:
                value = self.tree.get(operation.path)
        except NoNode as missing:
            error = missing
        if operation.watch and error is None:
            self.tree.watch(client, operation.path, children=operation.kind is Kind.CHILDREN)
        client.down.send(client.told, operation, value, error)

    def fall_behind(self, lag_ms: int) -> None:
        """For so long it answers from what it has and applies nothing new; then it catches up."""
        assert not self.leads and lag_ms <= SYNC_LIMIT_MS
        self._behind_until_ms = self._ensemble.scheduler.now_ms + lag_ms

    def follow(self, changes: list[Change], then: Callable[[], None] | None) -> None:
        """Apply a transaction in its turn; `then` answers the client that is connected here."""
        if self.leads:
            self._apply(changes, then)
            return
        scheduler = self._ensemble.scheduler
        arrives_ms = scheduler.now_ms + self._ensemble.random.randint(1, MAX_DELAY_MS)
        self._applies_ms = max(self._applies_ms, self._behind_until_ms, arrives_ms)
        scheduler.at(self._applies_ms, self._apply, changes, then)

    def _apply(self, changes: list[Change], then: Callable[[], None] | None) -> None:
        for fired in self.tree.apply(changes):
            self._ensemble.counts.notifications += 1
            self._when_served(self._notify, fired)
        if then is not None:
            then()

    def _notify(self, fired: Fired) -> None:
        client = fired.client
        assert isinstance(client, Client)
        client.down.send(client.notified, client.session_id, fired)


@dataclass(slots=True)
class Ensemble:
    """The servers, the first of which leads, and the sessions that are alive."""

    scheduler: Scheduler
    random: Random
    size: int = 3
    counts: Counts = field(default_factory=Counts)
    sessions: dict[int, Client] = field(default_factory=dict)
    servers: list[Server] = field(init=False)
    _last_session: int = 0

    def __post_init__(self) -> None:
        self.servers = [Server(self, index) for index in range(self.size)]

    @property
    def truth(self) -> Tree:
        """What is decided, wherever it has been heard of."""
        return self.servers[0].tree

    def connect(self, server: int, session_timeout_ms: int, on_watch: Any, on_expired: Any) -> Client:
        return Client(self, self.servers[server % self.size], session_timeout_ms, on_watch, on_expired)

    def put(self, path: str, data: str) -> None:
        """Written by somebody who is not simulated: an administrator, a broker."""
        self._commit([Change(path, Znode(data, 0))])

    def remove(self, path: str) -> None:
        self._commit([Change(path, None)])

    def open_session(self, client: Client) -> int:
        self._last_session += 1
        self.sessions[self._last_session] = client
        return self._last_session

    def end_session(self, session_id: int) -> None:
        """Closed, or silent for too long: its ephemeral znodes go in one transaction."""
        client = self.sessions.pop(session_id, None)
        if client is not None:
            for server in self.servers:
                server.tree.forget(client)
            self._commit([Change(path, None) for path in self.truth.ephemerals(session_id)])

    def write(self, origin: Server, client: Client, session_id: int, operation: Operation) -> None:
        """Decided by the leader's tree; the client hears of it when its own server has got as far."""
        self.counts.writes += operation.counted
        path, exists = operation.path, operation.path in self.truth.nodes
        error: Exception | None = None
        changes: list[Change] = []
        if session_id not in self.sessions:
            client.down.send(client.told_expired, session_id)
            return
        match operation.kind:
            case Kind.CLOSE:
                self.end_session(session_id)
            case Kind.CREATE if exists:
                error = NodeExists(path)
            case Kind.DELETE if not exists:
                error = NoNode(path)
            case Kind.DELETE:
                changes = [Change(path, None)]
            case _:
                owner = session_id if operation.ephemeral else 0
                changes = [Change(path, Znode(operation.data, owner))]
        self._commit(changes, origin, lambda: client.down.send(client.told, operation, None, error))

    def _commit(
        self, changes: list[Change], origin: Server | None = None, answer: Callable[[], None] | None = None
    ) -> None:
        for server in self.servers:
            server.follow(changes, answer if server is origin else None)


class Client:
    """One client with its session, one request at a time; cut off, it waits, and begins a new session if it must.

    Like ZkClient, which Kafka 0.8 used, it repeats what was not answered until it gets through.
    """

    def __init__(
        self,
        ensemble: Ensemble,
        server: Server,
        session_timeout_ms: int,
        on_watch: Callable[[str], None],
        on_expired: Callable[[], None],
    ) -> None:
        self._ensemble = ensemble
        self._server = server
        self._session_timeout_ms = session_timeout_ms
        self._on_watch = on_watch
        self._on_expired = on_expired
        self._queue: deque[Operation] = deque()
        self._in_flight: Operation | None = None
        self._expiry: Event | None = None
        self._up, self.down = (Line(ensemble.scheduler, ensemble.random) for _ in range(2))
        self.session_id = ensemble.open_session(self)

    # Requests.

    def get(self, path: str, *, watch: bool = False) -> Operation:
        return Operation(self, Kind.GET, path, watch=watch)

    def children(self, path: str, *, watch: bool = False) -> Operation:
        return Operation(self, Kind.CHILDREN, path, watch=watch)

    def exists(self, path: str, *, watch: bool = False) -> Operation:
        return Operation(self, Kind.EXISTS, path, watch=watch)

    def create_ephemeral(self, path: str, data: str) -> Operation:
        return Operation(self, Kind.CREATE, path, data, ephemeral=True)

    def delete(self, path: str) -> Operation:
        return Operation(self, Kind.DELETE, path)

    def set(self, path: str, data: str) -> Operation:
        return Operation(self, Kind.SET, path, data)

    def commit_offset(self, path: str, data: str) -> Operation:
        return Operation(self, Kind.SET, path, data, counted=False)

    def close(self) -> Operation:
        return Operation(self, Kind.CLOSE)

    def submit(self, operation: Operation) -> None:
        self._queue.append(operation)
        self._send_next()

    def _send_next(self) -> None:
        if self._in_flight is None and self._queue:
            self._in_flight = self._queue[0]
            self._up.send(self._server.receive, self, self.session_id, self._in_flight)

    # What arrives.

    def told(self, operation: Operation, value: Any, error: Exception | None) -> None:
        if operation is not self._in_flight:
            return
        self._in_flight = None
        self._queue.popleft()
        assert operation.answered is not None
        operation.answered(value, error)
        self._send_next()

    def notified(self, session_id: int, fired: Fired) -> None:
        if session_id == self.session_id:
            self._on_watch(fired.path)

    def told_expired(self, session_id: int) -> None:
        if session_id == self.session_id:
            self.session_id = self._ensemble.open_session(self)
            self._in_flight = None
            self._on_expired()
            self._send_next()

    # Faults.

    def cut(self) -> None:
        """No word gets through in either direction; the session ends when it has been silent for too long."""
        self._up.cut()
        self.down.cut()
        self._expire_later()

    def heal(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        self._up.heal()
        self.down.heal()
        if self.session_id not in self._ensemble.sessions:
            self.down.send(self.told_expired, self.session_id)

    def crash(self) -> None:
        self._up.close()
        self.down.close()
        self._expire_later()

    def _expire_later(self) -> None:
        self._expiry = self._ensemble.scheduler.after(
            self._session_timeout_ms, self._ensemble.end_session, self.session_id
        )
