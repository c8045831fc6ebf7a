"""The recorded past of consumer groups as Spark tables and reports: what happened, why, and what it cost.

tables.py reads `__consumer_offsets` of any Kafka and `__kohort_group_events` of a kohort broker, reports.py turns those
tables into answers. Nothing here is a member of a group, but for `group_events_stream`.
"""

from typing import Any

_HOMES = {
    "causes": "reports",
    "commit_progress": "reports",
    "commits": "tables",
    "downtime": "reports",
    "end_offsets": "tables",
    "generations": "tables",
    "group_events": "tables",
    "group_events_stream": "tables",
    "group_records": "tables",
    "lag": "reports",
    "member_lives": "reports",
    "quarantine": "tables",
    "rebalances": "reports",
    "record_counts": "tables",
    "stuck_partitions": "reports",
    "top_talkers": "reports",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    """Imported when asked for: Spark's workers load the decoders alone."""
    import importlib

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
