"""Kafka on Spark as a real member of the consumer group: `spark.readStream.format("kohort")`.

`session()` gives a ready local session, `register(spark)` adds the source to any other. Options are in options.py.
"""

from typing import Any

__all__ = ["DataLossError", "KohortDataSource", "OptionError", "register", "session"]

_HOMES = {
    "DataLossError": "kohort.spark.accounting",
    "KohortDataSource": "kohort.spark.source",
    "OptionError": "kohort.spark.options",
    "register": "kohort.spark.sessions",
    "session": "kohort.spark.sessions",
}


def __getattr__(name: str) -> Any:
    """Imported when asked for: executors load the read path alone."""
    import importlib

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
