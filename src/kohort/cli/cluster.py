"""`kohort cluster`: the brokers of a cluster."""

from __future__ import annotations

from kohort.cli.output import JsonOption, print_json, print_table, printable
from kohort.cli.style import command, new_app
from kohort.cli.target import Target, connected

app = new_app()


@command(app)
@connected
def cluster(target: Target, json: JsonOption = False) -> None:
    """Show the id, the brokers and the controller of a cluster."""
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
