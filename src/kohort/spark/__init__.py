"""Kafka on Spark as a real member of the consumer group: `spark.readStream.format("kohort")`.

`session()` gives a ready local session, `register(spark)` adds the source to any other. Options are in options.py.
"""

from typing import TYPE_CHECKING

from kohort.lazy_names import imported_on_use

if TYPE_CHECKING:
    from kohort.spark.accounting import DataLossError
    from kohort.spark.options import OptionError
    from kohort.spark.registry import from_registry, to_registry
    from kohort.spark.sessions import register, session
    from kohort.spark.source import KohortDataSource

__all__ = [
    "DataLossError",
    "KohortDataSource",
    "OptionError",
    "from_registry",
    "register",
    "session",
    "to_registry",
]

_HOMES = {
    "DataLossError": "kohort.spark.accounting",
    "KohortDataSource": "kohort.spark.source",
    "OptionError": "kohort.spark.options",
    "from_registry": "kohort.spark.registry",
    "register": "kohort.spark.sessions",
    "session": "kohort.spark.sessions",
    "to_registry": "kohort.spark.registry",
}

if not TYPE_CHECKING:
    # Imported when asked for: executors load the read path alone.
    __getattr__ = imported_on_use(globals(), _HOMES)
