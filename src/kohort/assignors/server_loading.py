"""From `group.consumer.assignors` to a broker's assignors: Kafka's two by name, others by `package.module:Class`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from kohort.assignors.naming import AssignorConfigError, find_object
from kohort.assignors.server import ServerAssignor
from kohort.assignors.server_range import ServerRangeAssignor
from kohort.assignors.server_uniform import UniformAssignor

SERVER_BUILTIN: dict[str, type[ServerAssignor]] = {
    "uniform": UniformAssignor,
    "range": ServerRangeAssignor,
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": UniformAssignor,
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": ServerRangeAssignor,
}
_USE = "uniform, range or 'package.module:Class'"


def load_server_assignors(specs: Sequence[str]) -> dict[str, ServerAssignor]:
    """By name, the default first."""
    assignors: dict[str, ServerAssignor] = {}
    for spec in specs:
        assignor = _load(spec.strip())
        if assignor.name in assignors:
            raise AssignorConfigError(f"group.consumer.assignors names {assignor.name} twice")
        assignors[assignor.name] = assignor
    if not assignors:
        raise AssignorConfigError(f"group.consumer.assignors is empty: use one or more of {_USE}")
    return assignors


def is_builtin(assignor: ServerAssignor) -> bool:
    """Known to be quick and right: need not be watched."""
    return type(assignor) in SERVER_BUILTIN.values()


def _load(spec: str) -> ServerAssignor:
    kind = SERVER_BUILTIN.get(spec)
    found: object = kind if kind is not None else find_object(spec, _USE)
    if isinstance(found, type):
        try:
            found = found()
        except TypeError as e:
            raise AssignorConfigError(f"assignor {spec} must be made without arguments: {e}") from e
    name = getattr(found, "name", None)
    if not isinstance(name, str) or not name:
        raise AssignorConfigError(f"assignor {spec} needs a `name`: what members ask for it by")
    if not callable(getattr(found, "assign", None)):
        raise AssignorConfigError(f"assignor {spec} needs assign(spec): see kohort.assignors.ServerAssignor")
    return cast(ServerAssignor, found)
