"""From a configured name, path or object to assignors: what `partition.assignment.strategy` accepts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from kohort.assignors.naming import AssignorConfigError, find_object
from kohort.assignors.range import RangeAssignor
from kohort.assignors.roundrobin import RoundRobinAssignor
from kohort.assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from kohort.assignors.types import Assignor, RebalanceProtocol

BUILTIN: dict[str, type[Assignor]] = {
    assignor.name: assignor
    for assignor in (RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor)
}
_JAVA_PACKAGE = "org.apache.kafka.clients.consumer."
_JAVA_CLASSES = {_JAVA_PACKAGE + assignor.__name__: assignor for assignor in BUILTIN.values()}
_METHODS = ("assign", "subscription_user_data", "on_assignment")


def load_assignor(spec: str | type | Assignor) -> Assignor:
    """One assignor: a built-in name, `package.module:Class`, a class, or an object that already is one.

    The class names of Kafka's own assignors work too, so that a Java consumer's configuration can be taken over.
    """
    found: object = _find(spec.strip()) if isinstance(spec, str) else spec
    if isinstance(found, type):
        kind = found
        try:
            found = kind()
        except TypeError as e:
            raise AssignorConfigError(f"assignor {kind.__qualname__} must be made without arguments: {e}") from e
    return _checked(found)


def load_assignors(spec: str | type | Assignor | Sequence[str | type | Assignor]) -> list[Assignor]:
    """Several in order of preference, from a list or from a string with commas."""
    if isinstance(spec, str):
        spec = [name for name in spec.split(",") if name.strip()]
    elif isinstance(spec, type) or not isinstance(spec, Sequence):
        spec = [spec]
    assignors = [load_assignor(one) for one in spec]
    names = [assignor.name for assignor in assignors]
    if not names:
        raise AssignorConfigError(f"no assignor configured: use one or more of {_builtin_names()}")
    if len(set(names)) < len(names):
        raise AssignorConfigError(f"assignor names must differ, got {', '.join(names)}")
    return assignors


def rebalance_protocol(assignors: Sequence[Assignor]) -> RebalanceProtocol:
    """The highest protocol that all of a member's assignors support."""
    common = set.intersection(*(set(assignor.supported_protocols) for assignor in assignors))
    if not common:
        names = ", ".join(assignor.name for assignor in assignors)
        raise AssignorConfigError(f"assignors {names} have no rebalance protocol in common")
    return RebalanceProtocol(max(common))


def _find(name: str) -> object:
    if name in BUILTIN:
        return BUILTIN[name]
    if name in _JAVA_CLASSES:
        return _JAVA_CLASSES[name]
    return find_object(name, f"{_builtin_names()}, or 'package.module:Class'")


def _checked(assignor: object) -> Assignor:
    kind = type(assignor).__qualname__
    name = getattr(assignor, "name", None)
    if not isinstance(name, str) or not name:
        raise AssignorConfigError(f"assignor {kind} needs a `name`: the string all members of the group know it by")
    missing = [method for method in _METHODS if not callable(getattr(assignor, method, None))]
    if missing:
        raise AssignorConfigError(f"assignor {name!r} ({kind}) lacks {', '.join(missing)}: subclass kohort's Assignor")
    if getattr(type(assignor), "assign", None) is Assignor.assign:
        raise AssignorConfigError(f"assignor {name!r} ({kind}) must define assign(metadata, subscriptions)")
    if not getattr(assignor, "supported_protocols", None):
        raise AssignorConfigError(f"assignor {name!r} ({kind}) needs `supported_protocols`, EAGER or COOPERATIVE")
    return cast(Assignor, assignor)


def _builtin_names() -> str:
    return ", ".join(BUILTIN)
