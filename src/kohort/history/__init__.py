"""The recorded past of consumer groups as Spark tables and reports: what happened, why, and what it cost.

tables.py reads `__consumer_offsets` of any Kafka and `__kohort_group_events` of a kohort broker; reports.py,
patterns.py and judging.py turn those tables into answers. Nothing here is a member of a group, but for
`group_events_stream`.
"""

from typing import TYPE_CHECKING

from kohort.lazy_names import imported_on_use

if TYPE_CHECKING:
    from kohort.history.judging import partition_verdicts, verdicts
    from kohort.history.patterns import (
        costs,
        flapping,
        moves,
        rebalance_costs,
        stickiness,
        storms,
        whatif,
        worst_groups,
    )
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
    "costs",
    "downtime",
    "end_offsets",
    "expressions",
    "flapping",
    "generations",
    "group_events",
    "group_events_stream",
    "group_records",
    "handovers",
    "kept_table",
    "lag",
    "member_lives",
    "moves",
    "partition_verdicts",
    "quarantine",
    "rebalance_costs",
    "rebalances",
    "record_counts",
    "stickiness",
    "storms",
    "stuck_partitions",
    "top_talkers",
    "topic_ids",
    "verdicts",
    "whatif",
    "worst_groups",
]

_HOMES = {
    "causes": "kohort.history.reports",
    "commit_progress": "kohort.history.reports",
    "commits": "kohort.history.tables",
    "costs": "kohort.history.patterns",
    "downtime": "kohort.history.reports",
    "end_offsets": "kohort.history.tables",
    "expressions": "kohort.history.reports",
    "flapping": "kohort.history.patterns",
    "generations": "kohort.history.tables",
    "group_events": "kohort.history.tables",
    "group_events_stream": "kohort.history.tables",
    "group_records": "kohort.history.tables",
    "handovers": "kohort.history.reports",
    "kept_table": "kohort.history.tables",
    "lag": "kohort.history.reports",
    "member_lives": "kohort.history.reports",
    "moves": "kohort.history.patterns",
    "partition_verdicts": "kohort.history.judging",
    "quarantine": "kohort.history.tables",
    "rebalance_costs": "kohort.history.patterns",
    "rebalances": "kohort.history.reports",
    "record_counts": "kohort.history.tables",
    "stickiness": "kohort.history.patterns",
    "storms": "kohort.history.patterns",
    "stuck_partitions": "kohort.history.reports",
    "top_talkers": "kohort.history.reports",
    "topic_ids": "kohort.history.tables",
    "verdicts": "kohort.history.judging",
    "whatif": "kohort.history.patterns",
    "worst_groups": "kohort.history.patterns",
}

if not TYPE_CHECKING:
    # Imported when asked for: Spark's workers load the decoders alone.
    __getattr__ = imported_on_use(globals(), _HOMES)
