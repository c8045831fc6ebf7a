"""`kohort history ingest`: the options, and a line a round. What is read and kept is history/ingest.py's business."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kohort.cli import names, properties
from kohort.cli.failures import Failed, WrongInput
from kohort.cli.output import plural, print_json_line
from kohort.cli.target import Target, warn

if TYPE_CHECKING:
    from kohort.history.kept import Round

FORMATS = ("parquet", "delta")
Kept = Annotated[
    Path | None, typer.Option("--from", metavar="DIR", help="From tables that an ingest keeps, not from a cluster.")
]
SparkConfig = Annotated[
    list[str] | None, typer.Option(metavar="KEY=VALUE", help="A setting of Spark, such as spark.driver.memory=4g.")
]


def ingest(
    target: Target,
    to: Annotated[
        Path, typer.Option(metavar="DIR", help="Where the tables are kept: a directory that every executor sees.")
    ],
    format: Annotated[
        str,
        typer.Option(
            metavar="FORMAT",
            help="How: parquet, or delta: Delta tables over the same files.",
            autocompletion=names.one_of(*FORMATS),
        ),
    ] = "parquet",
    once: Annotated[bool, typer.Option("--once", help="Read what is there, then end. This is the default.")] = False,
    continuous: Annotated[bool, typer.Option("--continuous", help="Go on until it is ended with ctrl-C.")] = False,
    every: Annotated[
        float, typer.Option(metavar="SECONDS", help="How often to look, with --continuous.", min=0.1)
    ] = 10,
    spark_config: SparkConfig = None,
    json: Annotated[bool, typer.Option("--json", help="A JSON object a round.")] = False,
) -> None:
    """Keep the history of all groups in a directory, from where the last ingest ended.

    The tables of docs/history.md as Parquet or Delta, a folder a day. It can be ended and started at any time: every
    record is in the tables once. It joins no group and changes nothing in the cluster.
    """
    from kohort.cli.history import need_spark, session

    need_spark()
    if format not in FORMATS:
        raise WrongInput(f"--format takes {', '.join(FORMATS)}, not {format!r}")
    if once and continuous:
        raise WrongInput("--once and --continuous are two different things: choose one")
    if "://" in str(to) or ":/" in str(to):
        raise WrongInput(f"--to takes a directory, not {to}: mount the store where driver and executors see it")
    target.admin().close()  # says at once that there is no cluster
    with session(properties.parse_pairs(spark_config or (), "--spark-config")) as spark:
        from kohort.client.config import SETTINGS
        from kohort.history.ingest import Ingest
        from kohort.history.kept import NotAHistory

        settings = target.settings_for(SETTINGS, {})
        servers = str(settings.pop("bootstrap.servers"))
        try:
            reading = Ingest(spark, servers, to, settings, as_delta=format == "delta")
            count = reading.run(continuous, every, lambda done: _tell(done, json))
        except NotAHistory as error:
            raise Failed(str(error)) from None
        if not count and not json:
            print("nothing new")


def _tell(done: Round, as_json: bool) -> None:
    for note in done.notes:
        warn(note)
    if as_json:
        print_json_line({"round": done.number, "ended_ms": done.ended_ms, "rows": done.rows, "notes": done.notes})
        return
    rows = ", ".join(f"{count:,} {table.replace('_', ' ')}" for table, count in sorted(done.rows.items()))
    print(f"round {done.number}: {rows or 'nothing'} in {plural(len(done.files), 'file')}", flush=True)
