"""A partition of `__consumer_offsets` that cannot be read whole answers for none of its groups: no state, not half."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from kohort.sim.trace import Checker

if TYPE_CHECKING:
    from kohort.broker.connection import Call
    from kohort.coordinator.coordinator import Coordinator
    from kohort.sim.broker import SimBroker
    from kohort.sim.world import World

REFUSALS = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # of a partition that is not there, whatever its group
    ErrorCode.UNKNOWN_TOPIC_ID,
}
LOADING_MS = 5_000  # within which a heartbeat is believed: nobody knows better yet


class Closed(Checker):
    def begin(self, world: World) -> None:
        self._world = world
        self._started_ms = 0

    def broker_started(self, broker: SimBroker) -> None:
        self._started_ms = self._world.scheduler.now_ms

    def answered(self, coordinator: Coordinator, call: Call, message: Any, response: Any) -> None:
        if not self._world.broker.damaged:
            return
        for group_id, code in _verdicts(call.version, message, response):
            if code in REFUSALS or self._world.is_readable(group_id):
                continue
            if isinstance(message, HeartbeatRequest) and self._world.scheduler.now_ms < self._started_ms + LOADING_MS:
                continue
            error = ErrorCode.of(code).name
            self.fail(f"{call.entry.name} for {group_id} is answered {error}, its partition cannot be read")


def _verdicts(version: int, message: Any, response: Any) -> Iterator[tuple[str, int]]:
    """Each group that an answer speaks of, and the error it gives for it."""
    if isinstance(message, OffsetCommitRequest):
        yield from ((message.group_id, p.error_code) for topic in response.topics for p in topic.partitions)
    elif (isinstance(message, OffsetFetchRequest) and version >= 8) or isinstance(message, DescribeGroupsRequest):
        yield from ((group.group_id, group.error_code) for group in response.groups)
    elif isinstance(message, DeleteGroupsRequest):
        yield from ((result.group_id, result.error_code) for result in response.results)
    elif isinstance(message, ListGroupsRequest):
        yield from ((group.group_id, ErrorCode.NONE) for group in response.groups)
    elif hasattr(message, "group_id"):
        yield message.group_id, response.error_code
