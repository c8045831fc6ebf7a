"""From settings to a running broker: opens the store, builds the core, starts the server."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kohort.broker.client_requests import RequestLog
from kohort.broker.clock import Clock
from kohort.broker.cluster_boot import START_ERRORS, ClusterPlace
from kohort.broker.config import BrokerConfig, ConfigError
from kohort.broker.core import Core, Service
from kohort.broker.faults import Faults
from kohort.broker.groups import GroupService
from kohort.broker.inside import Inside
from kohort.broker.meter import Meter
from kohort.broker.server import Server
from kohort.broker.transactions import TransactionService
from kohort.coordinator.events import GroupEvent
from kohort.protocol.errors import KafkaError
from kohort.protocol.uuids import to_base64
from kohort.storage.store import LogStore, MemoryStore, Store

_ADVERTISED = re.compile(r"(?:[A-Z_]+://)?(?P<host>\[[^\]]+\]|[^:/]*):(?P<port>\d+)")


class StartError(RuntimeError):
    """The broker cannot start; the message says why and what to do."""


def open_store(config: BrokerConfig, data_dir: str | os.PathLike[str] | None) -> Store:
    """The logs of a directory, or of memory where there is none."""
    if data_dir is None:
        return MemoryStore(cluster_id=to_base64(os.urandom(16)), node_id=config["node.id"])
    path = Path(data_dir)
    if path.exists() and not path.is_dir():
        raise StartError(f"{path} is not a directory: choose another --data-dir")
    try:
        return LogStore(path, node_id=config["node.id"])
    except KafkaError as error:
        raise StartError(error.message) from None


class RunningBroker:
    """A server on the current event loop with everything behind it."""

    def __init__(self, server: Server, store: Store, host: str, port: int, place: ClusterPlace | None = None) -> None:
        self.server = server
        self.place = place
        self.core = server.core
        self.clock = server.clock
        self.store = store
        self.host = host
        self.port = port
        self.inside = Inside(server)

    def story(self, group_id: str) -> list[GroupEvent]:
        """What happened to a group lately, when and why, oldest first."""
        return self.groups.coordinator.story(group_id)

    @property
    def groups(self) -> GroupService:
        groups = self.core.service(GroupService.name)
        assert isinstance(groups, GroupService)
        return groups

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

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
) -> RunningBroker:
    """Listen and serve; StartError, with the store closed, where that is impossible. In a cluster `place` brings the
    store."""
    server: Server | None = None

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
        server = Server(core, clock)
        bound_host, bound_port = await server.start(host, port)
        core.host, core.port = advertised(config, bound_host, bound_port)
        if place is not None:
            await place.join(server)
    except (OSError, KafkaError, ConfigError, *START_ERRORS) as error:
        if server is not None:
            await server.stop()
        raise StartError(_why(error, host, port)) from error
    return RunningBroker(server, store, bound_host, bound_port, place)


def advertised(config: BrokerConfig, host: str, port: int) -> tuple[str, int]:
    """The address clients are told: the configured one, or the one listened on, or this machine's name."""
    given = config["advertised.listeners"]
    if given is not None:
        return parse_listener(given)
    if host in ("0.0.0.0", "::", ""):
        return socket.gethostname(), port
    return host, port


def parse_listener(text: str) -> tuple[str, int]:
    match = _ADVERTISED.fullmatch(text.strip())
    if match is None or not match["host"] or not 0 < int(match["port"]) < 65536:
        raise ConfigError(f"Invalid value {text} for configuration advertised.listeners: write it as HOST:PORT")
    return match["host"].strip("[]"), int(match["port"])


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
    if config["advertised.listeners"] is not None:
        parse_listener(config["advertised.listeners"])
    return config
