"""The recorded past of consumer groups as Spark tables and reports: what happened, why, and what it cost.

tables.py reads `__consumer_offsets` of any Kafka and `__kohort_group_events` of a kohort broker, reports.py turns those
tables into answers. Nothing here is a member of a group, but for `group_events_stream`.
"""

from typing import TYPE_CHECKING

from kohort.lazy_names import imported_on_use

if TYPE_CHECKING:
    from kohort.history.reports import (
        causes,
        commit_progress,
        downtime,
        expressions,
        handovers,
        lag,
        member_lives,
        rebalances,
        stuck_partitions,
        top_talkers,
    )
    from kohort.history.tables import (
        commits,
        end_offsets,
        generations,
        group_events,
        group_events_stream,
        group_records,
        kept_table,
        quarantine,
        record_counts,
        topic_ids,
    )

__all__ = [
    "causes",
    "commit_progress",
    "commits",
    "downtime",
    "end_offsets",
    "expressions",
    "generations",
    "group_events",
    "group_events_stream",
    "group_records",
    "handovers",
    "kept_table",
    "lag",
    "member_lives",
    "quarantine",
    "rebalances",
    "record_counts",
    "stuck_partitions",
    "top_talkers",
    "topic_ids",
]

_HOMES = {
    "causes": "kohort.history.reports",
    "commit_progress": "kohort.history.reports",
    "commits": "kohort.history.tables",
    "downtime": "kohort.history.reports",
    "end_offsets": "kohort.history.tables",
    "expressions": "kohort.history.reports",
    "generations": "kohort.history.tables",
    "group_events": "kohort.history.tables",
    "group_events_stream": "kohort.history.tables",
    "group_records": "kohort.history.tables",
    "handovers": "kohort.history.reports",
    "kept_table": "kohort.history.tables",
    "lag": "kohort.history.reports",
    "member_lives": "kohort.history.reports",
    "quarantine": "kohort.history.tables",
    "rebalances": "kohort.history.reports",
    "record_counts": "kohort.history.tables",
    "stuck_partitions": "kohort.history.reports",
    "top_talkers": "kohort.history.reports",
    "topic_ids": "kohort.history.tables",
}

if not TYPE_CHECKING:
    # Imported when asked for: Spark's workers load the decoders alone.
    __getattr__ = imported_on_use(globals(), _HOMES)
