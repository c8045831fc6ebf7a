"""The only asyncio of the broker: sockets, turns, timers and threads around the core.

Each turn of the loop handles the complete frames that have arrived, then flushes the core once, so that everything that
came together is appended together and answered together. A turn and a connection in it have a budget of time; what is
over it is held back and goes on in later turns, those connections first that have cost the least so far.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import get_ident
from time import perf_counter
from typing import TYPE_CHECKING, Any

from kohort.broker.apart import Apart, carry_out
from kohort.broker.broker_protocol import BrokerProtocol, BufferedBrokerProtocol
from kohort.broker.clock import Clock
from kohort.broker.connection import ANONYMOUS, Connection, shown
from kohort.broker.core import Core, Job
from kohort.broker.listener_config import ListenerConfig
from kohort.broker.listeners import Listener
from kohort.broker.quotas import REQUEST_TIME
from kohort.broker.throttling import mute
from kohort.broker.tls import Certificates, PrincipalMapping, distinguished_name

if TYPE_CHECKING:
    from kohort.broker.peer_sockets import PeerSockets  # brokers on their own have no peers
    from kohort.broker.tls_transport import Handshakes
    from kohort.cluster.engine import Creating

logger = logging.getLogger("kohort.broker")

_SLICE_S = 0.004
_TURN_S = 0.02
_COST_HALVED_S = 10.0
_IDLE_CHECKS = 4
_READ_THREADS = 4  # of a broker in a cluster, for records that are not in memory
_STORE_THREADS = 8  # of a broker in a cluster, where every write waits for the store


class Server:
    """Runs one core on the current event loop."""

    def __init__(self, core: Core, clock: Clock) -> None:
        self.core = core
        self.clock = clock
        self.max_frame_bytes: int = core.config["socket.request.max.bytes"]
        self.held_back: dict[BrokerProtocol, bytes] = {}
        self._protocols: set[BrokerProtocol] = set()
        self._by_host: Counter[str] = Counter()
        self._turn_open = False
        self._turn_ends = 0.0
        self._costs_halved = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_ms = 0
        self._idle_timer: asyncio.TimerHandle | None = None
        self._listening: list[asyncio.Server] = []
        self._settings: dict[str, ListenerConfig] = {}  # of listeners, by their names, and so the next two
        self._mappings: dict[str, PrincipalMapping] = {}
        self.certificates: dict[str, Certificates] = {}
        self._by_listener: Counter[str] = Counter()
        self._threads: ThreadPoolExecutor | None = None
        self._worker: ThreadPoolExecutor | None = None
        self._readers: ThreadPoolExecutor | None = None
        self._jobs: set[Job] = set()  # on threads, or with the store
        self._creating: Creating | None = None
        self._muted: set[Connection] = set()  # those whose end of waiting has a timer
        self._is_shut = False
        self._handshakes: Handshakes | None = None
        self._peers: PeerSockets | None = None
        self._is_stopping = False
        self._loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self._thread = get_ident()
        self._apart = Apart(self._loop, self._apart_done)

    async def start(self, listeners: list[Listener]) -> list[Listener]:
        """Accept connections; returns the listeners with the addresses they have."""
        for listener in listeners:
            config = self._settings[listener.name] = ListenerConfig(self.core.config, listener.name)
            if listener.protocol.encrypts:
                self.certificates[listener.name] = Certificates(config)
            self._mappings[listener.name] = PrincipalMapping(config["ssl.principal.mapping.rules"])
        self.give_users()
        if self.core.membership is not None and (creating := self.core.membership.engine.creating()) is not None:
            self._creating = creating
            self._loop.add_reader(creating.fd, self._created)
        self.core.start(self.clock.now_ms())
        for listener in listeners:
            await self._listen(listener)
        self._end_turn()
        self._check_idle(first=True)
        return listeners

    def give_users(self) -> None:
        """Those of listeners that have users of their own."""
        for name, config in self._settings.items():
            if (users := config.plain_users) is not None:
                self.core.users.give_at(name, users)

    async def _listen(self, listener: Listener) -> None:
        made = await self._loop.create_server(self._protocol_of(listener), listener.host, listener.port, backlog=1024)
        self._listening.append(made)
        listener.host, listener.port = made.sockets[0].getsockname()[:2]
        if not listener.advertised_host:
            anywhere = listener.host in ("0.0.0.0", "::", "")
            listener.advertised_host = socket.gethostname() if anywhere else listener.host
            listener.advertised_port = listener.port

    def _protocol_of(self, listener: Listener) -> Callable[[], asyncio.BaseProtocol]:
        if listener.protocol.encrypts:
            from kohort.broker.tls_transport import Handshakes, TlsProtocol

            context = self.certificates[listener.name].context
            handshakes = self._handshakes = self._handshakes or Handshakes(self._refused)
            return lambda: TlsProtocol(context, lambda: BrokerProtocol(self, listener), handshakes)
        plain = type(self._loop).__module__.startswith("asyncio")
        protocol = BufferedBrokerProtocol if plain else BrokerProtocol
        return lambda: protocol(self, listener)

    def _refused(self, host: str, reason: str) -> None:
        logger.warning("closing the connection of %s: %s", host, shown(reason))

    def admit(self, connection: Connection, listener: Listener, certificate: Any) -> None:
        """Who a new connection is, as far as its listener tells."""
        connection.address = (listener.advertised_host, listener.advertised_port)
        connection.principal = ANONYMOUS
        if listener.protocol.authenticates:
            from kohort.broker.authentication import Guard

            config = self._settings[listener.name]
            connection.guard = Guard(config["sasl.enabled.mechanisms"], config.max_session_ms, listener.name)
        elif certificate:
            try:
                connection.principal = f"User:{self._mappings[listener.name].user(distinguished_name(certificate))}"
            except ValueError as error:
                self.core.disconnect(connection, str(error))
                self.end_turn()

    async def stop(self) -> None:
        """Close connections, finish what runs on threads, close the logs cleanly."""
        for listening in self._listening:
            listening.close()
        for timer in (self._timer, self._idle_timer):
            if timer is not None:
                timer.cancel()
        self._apart.close()
        self.core.stop(self.clock.now_ms())
        self._send(self.core.flush(self.clock.now_ms()))
        for protocol in list(self._protocols):
            protocol.close()
        self._is_stopping = True
        while self._jobs:
            await asyncio.sleep(0.001)
        self._stop_creating()
        for threads in (self._threads, self._worker, self._readers):
            if threads is not None:
                threads.shutdown(wait=True)
        await asyncio.sleep(0)
        for protocol in list(self._protocols):
            protocol.abort()
        self._turn_open = True
        self._abort_peers()
        await asyncio.sleep(0)
        self.core.close()

    def fall(self) -> None:
        """As if the process were killed: connections end, nothing is answered, nothing is closed cleanly."""
        self._abort_peers()
        for listening in self._listening:
            listening.close()
        for timer in (self._timer, self._idle_timer):
            if timer is not None:
                timer.cancel()
        self._turn_open = True
        for protocol in list(self._protocols):
            protocol.abort()
        self._stop_creating()
        for threads in (self._threads, self._worker, self._readers):
            if threads is not None:
                threads.shutdown(wait=False, cancel_futures=True)

    def shut(self, is_shut: bool) -> None:
        """Cut off from its clients: connections end, new ones end at once; or open to them again."""
        self._is_shut = is_shut
        if is_shut:
            self._abort_peers()
            for protocol in list(self._protocols):
                protocol.abort()

    def _to_peers(self) -> PeerSockets:
        if self._peers is None:
            from kohort.broker.peer_sockets import PeerSockets

            self._peers = PeerSockets(self)
        return self._peers

    def _abort_peers(self) -> None:
        """Connections that are not those of clients, or not yet."""
        if self._peers is not None:
            self._peers.abort()
        if self._handshakes is not None:
            self._handshakes.abort()

    def wake(self) -> None:
        """From any thread: something finished elsewhere."""
        if get_ident() == self._thread:
            self.end_turn()
            return
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.end_turn)

    # Connections.

    @property
    def connection_count(self) -> int:
        return len(self._protocols)

    def connected(self, protocol: BrokerProtocol) -> None:
        connection = protocol.connection
        assert connection is not None
        config = self.core.config
        self._protocols.add(protocol)
        self._by_host[connection.host] += 1
        listener, own = protocol.listener.name, self._settings[protocol.listener.name]
        self._by_listener[listener] += 1
        if self.core.meter is not None:
            self.core.meter.connections_opened += 1
        reason = None
        if self._is_shut:
            protocol.abort()
        elif len(self._protocols) > config["max.connections"]:
            reason = f"over the limit of {config['max.connections']} connections (max.connections)"
        elif own.has("max.connections") and self._by_listener[listener] > own["max.connections"]:
            reason = f"over the limit of {own['max.connections']} connections of listener {listener} (max.connections)"
        elif self._by_host[connection.host] > config["max.connections.per.ip"]:
            limit = config["max.connections.per.ip"]
            reason = f"over the limit of {limit} connections from one address (max.connections.per.ip)"
        elif self.core.quotas.active and self.core.quotas.connection_throttle_ms(connection.host, self.clock.now_ms()):
            reason = "over the quota of new connections of its address (connection_creation_rate)"
        if reason is not None:
            self.core.disconnect(connection, reason)
            self.end_turn()

    def is_muted(self, connection: Connection) -> bool:
        """Whether it is over its quota; it is looked at again when that is over."""
        if not connection.muted_until_ms:
            return False
        left_ms = connection.muted_until_ms - self.clock.now_ms()
        if left_ms <= 0:
            connection.muted_until_ms = 0
            return False
        if not self.clock.manual and connection not in self._muted:
            self._muted.add(connection)
            self._loop.call_later(left_ms / 1000, self._look_at_muted, connection)
        return True

    def _look_at_muted(self, connection: Connection) -> None:
        self._muted.discard(connection)
        self.end_turn()

    def charge(self, connection: Connection, seconds: float) -> None:
        """The time of the loop that requests have taken, in percent of a second."""
        quotas, now_ms = self.core.quotas, self.clock.now_ms()
        who = connection.principal, connection.client_id
        wait_ms = quotas.throttle_ms(REQUEST_TIME, *who, seconds * 100, now_ms)
        if wait_ms:
            mute(connection, now_ms + wait_ms)

    def disconnected(self, protocol: BrokerProtocol) -> None:
        self._protocols.discard(protocol)
        self.held_back.pop(protocol, None)
        connection = protocol.connection
        assert connection is not None
        self._by_listener[protocol.listener.name] -= 1
        self._by_host[connection.host] -= 1
        if not self._by_host[connection.host]:
            del self._by_host[connection.host]
        self.end_turn()

    def _check_idle(self, first: bool = False) -> None:
        limit_ms = self.core.config["connections.max.idle.ms"]
        if limit_ms < 0:
            return
        if not first:
            now_ms = self.clock.now_ms()
            for protocol in list(self._protocols):
                connection = protocol.connection
                if connection and not connection.pending and now_ms - connection.last_active_ms >= limit_ms:
                    logger.info("closing the connection of %s: idle for %d ms", connection, limit_ms)
                    protocol.close()
        self._idle_timer = self._loop.call_later(max(limit_ms / _IDLE_CHECKS, 50) / 1000, self._check_idle)

    # Turns.

    def end_turn(self) -> None:
        """Have the core flushed once everything that has arrived in this turn is handled."""
        if not self._turn_open:
            self._turn_open = True
            self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._turn_open = False
        self._turn_ends = 0.0
        core, now_ms = self.core, self.clock.now_ms()
        self._send(core.flush(now_ms))
        if self.held_back:
            self._proceed()
        if core.busy:
            self.end_turn()
        if core.membership is not None:
            self._to_peers().serve(core.membership.peers)
        for job in core.take_jobs():
            if not self._is_stopping:
                self._run_elsewhere(job)
        due_ms = core.next_deadline()
        if self.clock.manual and due_ms is not None and due_ms > now_ms:
            due_ms = core.purgatory.next_deadline()
        if due_ms is not None and (self._timer is None or due_ms < self._timer_due_ms):
            self._set_timer(due_ms, now_ms)

    def _proceed(self) -> None:
        """Go on with what was held back for the length of a turn, the cheapest connections first: who sends a heartbeat
        now and then does not wait for those who keep the broker busy."""
        now = perf_counter()
        if now - self._costs_halved > _COST_HALVED_S:
            self._costs_halved = now
            for protocol in self._protocols:
                protocol.connection.cost_s /= 2  # type: ignore[union-attr]
        self._turn_ends = now + _TURN_S
        for protocol in sorted(self.held_back, key=_cost):
            protocol.proceed(self.held_back.pop(protocol))
            if perf_counter() >= self._turn_ends:
                self.end_turn()
                break
        self._turn_ends = 0.0

    def turn_is_over(self, now: float) -> bool:
        """Whether whatever arrives now has to wait for the next turn."""
        if not self._turn_ends:
            self._turn_ends = now + _TURN_S
        return now >= self._turn_ends

    def slice_end(self, now: float) -> float:
        """When the connection that is being served has had its share of this turn."""
        return min(now + _SLICE_S, self._turn_ends)

    def _send(self, connections: list[Connection]) -> None:
        for connection in connections:
            connection.shell.send()

    def _set_timer(self, due_ms: int, now_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due_ms = due_ms
        self._timer = self._loop.call_later(max(due_ms - now_ms, 0) / 1000, self.on_time)

    def news_of(self, name: str) -> None:
        """From any thread: the store of the cluster has another object."""
        if name.startswith("meta/"):
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._look)

    def _look(self) -> None:
        if self.core.membership is not None:
            self.core.membership.look_soon(self.clock.now_ms())
            self.end_turn()

    def on_time(self) -> None:
        """A deadline has come (or the clock was advanced)."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            if self.clock.manual:
                # A client has one fetch under way and asks for nothing else meanwhile: it never waits for the clock.
                self.core.purgatory.expire(self._timer_due_ms)
        self.core.on_time(self.clock.now_ms())
        self._end_turn()

    async def advance(self, seconds: float) -> None:
        """Let time pass at once. Whatever falls due on the way happens in its order, and its answers are sent."""
        if seconds < 0:
            raise ValueError("time does not go back: advance() takes a positive number of seconds")
        target_ms = self.clock.now_ms() + round(seconds * 1000)
        while (due_ms := self.core.next_wait()) is not None and due_ms <= target_ms:
            await self._at(due_ms)
        await self._at(target_ms)

    async def _at(self, time_ms: int) -> None:
        self.clock.advance_to(time_ms)
        self.on_time()
        await self._apart.settle()
        while self._jobs or self.core.appends.unsettled:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0)

    # Work elsewhere.

    def _run_elsewhere(self, job: Job) -> None:
        if getattr(job, "may_hang", False):
            return self._apart.run(job)
        self._jobs.add(job)
        begin = getattr(job, "begin", None) if self._creating is not None else None
        if begin is None or not begin(self._creating):
            self._on_thread(job)

    def _on_thread(self, job: Job) -> None:
        self._executor(job).submit(carry_out, job, self._loop, self._finished)

    def _created(self) -> None:
        assert self._creating is not None
        for job, error in self._creating.ended():
            if job.ended(error):
                self._finished(job, None)
            else:
                self._on_thread(job)

    def _stop_creating(self) -> None:
        if self._creating is not None:
            self._loop.remove_reader(self._creating.fd)
            self._creating.close()
            self._creating = None

    def _apart_done(self, job: Job, error: BaseException | None) -> None:
        self.core.job_done(job, error, self.clock.now_ms())
        self.end_turn()

    def _executor(self, job: Job) -> ThreadPoolExecutor:
        if getattr(job, "uses_processor", False):
            if self._worker is None:
                self._worker = ThreadPoolExecutor(1, thread_name_prefix="kohort-worker")
            return self._worker
        if self.core.membership is not None and getattr(job, "reads_records", False):
            # Of their own, so that a slow read of old records never holds up the journal or a sign of life.
            if self._readers is None:
                self._readers = ThreadPoolExecutor(_READ_THREADS, thread_name_prefix="kohort-read")
            return self._readers
        if self._threads is None:
            count = 2 if self.core.membership is None else _STORE_THREADS
            self._threads = ThreadPoolExecutor(count, thread_name_prefix="kohort-io")
        return self._threads

    def _finished(self, job: Job, error: BaseException | None) -> None:
        self._jobs.discard(job)
        self.core.job_done(job, error, self.clock.now_ms())
        self.end_turn()


def _cost(protocol: BrokerProtocol) -> float:
    return protocol.connection.cost_s  # type: ignore[union-attr]
