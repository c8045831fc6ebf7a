"""`kohort history`: the reports of kohort.history as tables, JSON and Parquet. They are computed there, not here."""

from __future__ import annotations

import contextlib
import importlib.util
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kohort.cli import names, properties
from kohort.cli.failures import Failed, WrongInput
from kohort.cli.ingest import ingest
from kohort.cli.output import JsonOption, plural, print_json, print_table
from kohort.cli.quiet import Progress, quiet_processes
from kohort.cli.style import GroupWithOptions, command, new_app
from kohort.cli.target import Target, connected, warn
from kohort.cli.times import clock_time, human_ms, parse_moment_ms

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kohort.client.types import OffsetAndTimestamp
    from kohort.history.survey import Survey

HELP = """Report what happened to groups and what it cost, computed on Spark.

Rebalances with their causes, downtime, members, progress, lag, stuck partitions, and who writes most: from
__consumer_offsets of any Kafka and, with a kohort broker, from its group events.
"""
app = new_app(HELP, cls=GroupWithOptions)
command(app, "ingest")(connected(ingest))
TIME_HELP = "A time (YYYY-MM-DDTHH:MM:SS, in UTC) or so long ago (90s, 15m, 2h, 1d)."
COUNT_ALL = 2**31 - 1


@app.callback(invoke_without_command=True)
@connected
def history(
    target: Target,
    ctx: typer.Context,
    group: Annotated[
        list[str] | None,
        typer.Option("--group", "-g", metavar="GROUP", help="Only this group.", autocompletion=names.groups),
    ] = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help=f"From then on. {TIME_HELP}")] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help=f"Before that. {TIME_HELP}")] = None,
    report: Annotated[
        list[str] | None, typer.Option(metavar="REPORT", help="Only this report; may be given several times.")
    ] = None,
    last: Annotated[int, typer.Option(metavar="COUNT", help="Rows of each table that are printed.", min=1)] = 15,
    output: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also write every table and report as Parquet, for notebooks.")
    ] = None,
    kept: Annotated[
        Path | None,
        typer.Option("--from", metavar="DIR", help="From tables that an ingest keeps, not from a cluster."),
    ] = None,
    spark_config: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A setting of Spark, such as spark.driver.memory=4g.")
    ] = None,
    json: JsonOption = False,
) -> None:
    if ctx.invoked_subcommand is not None:
        return
    _check(report, output)
    now_ms = int(time.time() * 1000)
    since_ms, until_ms = (None if moment is None else parse_moment_ms(moment, now_ms) for moment in (since, until))
    warn(f"reading {_what_is_read(target) if kept is None else _what_is_kept(kept)}")
    progress = Progress()
    progress.say("starting Spark")
    with session(properties.parse_pairs(spark_config or (), "--spark-config")) as spark:
        from kohort.history.survey import REPORTS

        progress.say("reading commits, generations and events")
        found = _survey(spark, target, kept, group or [], since_ms, until_ms)
        try:
            wanted = report or list(REPORTS)
            _as_json(found, wanted, progress) if json else _as_tables(found, wanted, last, progress)
            if output is not None:
                progress.say(f"writing {output}")
                found.write(output)
                progress.clear()
                warn(f"tables and reports are in {output}, as Parquet")
        finally:
            found.close()


def _survey(
    spark: SparkSession, target: Target, kept: Path | None, group: list[str], since_ms: int | None, until_ms: int | None
) -> Survey:
    from kohort.client.config import SETTINGS
    from kohort.history.kept import NotAHistory
    from kohort.history.survey import survey, survey_of_kept

    if kept is not None:
        try:
            return survey_of_kept(spark, kept, group, since_ms, until_ms)
        except NotAHistory as error:
            raise Failed(str(error)) from None
    settings = target.settings_for(SETTINGS, {})
    servers = str(settings.pop("bootstrap.servers"))
    return survey(spark, servers, group, since_ms, until_ms, settings)


def _what_is_read(target: Target) -> str:
    """Also says at once that there is no cluster."""
    from kohort.client.types import TopicPartition
    from kohort.coordinator.events import EVENTS_TOPIC
    from kohort.coordinator.records import OFFSETS_TOPIC

    with target.admin() as admin:
        there = [name for name in (OFFSETS_TOPIC, EVENTS_TOPIC) if name in admin.list_topics(internal=True)]
        topics = admin.describe_topics(there)
        places = [TopicPartition(name, number) for name in there for number in range(len(topics[name].partitions))]
        starts, ends = (admin.list_offsets(dict.fromkeys(places, spec)) for spec in ("earliest", "latest"))
    count = sum(_offset(ends[place]) - _offset(starts[place]) for place in places)
    servers = target.settings["bootstrap.servers"]
    return f"{' and '.join(there) or 'nothing yet'}: {plural(count, 'record')} on {servers}"


