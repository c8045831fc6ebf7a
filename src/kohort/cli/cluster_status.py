"""`kohort cluster status`: a cluster as its store or its brokers tell it, as tables."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from kohort.cli.failures import Failed
from kohort.cli.output import plural, print_table, printable

NEWS_SHOWN = 10


def from_store(url: str) -> dict[str, Any]:
    from kohort.broker.cluster_boot import START_ERRORS
    from kohort.broker.cluster_report import read_report

    try:
        return read_report(url)
    except START_ERRORS as error:
        raise Failed(str(error)) from None


def from_brokers(admin: Any) -> dict[str, Any]:
    """What any Kafka tells."""
    described = admin.describe_cluster()
    topics = admin.describe_topics(admin.list_topics(internal=True))
    partitions: list[dict[str, Any]] = [
        {"topic": name, "partition": row.partition, "leader": row.leader if row.leader >= 0 else None}
        | {"epoch": row.leader_epoch}
        for name, topic in topics.items()
        for row in topic.partitions
    ]
    leads: dict[int | None, int] = {}
    for row in partitions:
        leads[row["leader"]] = leads.get(row["leader"], 0) + 1
    brokers = [
        {"id": node_id, "host": host, "port": port, "rack": rack, "leads": leads.get(node_id, 0)}
        for node_id, (host, port, rack) in sorted(described.nodes.items())
    ]
    return {
        "cluster_id": described.cluster_id,
        "brokers": brokers,
        "partitions": partitions,
        "leaderless": leads.get(None, 0),
    }


def show(found: dict[str, Any], partitions: bool) -> None:
    print(f"cluster  {printable(found['cluster_id'])}\n")
    is_store = "news" in found
    columns = ["broker", "host", "port", "rack", "leads"]
    keys = ["id", "host", "port", "rack", "leads"]
    if is_store:
        columns += ["coordinates", "status", "life", "journal"]
        keys += ["coordinates", "status", "incarnation", "journal_objects"]
    print_table(columns, [[_cell(row, key) for key in keys] for row in found["brokers"]], "no broker")
    if found["leaderless"]:
        print(f"\n{plural(found['leaderless'], 'partition')} without a leader")
    for problem in found.get("problems", []):
        print(f"\n{printable(problem)}")
    if partitions:
        print()
        rows = [[row["topic"], row["partition"], row["leader"], row["epoch"]] for row in found["partitions"]]
        print_table(["topic", "partition", "leader", "epoch"], rows, "no partitions")
    if is_store:
        print()
        rows = [[_time(n["at_ms"]), n["broker"], n["what"], n["reason"]] for n in found["news"][-NEWS_SHOWN:]]
        print_table(["time", "broker", "what", "why"], rows)


def _cell(row: dict[str, Any], key: str) -> Any:
    if key == "status" and row["drained"]:
        return f"{row[key]}, drained"
    return row[key]


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000).strftime("%Y-%m-%d %H:%M:%S")
