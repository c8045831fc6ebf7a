"""Partitions that another broker leads: how a client is told, and who that is (KIP-951)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import ProduceResponse

if TYPE_CHECKING:
    from kohort.broker.core import Core
    from kohort.broker.find_coordinator import Endpoint
    from kohort.broker.topics import Partition

_LEADER_SINCE = 10


def is_known_elsewhere(core: Core, partition: Partition) -> bool:
    """Not where nobody leads, nor where this broker will when it has read the log."""
    return core.leader_of(partition) not in (-1, core.node_id)


def endpoints(core: Core, row: Callable[..., Any], node_ids: Iterable[int]) -> list[Any]:
    found = filter(None, map(core.endpoint, node_ids))
    return [row(node_id=b.node_id, host=b.host, port=b.port, rack=b.rack) for b in found]


def refuse_produce(core: Core, pending: Any, partition: Partition, result: Any) -> None:
    pending.refuse(result, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if pending.call.version < _LEADER_SINCE or not is_known_elsewhere(core, partition):
        return
    leader_id = core.leader_of(partition)
    result.current_leader = ProduceResponse.LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=partition.leader_epoch)
    response = pending.response
    if all(known.node_id != leader_id for known in response.node_endpoints):
        response.node_endpoints += endpoints(core, response.NodeEndpoint, [leader_id])


def controller_id(core: Core, brokers: Sequence[Endpoint]) -> int:
    """Clients send what changes the cluster to the controller; any broker can do it, so it is the one that is asked."""
    known = any(broker.node_id == core.node_id for broker in brokers)
    return core.node_id if known or not brokers else brokers[0].node_id
