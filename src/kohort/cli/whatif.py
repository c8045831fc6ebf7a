"""`kohort history whatif`: the options, and a line a group. What is replayed is insight/whatif.py's business."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kohort.cli import names
from kohort.cli.failures import WrongInput
from kohort.cli.ingest import Kept, SparkConfig
from kohort.cli.output import JsonOption, print_json, print_table
from kohort.cli.target import Target, warn
from kohort.cli.times import human_ms, parse_duration_ms

if TYPE_CHECKING:
    from kohort.insight.whatif import Choice

PROTOCOLS = ("consumer",)


def whatif(
    target: Target,
    assignor: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="range, roundrobin, sticky, cooperative-sticky, or package.module:Class."),
    ] = None,
    protocol: Annotated[
        str | None,
        typer.Option(metavar="PROTOCOL", help="consumer: as a KIP-848 group.", autocompletion=names.one_of(*PROTOCOLS)),
    ] = None,
    session_timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help="Another session.timeout.ms for all members, such as 90s.")
    ] = None,
    static: Annotated[
        bool, typer.Option("--static", help="As if every client had a group.instance.id and never left.")
    ] = False,
    group: Annotated[
        list[str] | None,
        typer.Option("--group", "-g", metavar="GROUP", help="Only this group.", autocompletion=names.groups),
    ] = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="From then on.")] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Before that.")] = None,
    last: Annotated[int, typer.Option(metavar="COUNT", help="Groups that are printed.", min=1)] = 30,
    kept: Kept = None,
    spark_config: SparkConfig = None,
    json: JsonOption = False,
) -> None:
    """Replay the recorded memberships of groups with another choice: what would have moved and stood still?

    One or several of --assignor, --protocol, --session-timeout and --static. The memberships are those of the stored
    generations; it says what it does not know.
    """
    from kohort.cli.history import need_spark, surveying

    need_spark()
    choice = _choice(assignor, protocol, session_timeout, static)
    with surveying(target, kept, group, since, until, spark_config, "generations and events") as (found, progress):
        from kohort.history.patterns import whatif as replayed

        progress.say("replaying")
        frame = replayed(found.reports["rebalances"], found.tables["generations"], choice)
        rows = frame.orderBy("group_id").toArrow().to_pylist()
    progress.clear()
    rows.sort(key=lambda row: row["would_partition_s"] - row["partition_s"])
    print_json(rows) if json else _print(rows, last)


def _choice(assignor: str | None, protocol: str | None, session_timeout: str | None, static: bool) -> Choice:
    """Also says what is wrong with it, before Spark is started."""
    from kohort.insight.whatif import Choice, wrong_assignor

    if protocol is not None and protocol not in PROTOCOLS:
        raise WrongInput(f"--protocol takes {', '.join(PROTOCOLS)}, not {protocol!r}")
    if protocol is not None and assignor is not None:
        raise WrongInput("--protocol consumer assigns in the broker: leave --assignor out")
    if assignor is None and protocol is None and session_timeout is None and not static:
        raise WrongInput("say what is to be different: --assignor, --protocol, --session-timeout or --static")
    if assignor is not None and (wrong := wrong_assignor(assignor)):
        raise WrongInput(wrong)
    timeout_ms = None if session_timeout is None else parse_duration_ms(session_timeout)
    if timeout_ms is not None and timeout_ms <= 0:
        raise WrongInput("--session-timeout takes a time above 0, such as 45s")
    return Choice(assignor, protocol is not None, timeout_ms, static)


def _print(rows: list[dict[str, Any]], last: int) -> None:
    def pair(row: dict[str, Any], name: str, shown: Any = lambda value: f"{value:,}") -> str:
        return f"{shown(row[name])} -> {shown(row[f'would_{name}'])}"

    cells = [
        [
            row["group_id"],
            pair(row, "rebalances"),
            pair(row, "moved"),
            pair(row, "standstill_ms", human_ms),
            pair(row, "partition_s", lambda value: f"{value:,.1f}"),
        ]
        for row in rows[:last]
    ]
    print("As it was -> as it would have been, the greatest gain first")
    print_table(["group", "rebalances", "moved", "standstill", "partition-s"], cells, "  nothing")
    for note in sorted({note for row in rows for note in row["notes"]}):
        warn(note)
