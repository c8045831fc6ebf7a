"""`kohort cluster`: the brokers of a cluster, who leads what, and moving that."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from kohort.cli import names
from kohort.cli.output import JsonOption, print_json, print_table, printable
from kohort.cli.style import GroupWithOptions, command, new_app
from kohort.cli.target import Target, connected

app = new_app(cls=GroupWithOptions, invoke_without_command=True)

Store = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        envvar="KOHORT_CLUSTER",
        metavar="URL",
        help="The store of a cluster of kohort, as given to kohort serve: it tells more than its brokers do.",
    ),
]
Wait = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", min=0, help="How long to wait until it is done; 0 does not.")
]


@app.callback(invoke_without_command=True)
@connected
def cluster(target: Target, ctx: typer.Context, json: JsonOption = False) -> None:
    """Show the id, the brokers and the controller of a cluster; with a command, more."""
    if ctx.invoked_subcommand is not None:
        return
    with target.admin() as admin:
        found = admin.describe_cluster()
    rows = [
        (node_id, host, port, rack, "yes" if node_id == found.controller_id else None)
        for node_id, (host, port, rack) in sorted(found.nodes.items())
    ]
    if json:
        keys = ("id", "host", "port", "rack")
        brokers = [dict(zip(keys, row[:4], strict=True)) for row in rows]
        print_json({"cluster_id": found.cluster_id, "controller_id": found.controller_id, "brokers": brokers})
        return
    print(f"cluster  {printable(found.cluster_id)}\n")
    print_table(("broker", "host", "port", "rack", "controller"), rows)


@command(app)
@connected
def status(
    target: Target,
    cluster: Store = None,
    partitions: Annotated[bool, typer.Option("--partitions", help="Show every partition.")] = False,
    json: JsonOption = False,
) -> None:
    """Show brokers and what they lead; from the store of a cluster also their lives, and who was taken for dead."""
    from kohort.cli import cluster_status

    found: dict[str, Any]
    if cluster is not None:
        found = cluster_status.from_store(cluster)
    else:
        with target.admin() as admin:
            found = cluster_status.from_brokers(admin)
    if json:
        print_json(found)
    else:
        cluster_status.show(found, partitions)


@command(app)
@connected
def move(
    target: Target,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.", autocompletion=names.topics)],
    partition: Annotated[int, typer.Argument(metavar="PARTITION", help="The number of the partition.")],
    to: Annotated[int, typer.Option("--to", metavar="NODE", help="The id of the broker that is to lead it.")],
    timeout: Wait = 30,
    json: JsonOption = False,
) -> None:
    """Have another broker lead a partition."""
    from kohort.cli import cluster_moves

    with target.admin() as admin:
        found = cluster_moves.move(admin, topic, partition, to, timeout)
    if json:
        print_json(found)
    else:
        print(cluster_moves.said_of_move(found))


@command(app)
@connected
def drain(
    target: Target,
    node: Annotated[int, typer.Argument(metavar="NODE", help="The id of the broker.")],
    end: Annotated[bool, typer.Option("--end", help="It may lead again.")] = False,
    timeout: Wait = 60,
    json: JsonOption = False,
) -> None:
    """Have a broker of a cluster of kohort lead nothing, until this is ended; other brokers lead instead."""
    from kohort.cli import cluster_moves

    with target.admin() as admin:
        found = cluster_moves.end_drain(admin, node) if end else cluster_moves.drain(admin, node, timeout)
    if json:
        print_json(found)
    else:
        print(cluster_moves.said_of_drain(found))
