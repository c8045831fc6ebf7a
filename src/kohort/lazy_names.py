"""Names of a package that are imported on first use, so that a process pays only for what it needs."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def named(module: str, name: str) -> Any:
    """What has this name in a module that is imported now, where it is not yet."""
    return getattr(import_module(module), name)


def imported_on_use(namespace: dict[str, Any], homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package with these globals; `homes` says in which module each name lives."""

    def find(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {namespace['__name__']!r} has no attribute {name!r}")
        value = namespace[name] = named(home, name)
        return value

    return find
