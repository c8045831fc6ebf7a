"""The broker without its sockets: frames in, parts out, time as an argument. No asyncio, no clock, no threads here.

A shell (the asyncio server, or the simulator with virtual time) drives it in turns:

    core.receive(connection, frame, now_ms)     for every complete frame that has arrived
    for connection in core.flush(now_ms):       append once per log, replay, answer
        send(connection.take_output())          and close it where connection.closed
    core.on_time(now_ms)                        when core.next_deadline() has come, then flush again
    for job in core.take_jobs():                blocking work: job.run() on another thread,
        core.job_done(job, error, now_ms)       then back on the owner's

What one turn appends is stored before its answers leave; answers leave in the order of the requests of a connection.

Coordinators are services of their own (`groups.py`) with the same rhythm; the core knows of each only

    name, key_type                 what it is called, and what FindCoordinator asks for to find it
    apis() -> list[Api]            its rows of the table
    start(now_ms), stop(now_ms)    it answers COORDINATOR_NOT_AVAILABLE before and after
    collect(now_ms)                hand what the turn's requests want stored to `core.append`; called until nothing new
    coordinator_of(key, now_ms)    who coordinates that group, or transaction
    on_time(now_ms), next_deadline()
    topic_created(topic, now_ms), topics_deleted({name: topic id}, now_ms), topic_grew(name, now_ms)

Whoever hands over an Append is told of its end: `owner.appended(append, now_ms)`.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Protocol, cast

from kohort.broker import find_coordinator
from kohort.broker.access import Access
from kohort.broker.admission import Turns
from kohort.broker.apis import TABLE, api_versions
from kohort.broker.appends import Append, Appends
from kohort.broker.client_requests import RequestLog
from kohort.broker.config import BrokerConfig
from kohort.broker.connection import Call, Connection, Part, response_head, shown
from kohort.broker.faults import Faults
from kohort.broker.fetch_sessions import FetchSessions
from kohort.broker.find_coordinator import Endpoint, Node
from kohort.broker.gate import Gate
from kohort.broker.long_work import LongWork
from kohort.broker.maintenance import Maintenance
from kohort.broker.meter import Meter
from kohort.broker.purgatory import Purgatory
from kohort.broker.quotas import Quotas
from kohort.broker.table import Api, ApiTable
from kohort.broker.throttling import throttle
from kohort.broker.topics import Catalog, Partition, Topic
from kohort.broker.users import Users
from kohort.lazy_names import named
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.frames import skip_tags
from kohort.protocol.wire import DecodeError
from kohort.storage.store import Store

if TYPE_CHECKING:
    from kohort.broker.bearer import Tokens
    from kohort.broker.checking import Checking
    from kohort.broker.membership import Membership
    from kohort.coordinator.transactions.asks import Enlist

logger = logging.getLogger("kohort.broker")

_HEADER = struct.Struct(">iih")
_API_VERSIONS = 18
READ_AT_ONCE_BYTES = 128 * 1024
MALFORMED = (struct.error, IndexError, UnicodeDecodeError, DecodeError)


class Service(Protocol):
    name: str
    key_type: int

    def apis(self) -> list[Api]: ...
    def start(self, now_ms: int) -> None: ...
    def stop(self, now_ms: int) -> None: ...
    def collect(self, now_ms: int) -> None: ...
    def coordinator_of(self, key: str, now_ms: int) -> tuple[ErrorCode, Node]: ...
    def on_time(self, now_ms: int) -> None: ...
    def next_deadline(self) -> int | None: ...
    def topic_created(self, topic: Topic, now_ms: int) -> None: ...
    def topics_deleted(self, topics: dict[str, bytes], now_ms: int) -> None: ...
    def topic_grew(self, name: str, now_ms: int) -> None: ...


class Job(Protocol):
    """Blocking work: `run` on any thread, then `finish` by the owner of the core.

    Jobs with a true `uses_processor` run one at a time; the others wait for disks.
    """

    def run(self) -> None: ...
    def finish(self, error: BaseException | None, now_ms: int) -> None: ...


class Core:
    def __init__(
        self,
        config: BrokerConfig,
        store: Store,
        *,
        random_bytes: Callable[[int], bytes],
        services: Sequence[Callable[[Core], Service]] = (),
        wake: Callable[[], None] = lambda: None,
        faults: Faults | None = None,
        topics: Catalog | None = None,
    ) -> None:
        """`wake` is called, on any thread, when something finished elsewhere and a `flush` is due. In a cluster the
        broker brings its own `topics`, and is given its `membership` before it starts."""
        self.config = config
        self.node_id: int = config["node.id"]
        self.host, self.port = "localhost", 0
        self.random_bytes = random_bytes
        self.store = store
        self.topics = topics or Catalog(config, store, random_bytes)
        self.membership: Membership | None = None
        self.users = Users(store, random_bytes)
        bearers = config.enables("OAUTHBEARER")
        self.tokens: Tokens | None = named("kohort.broker.bearer", "Tokens")(config) if bearers else None
        self.access = Access(config, store)
        self.gate = Gate(self.access.acls) if config["authorizer.class.name"] else None
        self.quotas = Quotas(store)
        self.appends = Appends(wake)
        self.append: Callable[[Append], None] = self.appends.add
        """Have a batch appended at the end of this turn; its owner is told."""
        self.turns = Turns(self)
        self.long_work = LongWork(self)
        self.purgatory = Purgatory()
        self.fetch_sessions = FetchSessions(
            config["max.incremental.fetch.session.cache.slots"], lambda: int.from_bytes(random_bytes(4), "big")
        )
        self.maintenance = Maintenance(self)
        self.faults = faults or Faults()
        self.faults.started()
        self.table = ApiTable(TABLE)
        self._entries = self.table.entries
        self.meter: Meter | None = None
        self.request_log: RequestLog | None = None
        self._dirty: list[Connection] = []
        self._jobs: list[Job] = []
        self.services = [make(self) for make in services]
        for service in self.services:
            for api in service.apis():
                self.table.add(api)
        if self.services:
            self.table.add(find_coordinator.API)
        self.topics.created = self._topic_created

    @cached_property
    def checking(self) -> Checking:
        return cast("Checking", named("kohort.broker.checking", "Checking")(self))  # for the first records that come

    def start(self, now_ms: int) -> None:
        """Open what there is. Raises what makes a start impossible."""
        self.topics.load(now_ms)
        self.users.load()
        self.access.load()
        self.quotas.load()
        self.maintenance.start(now_ms)
        for service in self.services:
            service.start(now_ms)

    def stop(self, now_ms: int) -> None:
        """The end is near: what is under way comes to its end, nothing new begins."""
        for service in self.services:
            service.stop(now_ms)

    def close(self) -> None:
        self.store.close()

    def service(self, name: str) -> Service | None:
        return next((service for service in self.services if service.name == name), None)

    # Requests in.

    def receive(self, connection: Connection, frame: bytes | memoryview, now_ms: int) -> None:
        """Handle one frame (without its size). A bad one closes its connection and nothing else.

        Large ones come as a view, so that records are not copied; who keeps more than records makes bytes of it.
        """
        connection.last_active_ms = self.topics.now_ms = now_ms
        guard = connection.guard
        if guard is not None and guard.raw:
            self._bare_message(connection, bytes(frame), now_ms)
            return
        try:
            code, correlation_id, length = _HEADER.unpack_from(frame)
            entry = self._entries.get(code) or self.table.resolve(code >> 16, code & 0xFFFF)
            if entry is None:
                self._refuse(connection, code >> 16, code & 0xFFFF, correlation_id)
                return
            read, _, _, flexible, _, _, _, api, version = entry
            if guard is not None and (reason := guard.refuses(api, now_ms)) is not None:
                self.disconnect(connection, reason)
                return
            pos = 10 + length if length > 0 else 10
            raw = frame[10:pos]
            if raw != connection.raw_client_id or length <= 0:
                connection.client_id = str(raw, "utf-8") if length >= 0 else None
                connection.raw_client_id = bytes(raw)
            if flexible:
                pos = pos + 1 if frame[pos] == 0 else skip_tags(frame, pos)
            size = len(frame)
            if size > READ_AT_ONCE_BYTES and not entry.records:
                call = Call(connection, correlation_id, connection.client_id, version, entry, size)
                self.long_work.read(call, bytes(frame), pos)
                return
            request, end = read(frame, pos)
            if end > size:
                raise DecodeError(f"{end - size} bytes short")
        except MALFORMED as error:
            self.disconnect(connection, f"malformed request: {error}")
            return
        call = Call(connection, correlation_id, connection.client_id, version, entry, size)
        self.admit(call, request, frame, pos, now_ms)

    def admit(self, call: Call, request: Any, frame: bytes | memoryview, pos: int, now_ms: int) -> None:
        """Serve a request that was read; its body begins at `pos` of the frame."""
        if self.meter is not None:
            call.began = self.meter.arrived
        if self.request_log is not None:
            self.request_log.add(call, bytes(frame), pos, now_ms)
        call.connection.pending.append(call)
        if not (self.faults.active and self.faults.catch(self, call, request, now_ms)):
            self.let_in(call, request, now_ms)

    def let_in(self, call: Call, request: Any, now_ms: int) -> None:
        """Have a pending request handled, as far as whoever asks may."""
        if self.gate is None:
            self.serve(call, request, now_ms)
        else:
            self.gate.serve(self, call, request, now_ms)

    def serve(self, call: Call, request: Any, now_ms: int) -> None:
        """Have a pending request handled. A handler that fails costs its connection."""
        entry = call.entry
        try:
            response = entry.handler(self, call, request, now_ms)
        except Exception as error:
            if not isinstance(error, KafkaError):
                logger.exception("%r failed", call)
            self.disconnect(call.connection, f"{entry.name} v{entry.version} failed: {error}")
            return
        if response is None:
            return
        if type(response) is GeneratorType:
            self.long_work.begin(call, response, now_ms)
        else:
            self.reply(call, response)

    def _bare_message(self, connection: Connection, message: bytes, now_ms: int) -> None:
        """A message of a SASL mechanism without anything around it."""
        assert connection.guard is not None
        answer = connection.guard.take_raw(self, connection, message, now_ms)
        if answer is not None:
            if not connection.out:
                self._dirty.append(connection)
            connection.out.append(len(answer).to_bytes(4, "big") + answer)

    def address_for(self, connection: Connection) -> tuple[str, int]:
        """What a client is told of this broker: the address of the listener it came by."""
        return connection.address or (self.host, self.port)

    def _refuse(self, connection: Connection, key: int, version: int, correlation_id: int) -> None:
        """An api or version that is not served. Only ApiVersions has an answer that any client can read (KIP-511)."""
        if key != _API_VERSIONS:
            self.disconnect(connection, f"api {key} version {version} is not supported")
            return
        entry = self.table.resolve(key, 0)
        assert entry is not None
        call = Call(connection, correlation_id, connection.client_id, 0, entry)
        if self.meter is not None:
            call.began = self.meter.arrived
        connection.pending.append(call)
        self.reply(call, api_versions.unsupported(self))

    # Answers out.

    def reply(self, call: Call, response: Any) -> None:
        """Answer a request; it leaves once every earlier request of its connection has been answered."""
        connection = call.connection
        if connection.close_reason is not None:
            return
        if self.quotas.active:
            throttle(self, call, response)
        _, _, write, _, flexible, bulk, _, name, version = call.entry
        parts: list[Part] = []
        try:
            write(response, parts.append)
        except Exception as error:
            logger.exception("the answer to %r cannot be encoded", call)
            self.disconnect(connection, f"{name} v{version} failed: {error}")
            return
        if bulk:
            parts.insert(0, response_head(flexible, sum(map(len, parts)), call.correlation_id))
        else:
            body = parts[0] if len(parts) == 1 else b"".join(parts)
            parts = [response_head(flexible, len(body), call.correlation_id) + body]
        call.parts = parts
        self.answered(connection)

    def reply_encoded(self, call: Call, body: bytes) -> None:
        """`reply` with a body that is encoded already: the same answer to many."""
        connection = call.connection
        if connection.close_reason is not None:
            return
        call.parts = [response_head(call.entry.flexible_response, len(body), call.correlation_id) + body]
        self.answered(connection)

    def no_reply(self, call: Call) -> None:
        """The request is done and its client expects no answer (acks=0)."""
        if self.quotas.active:
            throttle(self, call, None)
        call.parts = []
        self.answered(call.connection)

    def answered(self, connection: Connection) -> None:
        """Move what is answered, from the oldest request on, to the output."""
        pending, out, meter = connection.pending, connection.out, self.meter
        if not pending or pending[0].parts is None:
            return
        if not out:
            self._dirty.append(connection)
        while pending:
            parts = pending[0].parts
            if parts is None:
                return
            out += parts
            call = pending.popleft()
            if meter is not None:
                meter.answered(call)

    def disconnect(self, connection: Connection, reason: str) -> None:
        """Close a connection for a reason that is logged; what it was already answered still leaves."""
        if connection.close_reason is None:
            logger.warning("closing the connection of %s: %s", connection, shown(reason))
            connection.close(reason)
            self._dirty.append(connection)

    def connection_lost(self, connection: Connection) -> None:
        """The peer is gone, and so are its waiting fetches. Members of groups live until their session is over, and
        transactions until they end or time out, whatever happens to a connection."""
        connection.close("the peer closed it")
        connection.out.clear()
        self.purgatory.forget(connection)
        self.faults.forget(connection)

    def enlist(self, ask: Enlist, asker: Any, now_ms: int) -> None:
        """Ask the coordinator of a transaction for partitions of it; `asker.answered(errors, now_ms)` by and by."""
        transactions: Any = self.service("transactions")
        if transactions is None:
            asker.answered(dict.fromkeys(ask.partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE), now_ms)
        else:
            transactions.enlist_anywhere(ask, asker, now_ms)

    # The end of a turn.

    def flush(self, now_ms: int) -> list[Connection]:
        """Append what the turn has gathered, answer; returns the connections that have output or are to be closed."""
        appends = self.appends
        self.topics.now_ms = now_ms
        if appends.durable or appends.woken:
            appends.settle(now_ms)
        if self.long_work.sliced or self.long_work.own:
            self.long_work.step(now_ms)
        services = self.services
        for service in services:
            service.collect(now_ms)
        while appends.queued:
            appends.run(now_ms)
            for service in services:
                service.collect(now_ms)
        if appends.grown:
            grown, appends.grown = appends.grown, {}
            self.purgatory.check(grown, now_ms)
        if self.membership is not None:
            self.membership.end_turn(now_ms)
        if self.meter is not None:
            self.meter.end_turn()
        dirty, self._dirty = self._dirty, []
        return dirty

    @property
    def busy(self) -> bool:
        """Whether there is work left for the next turn: it should come at once."""
        return bool(self.long_work)

    def brokers(self) -> list[Endpoint]:
        """Those that serve clients now."""
        if self.membership is None:
            return [Endpoint(self.node_id, self.host, self.port, self.config["broker.rack"])]
        state = self.membership.state
        live = (state.brokers[node_id] for node_id in state.live if self._has_its_place(node_id))
        return [Endpoint(broker.node_id, broker.host, broker.port, broker.rack) for broker in live]

    def brokers_for(self, connection: Connection) -> list[Endpoint]:
        """The same, this one by the listener that the connection came by."""
        host, port = self.address_for(connection)
        return [b._replace(host=host, port=port) if b.node_id == self.node_id else b for b in self.brokers()]

    def leader_of(self, partition: Partition) -> int:
        """-1 where there is none."""
        if partition.leader_id is None:
            return self.node_id
        return partition.leader_id if self._has_its_place(partition.leader_id) else -1

    def _has_its_place(self, node_id: int) -> bool:
        """Not so this broker, where it was cut off from the others: clients that it told more came back for ever."""
        return node_id != self.node_id or self.membership is None or self.membership.has_its_place

    def endpoint(self, node_id: int) -> Endpoint | None:
        return next((broker for broker in self.brokers() if broker.node_id == node_id), None)

    def leaders_changed(self, topic: Topic, now_ms: int) -> None:
        """This broker leads other partitions of the topic than before, or another one does."""
        self.changed(topic.partitions, now_ms)
        for service in self.services:
            service.topic_created(topic, now_ms)

    # Topics that come, grow and go.

    def _topic_created(self, topic: Topic) -> None:
        self.topic_came(topic, self.topics.now_ms)

    def topic_came(self, topic: Topic, now_ms: int) -> None:
        for service in self.services:
            service.topic_created(topic, now_ms)

    def topics_deleted(self, topics: dict[str, bytes], now_ms: int) -> None:
        """Name -> topic id."""
        if self.topics.is_planning:
            return
        for service in self.services:
            service.topics_deleted(topics, now_ms)

    def topic_grew(self, name: str, now_ms: int) -> None:
        if self.topics.is_planning:
            return
        for service in self.services:
            service.topic_grew(name, now_ms)

    def changed(self, partitions: Iterable[Partition], now_ms: int) -> None:
        """Something other than an append happened to these: fetches that wait on them look again."""
        if not self.topics.is_planning:
            self.purgatory.check(partitions, now_ms)

    # Time and work elsewhere.

    def on_time(self, now_ms: int) -> None:
        self.topics.now_ms = now_ms
        if self.faults.active:
            self.faults.on_time(self, now_ms)
        self.purgatory.expire(now_ms)
        self.maintenance.on_time(now_ms)
        if self.membership is not None:
            self.membership.on_time(now_ms)
        for service in self.services:
            service.on_time(now_ms)

    def next_deadline(self) -> int | None:
        """When `on_time` is to be called next; asked for after every turn."""
        first = self.next_wait()
        other = self.maintenance.next_due_ms
        if other is not None and (first is None or other < first):
            first = other
        return first

    def next_wait(self) -> int | None:
        """When the next request, member or group has waited long enough: deadlines without the housekeeping."""
        first = self.purgatory.next_deadline()
        for service in self.services:
            other = service.next_deadline()
            if other is not None and (first is None or other < first):
                first = other
        if self.membership is not None:
            other = self.membership.next_deadline()
            if other is not None and (first is None or other < first):
                first = other
        if self.faults.active:
            other = self.faults.next_deadline()
            if other is not None and (first is None or other < first):
                first = other
        return first

    def run_elsewhere(self, job: Job) -> None:
        self._jobs.append(job)

    def take_jobs(self) -> list[Job]:
        jobs, self._jobs = self._jobs, []
        return jobs

    def job_done(self, job: Job, error: BaseException | None, now_ms: int) -> None:
        job.finish(error, now_ms)
