"""The gate: every request of a broker with `authorizer.class.name` passes it. Pure, apart from what it has served.

Decisions are `acls.py`'s; which permissions an api needs is the table in `needs.py`. An api without a row is closed to
all but those who may do what brokers do. What is refused in part is served in part, as in Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kohort.broker.acls import CLUSTER_NAME, OPERATIONS, Acls, Operation, Resource

if TYPE_CHECKING:
    from kohort.broker.connection import Call
    from kohort.broker.core import Core


class Gate:
    def __init__(self, acls: Acls) -> None:
        self.acls = acls

    def allows(self, call: Call, operation: Operation, resource: Resource, name: str) -> bool:
        connection = call.connection
        if connection.principal is None:
            return True  # the broker asks itself
        return self.acls.allows(connection.principal, connection.host, operation, resource, name)

    def operations(self, call: Call, resource: Resource, name: str) -> int:
        """The bit set of what may be done with a resource."""
        return sum(1 << op for op in OPERATIONS[resource] if self.allows(call, op, resource, name))

    def serve(self, core: Core, call: Call, request: Any, now_ms: int) -> None:
        from kohort.broker.asking import Asking  # late: only a broker with an authorizer comes here
        from kohort.broker.needs import NEEDS

        asking = Asking(self, core, call, request, now_ms)
        need = NEEDS.get(call.entry.name)
        if need is not None:
            need(asking)
        elif asking.may(Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME):
            asking.serve()
        else:
            core.disconnect(call.connection, f"{call.entry.name} is not open to {call.connection.principal}")
