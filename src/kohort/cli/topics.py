"""`kohort topics`: list, create, describe, delete, alter."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kohort.cli import names, properties
from kohort.cli.failures import Failed, WrongInput
from kohort.cli.output import JsonOption, Yes, plural, print_json, print_reports, print_table, printable
from kohort.cli.style import command, new_app
from kohort.cli.target import Target, connected, connected_without_config

if TYPE_CHECKING:
    from kohort.client import Admin

app = new_app("List, create, describe, delete and alter topics.", no_args_is_help=True)

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.", autocompletion=names.topics)]
Topics = Annotated[list[str], typer.Argument(metavar="TOPIC", help="Names of topics.", autocompletion=names.topics)]


@command(app, "list")
@connected
def list_topics(
    target: Target,
    internal: Annotated[
        bool, typer.Option("--internal", help="Internal topics too, such as __consumer_offsets.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """List topics with their partitions and replicas."""
    with target.admin() as admin:
        found = admin.describe_topics(admin.list_topics(internal=internal)).values()
    rows = [(t.name, len(t.partitions), _replication(t), t.internal) for t in found]
    if json:
        keys = ("topic", "partitions", "replication_factor", "internal")
        print_json([dict(zip(keys, row, strict=True)) for row in rows])
    else:
        hint = "no topics; create one with kohort topics create TOPIC"
        print_table(("topic", "partitions", "replication"), [row[:3] for row in rows], hint)


def _replication(topic: Any) -> int:
    return max((len(partition.replicas) for partition in topic.partitions), default=0)


@command(app)
@connected_without_config
def create(
    target: Target,
    topics: Topics,
    partitions: Annotated[
        int, typer.Option(metavar="N", help="Number of partitions; -1 for the broker's default.")
    ] = -1,
    replication_factor: Annotated[
        int, typer.Option(metavar="N", help="Replicas of each; -1 for the broker's default.")
    ] = -1,
    config: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="A configuration of the topic, e.g. retention.ms=3600000."),
    ] = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Leave topics alone that exist.")] = False,
) -> None:
    """Create topics."""
    from kohort.client.admin_types import NewTopic

    for name, number in (("--partitions", partitions), ("--replication-factor", replication_factor)):
        if number == 0 or number < -1:
            raise WrongInput(f"{name} takes a number from 1, not {number}")
    configs = properties.parse_pairs(config or (), "--config")
    with target.admin() as admin:
        if if_not_exists:
            existing = set(admin.list_topics(internal=True))
            for name in existing & set(topics):
                print(f"topic {printable(name)} exists")
            topics = [name for name in topics if name not in existing]
        for name in topics:
            admin.create_topics([NewTopic(name, partitions, replication_factor, configs)])
            print(f"created topic {printable(name)}")


@command(app)
@connected
def describe(
    target: Target,
    topics: Topics,
    json: JsonOption = False,
) -> None:
    """Show partitions, offsets and configurations.

    Of each partition the leader, the replicas and the offsets; of the configurations those that are not defaults.
    """
    with target.admin() as admin:
        reports = [_report(admin, name) for name in dict.fromkeys(topics)]
    if json:
        print_json(reports)
        return
    print_reports(reports, _print_report)


def _report(admin: Any, name: str) -> dict[str, Any]:
    from kohort.client.admin_types import Resource
    from kohort.protocol.uuids import ZERO_UUID, to_base64

    topic = _existing(admin, [name])[name]
    led = [(name, p.partition) for p in topic.partitions if p.leader >= 0]
    starts = admin.list_offsets(dict.fromkeys(led, "earliest"))
    ends = admin.list_offsets(dict.fromkeys(led, "latest"))
    resource = Resource.topic(name)
    configs = admin.describe_configs([resource])[resource]
    partitions = []
    for p in topic.partitions:
        start, end = starts.get((name, p.partition)), ends.get((name, p.partition))
        partitions.append(
            {
                "partition": p.partition,
                "leader": p.leader if p.leader >= 0 else None,
                "replicas": p.replicas,
                "isr": p.isr,
                "start_offset": start.offset if start else None,
                "end_offset": end.offset if end else None,
            }
        )
    return {
        "topic": name,
        "topic_id": None if topic.topic_id == ZERO_UUID else to_base64(topic.topic_id),
        "internal": topic.internal,
        "configs": {entry.name: entry.value for entry in configs.values() if not entry.is_default},
        "partitions": partitions,
    }


def _print_report(report: dict[str, Any]) -> None:
    partitions = report["partitions"]
    name, topic_id = printable(report["topic"]), printable(report["topic_id"])
    print(f"topic {name}: {plural(len(partitions), 'partition')}, id {topic_id}")
    for key, value in report["configs"].items():
        print(f"  {key}={printable(value)}")
    print()
    rows = [
        (
            p["partition"],
            p["leader"],
            ",".join(map(str, p["replicas"])),
            ",".join(map(str, p["isr"])),
            p["start_offset"],
            p["end_offset"],
            None if p["end_offset"] is None else p["end_offset"] - p["start_offset"],
        )
        for p in partitions
    ]
    print_table(("partition", "leader", "replicas", "isr", "start-offset", "end-offset", "records"), rows)


@command(app)
@connected
def delete(
    target: Target,
    topics: Topics,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Pass over topics that do not exist.")] = False,
    yes: Yes = False,
) -> None:
    """Delete topics and all their records. Asks first when run in a terminal."""
    with target.admin() as admin:
        if if_exists:
            existing = set(admin.list_topics(internal=True))
            topics = [name for name in topics if name in existing]
        else:
            _existing(admin, topics)
        if topics and not yes and sys.stdin.isatty():
            typer.confirm(f"Delete {', '.join(map(printable, topics))} with all records?", abort=True)
        for name in topics:
            admin.delete_topics([name])
            print(f"deleted topic {printable(name)}")


def _existing(admin: Admin, topics: Iterable[str]) -> dict[str, Any]:
    from kohort.protocol.errors import ErrorCode, KafkaError

    try:
        return admin.describe_topics(topics)
    except KafkaError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        raise Failed(f"{error.message}; kohort topics list shows those that exist") from None


@command(app)
@connected_without_config
def alter(
    target: Target,
    topic: Topic,
    partitions: Annotated[int | None, typer.Option(metavar="N", min=1, help="Grow to this many partitions.")] = None,
    config: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Set a configuration of the topic.")
    ] = None,
    delete_config: Annotated[list[str] | None, typer.Option(metavar="KEY", help="Take a configuration back.")] = None,
) -> None:
    """Add partitions to a topic, or change its configurations."""
    from kohort.client.admin_types import Resource

    changes: dict[str, str | None] = dict(properties.parse_pairs(config or (), "--config"))
    changes |= dict.fromkeys(delete_config or ())
    if partitions is None and not changes:
        raise WrongInput("nothing to alter: give --partitions, --config or --delete-config")
    with target.admin() as admin:
        count = len(_existing(admin, [topic])[topic].partitions)
        if partitions is not None and partitions <= count:
            raise Failed(f"{printable(topic)} has {plural(count, 'partition')} and can only grow: give a larger number")
        if changes:
            admin.alter_configs({Resource.topic(topic): changes})
            for name, value in changes.items():
                print(f"{printable(topic)}: {name} " + ("back to its default" if value is None else f"= {value}"))
        if partitions is not None:
            admin.create_partitions({topic: partitions})
            print(f"{printable(topic)}: {count} -> {partitions} partitions")
