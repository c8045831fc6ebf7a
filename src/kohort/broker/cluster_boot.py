"""Starting and stopping a broker of a cluster: the store is tried, the broker registers, and later hands over."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING

from kohort.broker.acls import CLUSTER_NAME, Operation, Resource
from kohort.broker.cluster_topics import ClusterCatalog
from kohort.broker.config import BrokerConfig
from kohort.broker.connection import ANONYMOUS
from kohort.broker.listeners import Listener, Protocol
from kohort.broker.membership import Life, Membership
from kohort.cluster.engine import Engine, EngineError
from kohort.cluster.memory_engine import MemoryEngine
from kohort.cluster.meta_log import found_cluster
from kohort.cluster.open_engine import open_engine, probe
from kohort.cluster.snapshots import Damaged
from kohort.cluster.state import ClusterState
from kohort.protocol.uuids import random_uuid, to_base64
from kohort.storage.journal_store import JournalStore

if TYPE_CHECKING:
    from kohort.broker.core import Core
    from kohort.broker.server import Server

logger = logging.getLogger("kohort.cluster")

JOIN_TIMEOUT_S = 30.0
LEAVE_TIMEOUT_S = 10.0
LOOK_EVERY_S = 0.005


class ClusterPlace:
    """What a broker needs to become part of a cluster; `start_errors` say why it cannot."""

    start_errors = (EngineError, Damaged)

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.state = ClusterState()

    @classmethod
    def at(cls, url: str) -> ClusterPlace:
        """Over the store that a user names; EngineError says what is wrong with it."""
        return cls(open_engine(url))

    async def open(self, config: BrokerConfig) -> JournalStore:
        """EngineError or Damaged say why this store cannot carry a cluster, or not this one."""
        self.state = await asyncio.to_thread(self._open)
        return JournalStore(cluster_id=self.state.cluster_id, node_id=config["node.id"])

    def _open(self) -> ClusterState:
        if not isinstance(self.engine, MemoryEngine):
            probe(self.engine, os.urandom(12).hex())
        return found_cluster(self.engine, to_base64(os.urandom(16)), random_uuid(os.urandom(16)))

    def catalog(self, config: BrokerConfig, store: JournalStore) -> ClusterCatalog:
        return ClusterCatalog(config, store, os.urandom, self.state)

    def member(self, core: Core) -> Membership:
        core.membership = Membership(core, self.engine, self.state)
        return core.membership

    def open_door(self, core: Core, listener: Listener) -> None:
        """Brokers ask each other by the listener that clients are told of, without a name or a password."""
        assert core.membership is not None
        gate, action = core.gate, Operation.CLUSTER_ACTION
        why = None
        if listener.protocol is not Protocol.PLAINTEXT:
            why = f"brokers cannot ask each other over {listener.protocol}: make PLAINTEXT the first listener"
        elif gate and not gate.acls.allows(ANONYMOUS, listener.host, action, Resource.CLUSTER, CLUSTER_NAME):
            why = (
                f"brokers of a cluster ask each other as {ANONYMOUS}: allow it CLUSTER_ACTION, or add it to super.users"
            )
        if why is not None:
            logger.warning("there are no transactions: %s", why)
        core.membership.peers.closed_door = why

    async def join(self, server: Server) -> None:
        """Register, and wait until this broker serves what it is to lead. EngineError where that takes too long."""
        core = server.core
        membership = core.membership
        assert membership is not None
        if isinstance(self.engine, MemoryEngine):
            self.engine.created = server.news_of
        membership.join(core.host, core.port, server.clock.now_ms())
        server.end_turn()
        try:
            async with asyncio.timeout(JOIN_TIMEOUT_S):
                while not (membership.is_member and membership.leading.is_settled):
                    if membership.why_stopped is not None:
                        raise EngineError(membership.why_stopped)
                    await asyncio.sleep(LOOK_EVERY_S)
        except TimeoutError:
            raise EngineError(
                f"broker {core.node_id} could not register in {self.engine.name} within {JOIN_TIMEOUT_S:.0f} s: "
                "see the warnings above"
            ) from None

    async def leave(self, server: Server) -> None:
        """Hand over what is led; where the store does not answer the others take over all the same."""
        membership = server.core.membership
        assert membership is not None
        membership.leave(server.clock.now_ms())
        server.end_turn()
        try:
            async with asyncio.timeout(LEAVE_TIMEOUT_S):
                while membership.life is not Life.OUTSIDE:
                    await asyncio.sleep(LOOK_EVERY_S)
        except TimeoutError:
            pass

    def close(self) -> None:
        self.engine.close()


START_ERRORS = ClusterPlace.start_errors
