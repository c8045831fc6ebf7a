"""One shape for requests and answers whose fields moved between versions, so that brokers from Kafka 2.1 on work.

Pure: the client builds today's shape; `downgrade` rewrites it for an old version, `upgrade` the answer back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kohort.protocol.messages import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    LeaveGroupRequest,
    OffsetFetchRequest,
    OffsetFetchResponse,
)


def _old_find_coordinator(request: Any) -> Any:
    (key,) = request.coordinator_keys
    return FindCoordinatorRequest(key=key, key_type=request.key_type)


def _old_leave_group(request: Any) -> Any:
    (member,) = request.members
    return LeaveGroupRequest(group_id=request.group_id, member_id=member.member_id)


def _old_offset_fetch(request: Any) -> Any:
    (group,) = request.groups
    topic = OffsetFetchRequest.OffsetFetchRequestTopic
    topics = group.topics and [topic(name=t.name, partition_indexes=t.partition_indexes) for t in group.topics]
    return OffsetFetchRequest(group_id=group.group_id, topics=topics, require_stable=request.require_stable)


_DOWNGRADES: dict[type, tuple[int, Callable[[Any], Any]]] = {
    FindCoordinatorRequest: (4, _old_find_coordinator),
    LeaveGroupRequest: (3, _old_leave_group),
    OffsetFetchRequest: (8, _old_offset_fetch),
}


def downgrade(request: Any, version: int) -> Any:
    entry = _DOWNGRADES.get(type(request))
    if entry is None or version >= entry[0]:
        return request
    older = entry[1](request)
    if type(older) is OffsetFetchRequest and version < 7:
        older.require_stable = False
    return older


def upgrade(request: Any, response: Any, version: int) -> Any:
    """Rewrites the answer in place; `request` is today's shape."""
    if type(response) is FindCoordinatorResponse and version < 4:
        response.coordinators = [
            FindCoordinatorResponse.Coordinator(
                key=request.coordinator_keys[0],
                node_id=response.node_id,
                host=response.host,
                port=response.port,
                error_code=response.error_code,
                error_message=response.error_message,
            )
        ]
    elif type(response) is OffsetFetchResponse and version < 8:
        group = OffsetFetchResponse.OffsetFetchResponseGroup
        response.groups = [
            group(group_id=request.groups[0].group_id, topics=response.topics, error_code=response.error_code)
        ]
    return response
