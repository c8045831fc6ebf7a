"""From settings to a running broker: opens the store, builds the core, starts the server."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from kohort.broker.acls import Acl
from kohort.broker.client_requests import RequestLog
from kohort.broker.clock import Clock
from kohort.broker.config import BrokerConfig, ConfigError
from kohort.broker.core import Core, Service
from kohort.broker.faults import Faults
from kohort.broker.groups import GroupService
from kohort.broker.listener_config import ListenerConfig, jaas_users
from kohort.broker.listeners import Listener, listeners
from kohort.broker.meter import Meter
from kohort.broker.server import Server
from kohort.broker.tls import PrincipalMapping
from kohort.broker.transactions import TransactionService
from kohort.coordinator.events import GroupEvent
from kohort.lazy_names import named
from kohort.protocol.errors import KafkaError
from kohort.protocol.uuids import to_base64
from kohort.storage.store import MemoryStore, Store

if TYPE_CHECKING:
    from kohort.broker.cluster_boot import ClusterPlace  # of brokers on their own nobody pays for it
    from kohort.broker.inside import Inside


class Security(NamedTuple):
    """Users and access control entries of whoever starts the broker, beside those in its store."""

    users: Mapping[str, str] = {}
    acls: Sequence[Acl] = ()


class StartError(RuntimeError):
    """The broker cannot start; the message says why and what to do."""


def open_store(config: BrokerConfig, data_dir: str | os.PathLike[str] | None) -> Store:
    """The logs of a directory, or of memory where there is none."""
    if data_dir is None:
        return MemoryStore(cluster_id=to_base64(os.urandom(16)), node_id=config["node.id"])
    from pathlib import Path  # late: a broker in memory needs none of it

    from kohort.storage.disk_store import LogStore

    path = Path(data_dir)
    if path.exists() and not path.is_dir():
        raise StartError(f"{path} is not a directory: choose another --data-dir")
    try:
        return LogStore(path, node_id=config["node.id"])
    except KafkaError as error:
        raise StartError(error.message) from None


class RunningBroker:
    """A server on the current event loop with everything behind it."""

    def __init__(self, server: Server, store: Store, bound: list[Listener], place: ClusterPlace | None = None) -> None:
        self.server = server
        self.place = place
        self.core = server.core
        self.clock = server.clock
        self.store = store
        self.listeners = bound
        self.host, self.port = bound[0].host, bound[0].port

    @cached_property
    def inside(self) -> Inside:
        """What is in it, for tests; made when one asks."""
        made: Inside = named("kohort.broker.inside", "Inside")(self.server)
        return made

    def story(self, group_id: str) -> list[GroupEvent]:
        """What happened to a group lately, when and why, oldest first."""
        return self.groups.coordinator.story(group_id)

    @property
    def groups(self) -> GroupService:
        groups = self.core.service(GroupService.name)
        assert isinstance(groups, GroupService)
        return groups

    @property
    def connection_count(self) -> int:
        return self.server.connection_count

    @property
    def address(self) -> str:
        return self.listeners[0].address

    async def stop(self) -> None:
        if self.place is not None:
            await self.place.leave(self.server)
        await self.server.stop()
        if self.place is not None:
            self.place.close()


async def start_broker(
    config: BrokerConfig,
    store: Store | None,
    host: str,
    port: int,
    clock: Clock,
    faults: Faults | None = None,
    meter: Meter | None = None,
    request_log: RequestLog | None = None,
    place: ClusterPlace | None = None,
    security: Security | None = None,
) -> RunningBroker:
    """Listen and serve; StartError, with the store closed, where that is impossible. In a cluster `place` brings the
    store."""
    server: Server | None = None
    told = (OSError, KafkaError, ConfigError, *(place.start_errors if place is not None else ()))

    def wake() -> None:
        if server is not None:
            server.wake()

    try:
        topics = None
        if place is not None:
            store = journals = await place.open(config)
            topics = place.catalog(config, journals)
        assert store is not None
        services: list[Callable[[Core], Service]] = [GroupService, TransactionService]
        core = Core(config, store, random_bytes=os.urandom, services=services, wake=wake, faults=faults, topics=topics)
        if place is not None:
            place.member(core)
        core.meter = meter
        core.request_log = request_log
        security = security or Security()
        core.users.give(security.users or jaas_users(config["sasl.jaas.config"]))
        core.access.give(security.acls)
        server = Server(core, clock)
        bound = await server.start(listeners(config, host, port))
        core.host, core.port = bound[0].advertised_host, bound[0].advertised_port
        if place is not None:
            place.open_door(core, bound[0])
            await place.join(server)
    except told as error:
        if server is not None:
            await server.stop()
        raise StartError(_why(error, host, port)) from error
    return RunningBroker(server, store, bound, place)


def _why(error: Exception, host: str, port: int) -> str:
    if isinstance(error, KafkaError):
        return error.message
    if not isinstance(error, OSError):
        return str(error)
    if error.errno == 98 or "address already in use" in str(error).lower():
        return f"port {port} on {host} is in use: stop what listens there, or choose another with --port (0 picks one)"
    reason = error.strerror or str(error)
    return f"cannot listen on {host}:{port}: {reason}"


def make_config(given: Mapping[str, Any] | None) -> BrokerConfig:
    config = BrokerConfig(given)
    for listener in listeners(config, "localhost", 0):
        PrincipalMapping(ListenerConfig(config, listener.name)["ssl.principal.mapping.rules"])
    return config
