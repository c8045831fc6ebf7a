"""Kafka's consumer-group coordination for Python and Spark.

Names are imported on first use, so that a process pays only for what it needs.
"""

from typing import TYPE_CHECKING

from kohort.lazy_names import imported_on_use

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
    __getattr__ = imported_on_use(globals(), _HOMES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
