"""The gate: every request of a broker with `authorizer.class.name` passes it. Pure, apart from what it has served.

Decisions are `acls.py`'s; which permissions an api needs is the table in `needs.py`. An api without a row is closed to
all but those who may do what brokers do. What is refused in part is served in part, as in Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kohort.broker.acls import CLUSTER_NAME, OPERATIONS, Acls, Operation, Resource

if TYPE_CHECKING:
    from kohort.broker.asking import Asking
    from kohort.broker.connection import Call
    from kohort.broker.core import Core


DECIDED_AT_ONCE_BYTES = 16 * 1024
DECIDED_AT_ONCE_PARTITIONS = 1000


class Gate:
    def __init__(self, acls: Acls) -> None:
        self.acls = acls

    def may_everything(self, call: Call) -> bool:
        """The broker asks itself, or a super user does."""
        principal = call.connection.principal
        return principal is None or principal in self.acls.super_users

    def allows(self, call: Call, operation: Operation, resource: Resource, name: str) -> bool:
        connection = call.connection
        if connection.principal is None:
            return True
        return self.acls.allows(connection.principal, connection.host, operation, resource, name)

    def operations(self, call: Call, resource: Resource, name: str) -> int:
        """The bit set of what may be done with a resource."""
        return sum(1 << op for op in OPERATIONS[resource] if self.allows(call, op, resource, name))

    def serve(self, core: Core, call: Call, request: Any, now_ms: int) -> None:
        from kohort.broker.asking import Asking, Deciding  # late: only a broker with an authorizer comes here

        asking = Asking(self, core, call, request, now_ms)
        if _takes_long(call, request) and not asking.may_everything:
            core.run_elsewhere(Deciding(asking, self.decide))
            return
        self.decide(asking)
        asking.act()

    def decide(self, asking: Asking) -> None:
        from kohort.broker.needs import NEEDS

        call = asking.call
        need = NEEDS.get(call.entry.name)
        if need is not None:
            need(asking)
        elif asking.may(Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME):
            asking.serve()
        else:
            asking.close(f"{call.entry.name} is not open to {call.connection.principal}")


def _takes_long(call: Call, request: Any) -> bool:
    """Whether there may be so many rows to decide on that others should not wait for it."""
    if call.size <= DECIDED_AT_ONCE_BYTES:
        return False
    if call.entry.records:
        return sum(len(topic.partition_data) for topic in request.topic_data) > DECIDED_AT_ONCE_PARTITIONS
    return True
