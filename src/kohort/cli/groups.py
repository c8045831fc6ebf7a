"""`kohort groups`: the options of its commands; what the longer ones do is in modules of their own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from kohort.cli import names
from kohort.cli.failures import Failed, WrongInput
from kohort.cli.output import JsonOption, Yes, plural, print_json, print_reports, print_table, printable
from kohort.cli.style import command, new_app
from kohort.cli.target import Target, connected

app = new_app("Look into consumer groups, and administer them.", no_args_is_help=True)

Group = Annotated[str, typer.Argument(metavar="GROUP", help="The group's id.", autocompletion=names.groups)]
Match = Annotated[
    str | None,
    typer.Option("--match", metavar="REGEX", help="Groups whose whole id this regular expression matches."),
]
STATES = (
    "Empty",
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
    "Dead",
    "Assigning",
    "Reconciling",
    "NotReady",
)
TYPES = ("classic", "consumer", "share", "streams")


@command(app, "list")
@connected
def list_groups(
    target: Target,
    state: Annotated[
        list[str] | None, names.several("STATE", STATES, "Only groups in these states, e.g. Stable or Empty.")
    ] = None,
    type: Annotated[
        list[str] | None, names.several("TYPE", TYPES, f"Only groups of these types: {', '.join(TYPES)}.")
    ] = None,
    match: Match = None,
    json: JsonOption = False,
) -> None:
    """List groups with their states."""
    states, types = names.chosen(state, STATES, "state"), names.chosen(type, TYPES, "type of group")
    pattern = names.pattern(match, "--match")
    with target.admin() as admin:
        found = admin.list_groups(states, types)
    found = [group for group in found if pattern is None or pattern.fullmatch(group.group_id)]
    if json:
        keys = ("group", "state", "type", "protocol_type")
        print_json([dict(zip(keys, (g.group_id, g.state, g.type, g.protocol_type), strict=True)) for g in found])
    else:
        rows = [(g.group_id, g.state, g.type, g.protocol_type) for g in found]
        print_table(("group", "state", "type", "protocol-type"), rows, "no groups")


@command(app)
@connected
def describe(
    target: Target,
    groups: Annotated[
        list[str] | None, typer.Argument(metavar="GROUP", help="Ids of groups.", autocompletion=names.groups)
    ] = None,
    all_groups: Annotated[bool, typer.Option("--all-groups", help="Every group of the cluster.")] = False,
    match: Match = None,
    state: Annotated[bool, typer.Option("--state", help="Only the state.")] = False,
    members: Annotated[bool, typer.Option("--members", help="Only the members.")] = False,
    offsets: Annotated[bool, typer.Option("--offsets", help="Only the offsets and the lag.")] = False,
    json: JsonOption = False,
) -> None:
    """Show the state, members, assignment and lag of groups.

    Also the generation, the protocol and the coordinator. The lag is never negative, and a dash where nothing is
    committed.
    """
    from kohort.cli import describe as describing

    parts = describing.Parts(state, members, offsets) if state or members or offsets else describing.ALL_PARTS
    with target.admin() as admin:
        wanted = _wanted(admin, groups, all_groups, match)
        reports = [describing.read(target, admin, group_id) for group_id in wanted]
    if json:
        print_json([report.to_dict() for report in reports])
        return
    print_reports(reports, lambda report: describing.print_report(report, parts))


def _wanted(admin: Any, groups: list[str] | None, all_groups: bool, match: str | None) -> list[str]:
    """Groups by name, all of them, or by a regular expression."""
    pattern = names.pattern(match, "--match")
    if sum(map(bool, (groups, all_groups, pattern))) != 1:
        raise WrongInput("name groups, or give --match REGEX or --all-groups")
    if groups:
        return list(dict.fromkeys(groups))
    found = [group.group_id for group in admin.list_groups()]
    return [name for name in found if pattern is None or pattern.fullmatch(name)]


@command(app)
@connected
def watch(
    target: Target,
    group: Group,
    interval: Annotated[float, typer.Option(metavar="SECONDS", min=0.1, help="Time between two looks.")] = 2.0,
    count: Annotated[
        int | None, typer.Option("--count", "-n", metavar="N", min=1, help="Stop after so many looks.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print a JSON line for every look.")] = False,
) -> None:
    """Watch a group live.

    Shows its state, members, partitions, lag and trend until ctrl-C. In a pipe, a line is printed for every look.
    """
    from kohort.cli import watch as watching

    with target.admin() as admin:
        watching.watch(target, admin, group, interval, count, json)


@command(app)
@connected
def explain(
    target: Target,
    group: Group,
    last: Annotated[
        int, typer.Option("--last", "-n", metavar="N", min=1, help="Tell the last so many rebalances.")
    ] = 5,
    sample: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0, help="How long to look at the group where its past cannot be read."),
    ] = 5.0,
    json: JsonOption = False,
) -> None:
    """Say what happened to a group last, and why.

    In plain words: who caused the last rebalances, how long the group stood still, whether a pattern is harmful, and
    what to change. On a kohort broker this comes from its group events; on any other Kafka from the generations in
    __consumer_offsets, or from looking at the group for a while. The answer says which.
    """
    from kohort.cli import explain as explaining

    with target.admin() as admin:
        explanation = explaining.explain(target, admin, group, sample)
    if json:
        print_json(explanation.to_dict(last))
    else:
        explaining.print_explanation(explanation, last)


@command(app, "reset-offsets")
@connected
def reset_offsets(
    target: Target,
    group: Group,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOPIC[:0,1]",
            help="A topic, or partitions of it; may be given several times.",
            rich_help_panel="What",
        ),
    ] = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="Everything the group has committed.", rich_help_panel="What")
    ] = False,
    to_earliest: Annotated[
        bool, typer.Option("--to-earliest", help="The first offset.", rich_help_panel="Where")
    ] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="The end.", rich_help_panel="Where")] = False,
    to_current: Annotated[
        bool, typer.Option("--to-current", help="What is committed; the end where nothing is.", rich_help_panel="Where")
    ] = False,
    to_offset: Annotated[int | None, typer.Option(metavar="N", help="This offset.", rich_help_panel="Where")] = None,
    to_datetime: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="The first record from YYYY-MM-DDTHH:MM:SS.sss on.", rich_help_panel="Where"),
    ] = None,
    by_duration: Annotated[
        str | None,
        typer.Option(metavar="PT1H", help="The first record of the last hour, say.", rich_help_panel="Where"),
    ] = None,
    shift_by: Annotated[
        int | None, typer.Option(metavar="N", help="Forward, or back where N is negative.", rich_help_panel="Where")
    ] = None,
    from_file: Annotated[
        Path | None, typer.Option(metavar="CSV", help="Lines of topic,partition,offset.", rich_help_panel="Where")
    ] = None,
    execute: Annotated[bool, typer.Option("--execute", help="Do it; without it nothing is changed.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done: the default.")] = False,
    export: Annotated[bool, typer.Option("--export", help="Print topic,partition,offset, for --from-file.")] = False,
    json: JsonOption = False,
) -> None:
    """Set the committed offsets of a group that has no members. A dry run unless --execute is given.

    Exactly one place ("Where") is needed. Offsets outside a partition's log become its first or last.
    """
    from kohort.cli import reset_offsets as resetting

    flags = {"to-earliest": to_earliest, "to-latest": to_latest, "to-current": to_current}
    numbers = {"to-offset": to_offset, "shift-by": shift_by}
    others = {"to-datetime": to_datetime, "by-duration": by_duration, "from-file": from_file}
    if execute and (dry_run or export):
        raise WrongInput("--execute excludes --dry-run and --export: choose one")
    asked = resetting.Asked.of(flags, numbers, others, topic or [], all_topics)
    with target.admin() as admin:
        outcome = resetting.reset(admin, group, asked, execute)
    resetting.print_outcome(outcome, json=json, export=export)


@command(app)
@connected
def delete(
    target: Target,
    groups: Annotated[
        list[str] | None, typer.Argument(metavar="GROUP", help="Ids of groups.", autocompletion=names.groups)
    ] = None,
    all_groups: Annotated[bool, typer.Option("--all-groups", help="Every group of the cluster.")] = False,
    match: Match = None,
    topic: Annotated[
        list[str] | None, typer.Option(metavar="TOPIC[:0,1]", help="Delete only the committed offsets of this topic.")
    ] = None,
    yes: Yes = False,
) -> None:
    """Delete groups that have no members.

    Their committed offsets go with them. Asks first when run in a terminal.
    """
    what = "offsets of " + ", ".join(topic) + " in" if topic else "groups"
    with target.admin() as admin:
        wanted = _wanted(admin, groups, all_groups, match)
        if not yes and wanted and sys.stdin.isatty():
            typer.confirm(f"Delete {what} {', '.join(map(printable, wanted))}?", abort=True)
        for group_id in wanted:
            _delete(admin, group_id, topic or [])
    if not wanted:
        print("no groups")


def _delete(admin: Any, group_id: str, topics: list[str]) -> None:
    from kohort.cli.reset_offsets import in_scope
    from kohort.protocol.errors import ErrorCode, KafkaError

    name = printable(group_id)
    try:
        if topics:
            committed = admin.group_offsets(group_id)
            wanted = [tp for tp in committed if in_scope(tp, topics)]
            if not wanted:
                raise Failed(f"group {name} has committed nothing for {', '.join(topics)}")
            admin.delete_group_offsets(group_id, wanted)
            print(f"deleted {plural(len(wanted), 'offset')} of group {name}")
        else:
            admin.delete_groups([group_id])
            print(f"deleted group {name}")
    except KafkaError as error:
        if error.code is ErrorCode.NON_EMPTY_GROUP:
            hint = f"stop its consumers first, or remove them with kohort groups remove-member {name} --all"
            raise Failed(f"group {name} has members: {hint}") from None
        if error.code is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC:
            raise Failed(f"members of group {name} still read {', '.join(topics)}: stop them first") from None
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            raise Failed(f"group {name} does not exist; kohort groups list shows those that do") from None
        raise


@command(app, "remove-member")
@connected
def remove_member(
    target: Target,
    group: Group,
    member_id: Annotated[
        list[str] | None, typer.Option("--member-id", metavar="ID", help="A member by its id.")
    ] = None,
    group_instance_id: Annotated[
        list[str] | None, typer.Option("--group-instance-id", metavar="ID", help="A static member by its instance id.")
    ] = None,
    all_members: Annotated[bool, typer.Option("--all", help="Everybody.")] = False,
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="Why; the broker keeps it in its events.")
    ] = "removed by an administrator",
) -> None:
    """Put members out of a group.

    The others take over their partitions at once. A client that is alive joins again by itself; this is for those that
    are not, and for static members.
    """
    from kohort.protocol.errors import ErrorCode, KafkaError

    if bool(member_id or group_instance_id) == all_members:
        raise WrongInput("name members with --member-id or --group-instance-id, or give --all")
    with target.admin() as admin:
        ids, instances = list(member_id or ()), list(group_instance_id or ())
        if all_members:
            ids = [m.member_id for m in admin.describe_groups([group])[group].members if m.group_instance_id is None]
            instances = [
                m.group_instance_id for m in admin.describe_groups([group])[group].members if m.group_instance_id
            ]
            if not ids and not instances:
                raise Failed(f"group {printable(group)} has no members")
        try:
            admin.remove_members(group, ids, instances, reason)
        except KafkaError as error:
            if error.code is not ErrorCode.UNKNOWN_MEMBER_ID:
                raise
            hint = f"kohort groups describe {printable(group)} --members shows who is"
            raise Failed(f"not a member of group {printable(group)}: {', '.join([*ids, *instances])}; {hint}") from None
    for who in [*instances, *ids]:
        print(f"removed {printable(who)} from group {printable(group)}")
