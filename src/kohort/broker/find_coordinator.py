"""FindCoordinator: which broker coordinates a group or a transaction. The services know; here they are asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kohort.broker.table import Api
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import FindCoordinatorResponse

if TYPE_CHECKING:
    from kohort.broker.connection import Call
    from kohort.broker.core import Core
    from kohort.broker.long_work import Steps
    from kohort.broker.topics import Partition

KEYS_AT_ONCE = 500
GROUP, TRANSACTION, SHARE = 0, 1, 2  # what can be asked for; there are no share groups here


class Node(NamedTuple):
    node_id: int
    host: str
    port: int


class Endpoint(NamedTuple):
    """A broker as Metadata shows it."""

    node_id: int
    host: str
    port: int
    rack: str | None


NO_NODE = Node(-1, "", -1)


def find_coordinator(core: Core, call: Call, message: Any, now_ms: int) -> Steps:
    if call.version < 4:
        error, node = _coordinator_of(core, call, message.key_type, message.key, now_ms)
        text = error.name if not error else error.message
        return FindCoordinatorResponse(
            error_code=error, error_message=text, node_id=node.node_id, host=node.host, port=node.port
        )
    coordinators = []
    for number, key in enumerate(message.coordinator_keys, 1):
        if number % KEYS_AT_ONCE == 0:
            yield
        error, node = _coordinator_of(core, call, message.key_type, key, now_ms)
        found = FindCoordinatorResponse.Coordinator(
            key=key, node_id=node.node_id, host=node.host, port=node.port, error_code=error
        )
        if message.key_type > SHARE:
            found.error_message = error.message
        coordinators.append(found)
    return FindCoordinatorResponse(coordinators=coordinators)


def _coordinator_of(core: Core, call: Call, key_type: int, key: str, now_ms: int) -> tuple[ErrorCode, Node]:
    own = Node(core.node_id, *core.address_for(call.connection))
    for service in core.services:
        if service.key_type == key_type:
            error, node = service.coordinator_of(key, now_ms)
            return error, own if node.node_id == own.node_id else node
    return ErrorCode.INVALID_REQUEST, NO_NODE


def leader_node(core: Core, partition: Partition) -> tuple[ErrorCode, Node]:
    """Where the leader of a coordinator's partition can be reached; in a cluster there may be none for a while."""
    if partition.leader_id is None:
        return ErrorCode.NONE, Node(core.node_id, core.host, core.port)
    leader = core.endpoint(partition.leader_id)
    if leader is None:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, NO_NODE
    return ErrorCode.NONE, Node(leader.node_id, leader.host, leader.port)


API = Api(10, "FindCoordinator", 0, 6, find_coordinator)
