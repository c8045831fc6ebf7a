"""`kohort configs`: configurations of topics, brokers and groups, shown and changed."""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer

from kohort.cli import names, properties
from kohort.cli.failures import Failed, WrongInput
from kohort.cli.output import JsonOption, print_json, print_table, printable
from kohort.cli.style import command, new_app
from kohort.cli.target import Target, connected, connected_without_config

app = new_app("Show and change the configurations of topics, brokers and groups.", no_args_is_help=True)

SOURCES = {
    1: "topic",
    2: "broker",
    3: "all brokers",
    4: "start of the broker",
    5: "default",
    6: "broker's logger",
    7: "client metrics",
    8: "group",
}
SECRET = "(secret)"

TopicOption = Annotated[
    str | None, typer.Option("--topic", "-t", metavar="TOPIC", help="Of a topic.", autocompletion=names.topics)
]
BrokerOption = Annotated[str | None, typer.Option("--broker", metavar="ID", help="Of a broker, by its id.")]
GroupOption = Annotated[
    str | None, typer.Option("--group", "-g", metavar="GROUP", help="Of a group.", autocompletion=names.groups)
]
EntityType = Annotated[str | None, typer.Option(metavar="TYPE", hidden=True, help="As in Kafka's tool.")]
EntityName = Annotated[str | None, typer.Option(metavar="NAME", hidden=True, help="As in Kafka's tool.")]


def _resource(topic: str | None, broker: str | None, group: str | None, kind: str | None, name: str | None) -> Any:
    from kohort.client.admin_types import Resource

    if kind is not None:
        given = {"topics": "topic", "brokers": "broker", "groups": "group"}.get(kind)
        if given is None or name is None:
            raise WrongInput("--entity-type takes topics, brokers or groups, with --entity-name NAME")
        topic, broker, group = (name if given == one else None for one in ("topic", "broker", "group"))
    made = [("topic", topic, Resource.topic), ("broker", broker, Resource.broker), ("group", group, Resource.group)]
    chosen = [(what, value, make) for what, value, make in made if value is not None]
    if len(chosen) != 1:
        raise WrongInput("of what? Give one of --topic TOPIC, --broker ID or --group GROUP")
    what, value, make = chosen[0]
    if what == "broker" and not value.isdigit():
        raise WrongInput(f"--broker takes a number, not {value!r}; kohort cluster shows the brokers")
    return make(value)


@command(app)
@connected
def describe(
    target: Target,
    topic: TopicOption = None,
    broker: BrokerOption = None,
    group: GroupOption = None,
    everything: Annotated[bool, typer.Option("--all", help="Defaults too, not only what was set.")] = False,
    match: Annotated[
        str | None, typer.Option("--match", metavar="REGEX", help="Only names in which this is found.")
    ] = None,
    entity_type: EntityType = None,
    entity_name: EntityName = None,
    json: JsonOption = False,
) -> None:
    """Show what is configured, and where it comes from."""
    resource = _resource(topic, broker, group, entity_type, entity_name)
    pattern = names.pattern(match, "--match")
    with target.admin() as admin:
        found = admin.describe_configs([resource])[resource]
    shown = [
        entry
        for _, entry in sorted(found.items())
        if (everything or match or not entry.is_default) and (pattern is None or re.search(pattern, entry.name))
    ]
    if json:
        print_json([{"name": e.name, "value": e.value, "source": SOURCES.get(e.source, e.source)} for e in shown])
        return
    rows = [(e.name, SECRET if e.sensitive else e.value, SOURCES.get(e.source, e.source)) for e in shown]
    print_table(("name", "value", "from"), rows, "nothing is set; --all shows the defaults")


@command(app)
@connected_without_config
def alter(
    target: Target,
    topic: TopicOption = None,
    broker: BrokerOption = None,
    group: GroupOption = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--set", "--add-config", "--config", metavar="KEY=VALUE", help="Set this; several times."),
    ] = None,
    delete: Annotated[
        list[str] | None,
        typer.Option("--delete", "--delete-config", metavar="KEY", help="Back to its default; several times."),
    ] = None,
    entity_type: EntityType = None,
    entity_name: EntityName = None,
) -> None:
    """Set configurations, or take them back. What is not named stays as it is."""
    from kohort.protocol.errors import KafkaError

    resource = _resource(topic, broker, group, entity_type, entity_name)
    changes: dict[str, str | None] = dict(properties.parse_pairs(config or (), "--set"))
    changes |= dict.fromkeys(delete or ())
    if not changes:
        raise WrongInput("nothing to change: give --set KEY=VALUE or --delete KEY")
    with target.admin() as admin:
        try:
            admin.alter_configs({resource: changes})
        except KafkaError as error:
            raise Failed(error.message) from None
    for name, value in changes.items():
        print(f"{printable(resource.name)}: {name} " + ("is its default again" if value is None else f"is {value}"))
