"""The real core and group service; the trace hears each request, each answer as it leaves, and each event."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kohort.broker.core import Core
from kohort.broker.group_events import GroupEvents
from kohort.broker.groups import GroupService
from kohort.broker.transactions import TransactionService
from kohort.coordinator.events import GroupEvent
from kohort.protocol import messages
from kohort.protocol.errors import KafkaError

if TYPE_CHECKING:
    from kohort.broker.config import BrokerConfig
    from kohort.broker.connection import Call, Connection
    from kohort.broker.topics import Catalog
    from kohort.coordinator.coordinator import Coordinator
    from kohort.sim.world import World
    from kohort.storage.store import Store

OBSERVED = frozenset(
    (
        "OffsetCommit",
        "OffsetFetch",
        "JoinGroup",
        "Heartbeat",
        "ConsumerGroupHeartbeat",
        "ConsumerGroupDescribe",
        "LeaveGroup",
        "SyncGroup",
        "DescribeGroups",
        "ListGroups",
        "DeleteGroups",
        "OffsetDelete",
        "DeleteTopics",
    )
)


class ObservedCore(Core):
    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        store: Store,
        random_bytes: Callable[[int], bytes],
        wake: Callable[[], None],
        topics: Catalog | None = None,
    ) -> None:
        self._world = world
        self._asked: dict[Call, Any] = {}
        super().__init__(
            config,
            store,
            random_bytes=random_bytes,
            services=[lambda core: ObservedGroups(core, world), TransactionService],
            wake=wake,
            topics=topics,
        )

    @property
    def coordinator(self) -> Coordinator:
        groups = self.service(GroupService.name)
        assert isinstance(groups, GroupService)
        return groups.coordinator

    def serve(self, call: Call, request: Any, now_ms: int) -> None:
        if call.entry.name in OBSERVED:
            self._asked[call] = request
            self._world.journal.read()
            self._world.trace.asked(self.coordinator, call, request)
        elif call.entry.name == "CreatePartitions":
            self._world.journal.read()  # what was written before is told by the number of partitions it was written for
        super().serve(call, request, now_ms)

    def reply(self, call: Call, response: Any) -> None:
        self._leaves(call, response)
        super().reply(call, response)

    def reply_encoded(self, call: Call, body: bytes) -> None:
        if call in self._asked:
            self._leaves(call, getattr(messages, f"{call.entry.name}Response").decode(body, call.version))
        super().reply_encoded(call, body)

    def disconnect(self, connection: Connection, reason: str) -> None:
        """A handler that raises costs its connection, and here the run."""
        error = sys.exception()
        if error is not None and not isinstance(error, KafkaError):
            where = traceback.extract_tb(error.__traceback__)[-1]
            self._world.trace.fail(f"{reason} ({os.path.basename(where.filename)}:{where.lineno})")
        super().disconnect(connection, reason)

    def _leaves(self, call: Call, response: Any) -> None:
        if (message := self._asked.pop(call, None)) is not None:
            self._world.journal.read()
            self._world.trace.answered(self.coordinator, call, message, response)


class ObservedGroups(GroupService):
    def __init__(self, core: Core, world: World) -> None:
        super().__init__(core)
        self.events = ObservedEvents(core, world)


class ObservedEvents(GroupEvents):
    def __init__(self, core: Core, world: World) -> None:
        super().__init__(core)
        self._world = world

    def report(self, happened: list[GroupEvent]) -> None:
        self._world.journal.read()
        for event in happened:
            self._world.trace.group_event(event)
        super().report(happened)
