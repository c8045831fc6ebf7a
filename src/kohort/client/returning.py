"""A static leader that comes back to a stable group (KIP-814) keeps an assignment of which it knows its own part alone.

What was added to the topics while it was away is in its metadata from the start, so no change would ever tell it that
nobody reads it. It asks the coordinator who has what, until it is told; where something is left out it joins again, as
the leader of a rebalance that deals everything out.
"""

from __future__ import annotations

from typing import Any

from kohort.assignors import ConsumerProtocolError, decode_assignment
from kohort.client.effects import Destination
from kohort.client.member_state import MemberBase
from kohort.client.snapshots import partition_set
from kohort.client.types import TopicPartition, partition_list
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import DescribeGroupsRequest

STABLE = "Stable"
MOST_TOLD = 5


class Returning(MemberBase):
    def _look_at_assignments(self) -> None:
        """After its SyncGroup, and after each heartbeat until there is an answer."""
        if self._is_unseen and self._look is None and self.in_group and not self._rejoin_needed:
            request = DescribeGroupsRequest(groups=[self.config.group_id])
            self._look = self._out.send(request, Destination.COORDINATOR, self.config.request_timeout_ms)

    def _seen(self) -> None:
        self._is_unseen, self._look = False, None

    def _looked(self, response: Any, now_ms: int) -> None:
        self._look = None
        group = response.groups[0]
        code = ErrorCode.of(group.error_code)
        if code.retriable:
            return
        self._seen()
        if code is ErrorCode.GROUP_ID_NOT_FOUND:  # of the consumer protocol by now: the broker looks after its topics
            return
        if code is not ErrorCode.NONE:
            self._cannot_look(code.name, now_ms)
        elif group.group_state == STABLE and not self._rejoin_needed:
            self._compare(group.members, now_ms)

    def _compare(self, members: Any, now_ms: int) -> None:
        dealt: set[TopicPartition] = set()
        try:
            for member in members:
                dealt |= partition_set(decode_assignment(member.member_assignment).partitions)
        except ConsumerProtocolError as error:
            self._cannot_look(str(error), now_ms)
            return
        topics = self._assigned_from or {}
        wanted = partition_set({name: range(topic.partition_count) for name, topic in topics.items()})
        if left_out := sorted(wanted - dealt):
            some = partition_list(left_out[:MOST_TOLD]) + (", ..." if len(left_out) > MOST_TOLD else "")
            self._request_rejoin(f"assigned to nobody while the leader was away: {some}", now_ms)

    def _cannot_look(self, why: str, now_ms: int) -> None:
        self._seen()
        self._note(
            f"leads an assignment that it cannot see ({why}): partitions that were added while it was away are read by "
            "nobody until the next rebalance",
            now_ms,
            "WARNING",
        )
