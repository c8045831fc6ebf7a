"""Kafka's consumer-group coordination for Python and Spark.

Names are imported on first use, so that a process pays only for what it needs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kohort.broker.embedded import Broker
    from kohort.client import Admin, AsyncConsumer, Consumer, Producer

__all__ = ["Admin", "AsyncConsumer", "Broker", "Consumer", "Producer"]
__version__ = "0.1.0"

_HOMES = {
    "Admin": "kohort.client",
    "AsyncConsumer": "kohort.client",
    "Broker": "kohort.broker.embedded",
    "Consumer": "kohort.client",
    "Producer": "kohort.client",
}


if not TYPE_CHECKING:  # a type checker knows the names above, and that there are no others

    def __getattr__(name: str) -> Any:
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(home), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