def _what_is_kept(directory: Path) -> str:
    """Also says at once that there is nothing."""
    from kohort.history.kept import NotAHistory, rounds

    try:
        return f"{plural(len(rounds(directory)), 'round')} of an ingest in {directory}"
    except NotAHistory as error:
        raise Failed(str(error)) from None


def _offset(found: OffsetAndTimestamp | None) -> int:
    return 0 if found is None else found.offset


def _check(report: list[str] | None, output: Path | None) -> None:
    """What can be known to be wrong before Spark is started."""
    need_spark()
    from kohort.history.survey import REPORTS

    if unknown := [name for name in report or () if name not in REPORTS]:
        raise WrongInput(f"no report {unknown[0]!r}: there are {', '.join(REPORTS)}")
    if output is not None and output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise WrongInput(f"{output} is there already: name a directory that is new or empty")


def need_spark() -> None:
    if importlib.util.find_spec("pyspark") is None or importlib.util.find_spec("pyarrow") is None:
        raise Failed("kohort history computes on Spark, which is not installed: pip install 'kohort[spark]'")


@contextlib.contextmanager
def session(config: dict[str, str]) -> Iterator[SparkSession]:
    """The session of this process where it has one, else one for the command."""
    from pyspark.sql import SparkSession

    import kohort.spark
    from kohort.spark.java import NoJava

    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    master = config.pop("spark.master", "local[*]")
    with quiet_processes():
        try:
            spark = kohort.spark.session("kohort history", master, {"spark.log.level": "ERROR", **config})
        except NoJava as error:
            raise Failed(str(error)) from None
        try:
            yield spark
        finally:
            spark.stop()


# -- printing ---------------------------------------------------------------------------------------------------------


def _as_json(found: Survey, wanted: list[str], progress: Progress) -> None:
    shown = {}
    for number, name in enumerate(wanted, 1):
        progress.say(f"computing {name}, {number} of {len(wanted)}")
        shown[name] = _rows(found, name, COUNT_ALL)
    progress.clear()
    print_json(shown)


def _as_tables(found: Survey, wanted: list[str], last: int, progress: Progress) -> None:
    for number, name in enumerate(wanted):
        title, _, columns = LAYOUTS[name]
        progress.say(f"computing {name}, {number + 1} of {len(wanted)}")
        rows = _rows(found, name, last)
        progress.clear()
        print(f"{chr(10) if number else ''}{title}")
        cells = [[_shown(heading, row[column]) for heading, column in columns.items()] for row in rows]
        print_table(list(columns), cells, "  nothing")


def _rows(found: Survey, name: str, limit: int) -> list[dict[str, Any]]:
    _, order, _ = LAYOUTS[name]
    table = found.reports[name].orderBy(*order(), "group_id").limit(limit).toArrow()
    return [{column: _plain(value) for column, value in row.items()} for row in table.to_pylist()]


def _plain(value: Any) -> Any:
    return round(value.timestamp() * 1000) if isinstance(value, datetime) else value


def _shown(heading: str, value: Any) -> Any:
    if value is None:
        return None
    if heading in TIMES:
        return clock_time(value)
    if heading in DURATIONS:
        return human_ms(value)
    if heading == "host":
        return value.lstrip("/")
    if heading == "share":
        return f"{value:.2%}" if 0 < value < 0.01 else f"{value:.0%}"
    return f"{value:.1f}" if isinstance(value, float) else value


TIMES = {"started", "last", "hour", "joined", "left", "start", "time", "since", "last-commit"}
DURATIONS = {"took", "standstill", "longest", "rebalancing", "lifetime"}


def _latest(column: str) -> Callable[[], list[Any]]:
    return lambda: [_column(column).desc_nulls_last()]


def _column(name: str) -> Any:
    from pyspark.sql import functions as f

    return f.col(name)


LAYOUTS: dict[str, tuple[str, Callable[[], list[Any]], dict[str, str]]] = {
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
            "longest": "longest_ms",
            "last": "last",
        },
    ),
    "downtime": (
        "Standstill by hour, the longest first",
        lambda: [_column("standstill_ms").desc(), _column("hour").desc()],
        {
            "hour": "hour",
            "group": "group_id",
            "standstill": "standstill_ms",
            "share": "share",
            "rebalancing": "rebalancing_ms",
            "rebalances": "rebalances",
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
