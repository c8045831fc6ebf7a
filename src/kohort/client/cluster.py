"""A cluster over asyncio, for admins and producers: requests to nodes, metadata. `cluster_core` decides."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

from kohort.client import effects as fx
from kohort.client import events as ev
from kohort.client.cluster_core import ClusterCore
from kohort.client.config import Config
from kohort.client.driver_async import AsyncDriver
from kohort.client.effects import Role
from kohort.client.links import Place
from kohort.client.metadata import Metadata, Node, TopicInfo


class Asking:
    """Requests and metadata through any driver."""

    def __init__(self, driver: AsyncDriver, core: ClusterCore) -> None:
        self.config = core.config
        self._driver = driver
        self._core = core

    @property
    def metadata(self) -> Metadata:
        return self._core.metadata

    def servers(self) -> str:
        return self._core.servers

    async def request(
        self,
        node_id: int | None,
        request: Any,
        timeout_ms: int | None = None,
        min_version: int = 0,
        max_version: int | None = None,
        *,
        lookup: bool = False,
        answered: bool = True,
    ) -> Any:
        """None: the least loaded node, fewest requests in flight, connected ones first; a bootstrap server at first."""
        return await self._ask(node_id, request, timeout_ms, min_version, max_version, lookup, answered)

    def coordinator(self, node: Node) -> Coordinator:
        return Coordinator(self, Place(Role.COORDINATOR, node.node_id, node.host, node.port))

    async def _ask(
        self,
        to: int | Place | None,
        request: Any,
        timeout_ms: int | None,
        min_version: int = 0,
        max_version: int | None = None,
        lookup: bool = False,
        answered: bool = True,
    ) -> Any:
        patience_ms = self.config["request.timeout.ms"] if timeout_ms is None else timeout_ms

        def make(ask_id: int) -> ev.Event:
            return ev.Request(ask_id, request, patience_ms, to, lookup, min_version, max_version, answered)

        return await self._driver.wait_for(make)

    async def refresh(self, timeout_ms: int | None = None, topics: Iterable[str] = ()) -> Metadata:
        """Metadata that was asked for after this call, of these topics too."""
        patience_ms = self.config["default.api.timeout.ms"] if timeout_ms is None else timeout_ms
        wanted = frozenset(topics)
        found: Metadata = await self._driver.wait_for(lambda ask_id: ev.Refresh(ask_id, patience_ms, wanted))
        return found

    async def topics(self, names: Iterable[str], timeout_ms: int | None = None) -> dict[str, TopicInfo]:
        """What is known about these topics, asking where it is not; missing ones are left out."""
        names = set(names)
        missing = names - self.metadata.topics.keys()
        if missing and self.metadata.covers is not None:
            await self.refresh(timeout_ms, missing)
        return {name: self.metadata.topics[name] for name in names if name in self.metadata.topics}

    async def controller(self) -> int:
        """A node for administrative requests: any broker forwards them where there is no controller to talk to."""
        if not self.metadata.nodes:
            await self.refresh()
        controller = self.metadata.controller_id
        return controller if controller in self.metadata.nodes else next(iter(self.metadata.nodes))


class Coordinator:
    """Requests to one group's coordinator, on a connection of its own."""

    def __init__(self, cluster: Asking, place: Place) -> None:
        self._cluster = cluster
        self._place = place

    async def request(
        self, request: Any, timeout_ms: int | None = None, min_version: int = 0, max_version: int | None = None
    ) -> Any:
        return await self._cluster._ask(self._place, request, timeout_ms, min_version, max_version)


class Cluster(Asking):
    def __init__(self, config: Config) -> None:
        core = ClusterCore(config, random.random)
        driver = AsyncDriver(core)
        super().__init__(driver, core)
        self.on_metadata: list[Callable[[Metadata], None]] = []
        driver._carriers[fx.MetadataChanged] = self._metadata_changed

    def _metadata_changed(self, effect: fx.MetadataChanged) -> None:
        for listener in self.on_metadata:
            listener(self.metadata)

    def watch(self, topics: Iterable[str] | None) -> None:
        """Topics of interest; None for all. News about topics that were not watched before are fetched at once."""
        self._driver.tell(ev.Watch(None if topics is None else frozenset(topics)))

    def refresh_soon(self) -> None:
        self._driver.tell(ev.RefreshSoon())

    async def close(self) -> None:
        await self._driver.close()
