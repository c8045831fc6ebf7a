"""How each report of `kohort history` is shown: its title, which rows come first, its columns. No Spark until asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kohort.cli.times import clock_time, human_ms


def shown(heading: str, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, bool):
        return "yes" if value else "no"
    if heading in TIMES:
        return clock_time(value)
    if heading in DURATIONS:
        return human_ms(value)
    if heading == "host":
        return value.lstrip("/")
    if heading in SHARES:
        return f"{value:.2%}" if 0 < value < 0.01 else f"{value:.0%}"
    return f"{value:.1f}" if isinstance(value, float) else value


TIMES = {
    "started",
    "ended",
    "targeted",
    "released",
    "assigned",
    "last",
    "hour",
    "joined",
    "left",
    "start",
    "time",
    "since",
    "last-commit",
}
SHARES = {"share", "kept-share"}
DURATIONS = {"took", "standstill", "estimated", "longest", "rebalancing", "lifetime", "behind", "waited"}


def _latest(column: str) -> Callable[[], list[Any]]:
    return lambda: [_column(column).desc_nulls_last()]


def _most(*columns: str) -> Callable[[], list[Any]]:
    return lambda: [_column(column).desc_nulls_last() for column in columns]


def _column(name: str) -> Any:
    from pyspark.sql import functions as f

    return f.col(name)


LAYOUTS: dict[str, tuple[str, Callable[[], list[Any]], dict[str, str]]] = {
    "groups": (
        "Groups, the worst first",
        lambda: [
            _column("partition_s").desc_nulls_last(),
            _column("standstill_ms").desc_nulls_last(),
            _column("rebalances").desc_nulls_last(),
            _column("lag").desc_nulls_last(),
        ],
        {
            "group": "group_id",
            "verdict": "verdict",
            "rebalances": "rebalances",
            "standstill": "standstill_ms",
            "estimated": "estimated",
            "partition-s": "partition_s",
            "storms": "storms",
            "flapping": "flapping",
            "moved/rebalance": "moved_per_rebalance",
            "lag": "lag",
            "behind": "lag_ms",
        },
    ),
    "rebalances": (
        "Rebalances, the latest first",
        _latest("started"),
        {
            "started": "started",
            "group": "group_id",
            "generation": "generation",
            "cause": "cause",
            "member": "member",
            "took": "duration_ms",
            "standstill": "standstill_ms",
            "estimated": "estimated",
            "before": "members_before",
            "after": "members_after",
        },
    ),
    "causes": (
        "Why groups rebalanced",
        lambda: [_column("standstill_ms").desc(), _column("rebalances").desc()],
        {
            "group": "group_id",
            "cause": "cause",
            "rebalances": "rebalances",
            "share": "share",
            "standstill": "standstill_ms",
            "estimated": "estimated_ms",
            "longest": "longest_ms",
            "last": "last",
        },
    ),
    "costs": (
        "What causes cost, in partition-seconds without a reader",
        _most("partition_s", "rebalances"),
        {
            "group": "group_id",
            "cause": "cause",
            "rebalances": "rebalances",
            "partition-s": "partition_s",
            "unnoticed-s": "unnoticed_s",
            "estimated-s": "estimated_s",
            "partitions": "partitions",
        },
    ),
    "storms": (
        "Storms: five rebalances or more within five minutes, the longest first",
        _most("rebalances", "started"),
        {
            "started": "started",
            "ended": "ended",
            "group": "group_id",
            "rebalances": "rebalances",
            "cause": "cause",
            "standstill": "standstill_ms",
        },
    ),
    "flapping": (
        "Flapping members: in and out three times or more within ten minutes",
        _most("times", "started"),
        {
            "group": "group_id",
            "client-id": "client_id",
            "host": "client_host",
            "started": "started",
            "ended": "ended",
            "times": "times",
            "how": "how",
        },
    ),
    "downtime": (
        "Standstill by hour, the longest first",
        lambda: [_column("standstill_ms").desc(), _column("hour").desc()],
        {
            "hour": "hour",
            "group": "group_id",
            "standstill": "standstill_ms",
            "estimated": "estimated_ms",
            "share": "share",
            "rebalancing": "rebalancing_ms",
            "rebalances": "rebalances",
        },
    ),
    "moves": (
        "Partitions that changed hands, the latest generation first",
        _latest("time"),
        {
            "time": "time",
            "group": "group_id",
            "generation": "generation",
            "members": "members",
            "moved": "moved",
            "kept": "kept",
            "lost": "lost",
            "came": "came",
            "most": "most",
            "least": "least",
        },
    ),
    "stickiness": (
        "How sticky assignments are, the least first",
        _most("moved_per_rebalance", "moved"),
        {
            "group": "group_id",
            "generations": "generations",
            "moved": "moved",
            "moved/rebalance": "moved_per_rebalance",
            "kept-share": "kept_share",
            "most": "most",
            "uneven": "uneven",
            "idle": "idle",
        },
    ),
    "members": (
        "Members, those who came last first",
        _latest("joined"),
        {
            "group": "group_id",
            "client-id": "client_id",
            "host": "client_host",
            "joined": "joined",
            "left": "left",
            "lifetime": "lifetime_ms",
            "how": "ended",
            "rejoins": "rejoins",
        },
    ),
    "handovers": (
        "Partitions that went from member to member (KIP-848), the latest first",
        _latest("targeted"),
        {
            "group": "group_id",
            "topic": "topic",
            "partition": "partition",
            "from": "from_member",
            "to": "to_member",
            "targeted": "targeted",
            "released": "released",
            "assigned": "assigned",
            "waited": "waited_ms",
        },
    ),
    "expressions": (
        "What subscriptions by regular expression stand for (KIP-848)",
        _latest("time"),
        {"time": "time", "group": "group_id", "regex": "regex", "topics": "topics"},
    ),
    "progress": (
        "Committed progress by minute, the latest first",
        _latest("start"),
        {
            "start": "start",
            "group": "group_id",
            "topic": "topic",
            "partition": "partition",
            "commits": "commits",
            "records": "records",
            "records/s": "records_per_s",
            "rewinds": "rewinds",
        },
    ),
    "lag": (
        "Lag over time, the latest first",
        lambda: [_column("time").desc(), _column("lag").desc_nulls_last()],
        {
            "time": "time",
            "group": "group_id",
            "topic": "topic",
            "partition": "partition",
            "committed": "committed_offset",
            "end-offset": "end_offset",
            "lag": "lag",
            "behind": "lag_ms",
        },
    ),
    "verdicts": (
        "Verdicts hour by hour, the latest first",
        lambda: [_column("time").desc(), _column("lag").desc_nulls_last()],
        {
            "time": "time",
            "group": "group_id",
            "verdict": "verdict",
            "keep-up": "ok",
            "rising": "rising",
            "rewound": "rewound",
            "stopped": "stopped",
            "stalled": "stalled",
            "lag": "lag",
        },
    ),
    "stuck": (
        "Stuck: no progress though records arrived",
        _latest("lag"),
        {
            "group": "group_id",
            "topic": "topic",
            "partition": "partition",
            "since": "since",
            "committed": "committed_offset",
            "arrived": "arrived",
            "lag": "lag",
            "last-commit": "last_commit",
        },
    ),
    "talkers": (
        "Who writes to __consumer_offsets",
        lambda: [_column("stored_bytes").desc()],
        {
            "group": "group_id",
            "commits": "commits",
            "share": "share",
            "commits/s": "commits_per_s",
            "partitions": "partitions",
            "records": "records",
            "generations": "generations",
            "bytes": "stored_bytes",
        },
    ),
}
