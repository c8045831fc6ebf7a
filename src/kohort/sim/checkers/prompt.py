"""Who changes something is answered within `offsets.commit.timeout.ms`, however long the log takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kohort.protocol.messages import DeleteGroupsRequest, OffsetCommitRequest, OffsetDeleteRequest
from kohort.sim.trace import Checker

if TYPE_CHECKING:
    from kohort.broker.connection import Call
    from kohort.coordinator.coordinator import Coordinator
    from kohort.sim.broker import SimBroker
    from kohort.sim.world import World

CHANGES = (OffsetCommitRequest, OffsetDeleteRequest, DeleteGroupsRequest)
SLACK_MS = 10


class Prompt(Checker):
    def __init__(self) -> None:
        self._asked_ms: dict[Call, int] = {}

    def begin(self, world: World) -> None:
        self._world = world

    def broker_started(self, broker: SimBroker) -> None:
        self._asked_ms.clear()

    def asked(self, coordinator: Coordinator, call: Call, message: Any) -> None:
        if isinstance(message, CHANGES):
            self._asked_ms[call] = self._world.scheduler.now_ms

    def answered(self, coordinator: Coordinator, call: Call, message: Any, response: Any) -> None:
        if (asked_ms := self._asked_ms.pop(call, None)) is not None:
            self._judge(call, asked_ms)

    def settled(self, world: World) -> None:
        for call, asked_ms in self._asked_ms.items():
            if not call.connection.closed:
                self._judge(call, asked_ms)

    def _judge(self, call: Call, asked_ms: int) -> None:
        world = self._world
        took_ms = world.scheduler.now_ms - asked_ms
        if took_ms > world.options.commit_timeout_ms + SLACK_MS and world.broker.stalled_until_ms <= asked_ms:
            self.fail(f"{call.entry.name} of {call.client_id} has waited {took_ms} ms for the log")
