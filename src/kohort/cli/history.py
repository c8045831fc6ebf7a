"""`kohort history`: the reports of kohort.history as tables, JSON and Parquet. They are computed there, not here."""

from __future__ import annotations

import contextlib
import importlib.util
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kohort.cli import names, properties
from kohort.cli.failures import Failed, WrongInput
from kohort.cli.history_layouts import LAYOUTS, shown
from kohort.cli.ingest import Kept, SparkConfig, ingest
from kohort.cli.output import JsonOption, plural, print_json, print_table
from kohort.cli.quiet import Progress, quiet_processes
from kohort.cli.style import GroupWithOptions, command, new_app
from kohort.cli.target import Target, connected, warn
from kohort.cli.times import parse_moment_ms
from kohort.cli.whatif import whatif

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
command(app, "whatif")(connected(whatif))
TIME_HELP = "A time (YYYY-MM-DDTHH:MM:SS, in UTC) or so long ago (90s, 15m, 2h, 1d)."
COUNT_ALL = 2**31 - 1
MOST_HTML_ROWS = 500


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
        Path | None, typer.Option(metavar="DIR", help="Also write the tables and reports as Parquet, for notebooks.")
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write the reports as one HTML file."),
    ] = None,
    kept: Kept = None,
    spark_config: SparkConfig = None,
    json: JsonOption = False,
) -> None:
    if ctx.invoked_subcommand is not None:
        return
    _check(report, output, html)
    from kohort.history.survey import REPORTS

    wanted = report or list(REPORTS)
    what = "commits, generations and events"
    with surveying(target, kept, group, since, until, spark_config, what) as (found, progress):
        _as_json(found, wanted, progress) if json else _as_tables(found, wanted, last, progress)
        if html is not None:
            _write_html(found, wanted, html, kept, target, progress)
        if output is not None:
            progress.say(f"writing {output}")
            found.write(output, wanted)
            progress.clear()
            warn(f"tables and reports are in {output}, as Parquet")


@contextlib.contextmanager
def surveying(
    target: Target,
    kept: Path | None,
    group: list[str] | None,
    since: str | None,
    until: str | None,
    spark_config: list[str] | None,
    what: str,
) -> Iterator[tuple[Survey, Progress]]:
    """Says what is read, starts Spark, and has the reports ready to be computed."""
    now_ms = int(time.time() * 1000)
    since_ms, until_ms = (None if moment is None else parse_moment_ms(moment, now_ms) for moment in (since, until))
    warn(f"reading {_what_is_read(target) if kept is None else _what_is_kept(kept)}")
    progress = Progress()
    progress.say("starting Spark")
    with session(properties.parse_pairs(spark_config or (), "--spark-config")) as spark:
        progress.say(f"reading {what}")
        found = _surveyed(spark, target, kept, group or [], since_ms, until_ms)
        try:
            yield found, progress
        finally:
            found.close()


def _surveyed(
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


def _check(report: list[str] | None, output: Path | None, html: Path | None) -> None:
    """What can be known to be wrong before Spark is started."""
    need_spark()
    from kohort.history.survey import REPORTS

    if unknown := [name for name in report or () if name not in REPORTS]:
        raise WrongInput(f"no report {unknown[0]!r}: there are {', '.join(REPORTS)}")
    if output is not None and output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise WrongInput(f"{output} is there already: name a directory that is new or empty")
    if html is not None and (html.is_dir() or not html.absolute().parent.is_dir()):
        raise WrongInput(f"--html takes the name of a file in a directory that is there, not {html}")


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
        cells = [[shown(heading, row[column]) for heading, column in columns.items()] for row in rows]
        print_table(list(columns), cells, "  nothing")


def _write_html(
    found: Survey, wanted: list[str], file: Path, kept: Path | None, target: Target, progress: Progress
) -> None:
    from kohort.cli.history_html import page

    sections = []
    for name in wanted:
        progress.say(f"writing {name} to {file}")
        title, _, columns = LAYOUTS[name]
        rows = _rows(found, name, MOST_HTML_ROWS + 1)
        cells = [[shown(heading, row[column]) for heading, column in columns.items()] for row in rows]
        sections.append((title, list(columns), cells))
    of = str(kept) if kept is not None else str(target.settings["bootstrap.servers"])
    file.write_text(page(of, int(time.time() * 1000), sections, MOST_HTML_ROWS), encoding="utf-8")
    progress.clear()
    warn(f"the reports are in {file}")


def _rows(found: Survey, name: str, limit: int) -> list[dict[str, Any]]:
    _, order, _ = LAYOUTS[name]
    table = found.reports[name].orderBy(*order(), "group_id").limit(limit).toArrow()
    return [{column: _plain(value) for column, value in row.items()} for row in table.to_pylist()]


def _plain(value: Any) -> Any:
    return round(value.timestamp() * 1000) if isinstance(value, datetime) else value
