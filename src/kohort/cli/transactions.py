"""`kohort transactions`: list, describe, abort; also those that hang."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kohort.cli import names
from kohort.cli.failures import Failed, WrongInput
from kohort.cli.output import JsonOption, Yes, plural, print_json, print_reports, print_table, printable
from kohort.cli.style import command, new_app
from kohort.cli.target import Target, connected
from kohort.cli.times import clock_time, human_ms, parse_duration_ms

if TYPE_CHECKING:
    from kohort.client import Admin
    from kohort.client.admin_types import HangingTransaction, ProducerState, TransactionDescription

app = new_app("Look into transactions, find those that hang, and abort them.", no_args_is_help=True)

STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead")
Ids = Annotated[
    list[str],
    typer.Argument(metavar="ID", help="Transactional ids.", autocompletion=names.transactional_ids),
]


@command(app, "list")
@connected
def list_transactions(
    target: Target,
    state: Annotated[
        list[str] | None, names.several("STATE", STATES, "Only those in these states, e.g. Ongoing.")
    ] = None,
    match: Annotated[
        str | None,
        typer.Option("--match", metavar="REGEX", help="Ids that this regular expression matches as a whole."),
    ] = None,
    hanging: Annotated[
        bool,
        typer.Option("--hanging", help="Instead those that are open in a partition, and that nobody will ever end."),
    ] = False,
    topic: Annotated[
        list[str] | None,
        typer.Option(metavar="TOPIC", help="With --hanging: only in these topics.", autocompletion=names.topics),
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="With --hanging: whose last record is at least this old. Take the longest that a transaction may "
            "last in the cluster (transaction.max.timeout.ms): 15m if not given.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """List transactional ids with the states of their transactions, or the transactions that hang."""
    if hanging:
        if state or match:
            raise WrongInput(
                "--hanging takes neither --state nor --match: those are of coordinators, not of partitions"
            )
        _list_hanging(target, topic, parse_duration_ms(older_than or "15m"), json)
        return
    if topic or older_than:
        raise WrongInput("--topic and --older-than go with --hanging")
    states, pattern = names.chosen(state, STATES, "state of a transaction"), names.pattern(match, "--match")
    with target.admin() as admin:
        found = admin.list_transactions(states)
    rows = [
        (row.transactional_id, row.state, row.producer_id, row.coordinator)
        for row in found
        if pattern is None or pattern.fullmatch(row.transactional_id)
    ]
    keys = ("transactional_id", "state", "producer_id", "coordinator")
    if json:
        print_json([dict(zip(keys, row, strict=True)) for row in rows])
    else:
        print_table(("transactional-id", "state", "producer-id", "coordinator"), rows, "no transactional ids")


def _list_hanging(target: Target, topics: list[str] | None, older_than_ms: int, json: bool) -> None:
    with target.admin() as admin:
        found = admin.hanging_transactions(topics or None, older_than_ms)
    if json:
        print_json([_hanging_json(one) for one in found])
        return
    rows = [
        (
            one.producer.partition.topic,
            one.producer.partition.partition,
            one.producer.start_offset,
            one.producer.producer_id,
            one.producer.producer_epoch,
            clock_time(one.producer.last_timestamp_ms),
            one.why,
        )
        for one in found
    ]
    columns = ("topic", "partition", "start-offset", "producer-id", "epoch", "last-record", "why")
    print_table(columns, rows, f"no transaction hangs (looked at those older than {human_ms(older_than_ms)})")
    if rows:
        name, index, offset = rows[0][:3]
        example = f"kohort transactions abort --topic {printable(name)} --partition {index} --start-offset {offset}"
        print(f"\nthey hold up read_committed consumers; end one with {example}")


def _hanging_json(one: HangingTransaction) -> dict[str, Any]:
    producer = one.producer
    return {
        "topic": producer.partition.topic,
        "partition": producer.partition.partition,
        "start_offset": producer.start_offset,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "coordinator_epoch": producer.coordinator_epoch,
        "last_timestamp_ms": producer.last_timestamp_ms,
        "why": one.why,
    }


@command(app)
@connected
def describe(target: Target, transactional_ids: Ids, json: JsonOption = False) -> None:
    """Show the state of transactions, their producers and their partitions."""
    with target.admin() as admin:
        reports = [_report(one) for one in _existing(admin, transactional_ids).values()]
    if json:
        print_json(reports)
        return
    print_reports(reports, _print_report)


def _existing(admin: Admin, transactional_ids: list[str]) -> dict[str, TransactionDescription]:
    found = admin.describe_transactions(transactional_ids)
    missing = [name for name, one in found.items() if one is None]
    if missing:
        listed = ", ".join(map(printable, missing))
        raise Failed(f"no such transactional id: {listed}; kohort transactions list shows those that exist")
    return {name: one for name, one in found.items() if one is not None}


def _report(one: TransactionDescription) -> dict[str, Any]:
    return {
        "transactional_id": one.transactional_id,
        "state": one.state,
        "producer_id": one.producer_id,
        "producer_epoch": one.producer_epoch,
        "coordinator": one.coordinator,
        "timeout_ms": one.timeout_ms,
        "start_ms": one.start_ms,
        "partitions": [{"topic": tp.topic, "partition": tp.partition} for tp in sorted(one.partitions)],
    }


def _print_report(report: dict[str, Any]) -> None:
    partitions = report["partitions"]
    print(
        f"{printable(report['transactional_id'])}: {report['state']}, producer {report['producer_id']} in its epoch "
        f"{report['producer_epoch']}, coordinator {report['coordinator']}"
    )
    if report["start_ms"] is not None:
        age_ms = max(int(time.time() * 1000) - report["start_ms"], 0)
        print(
            f"open since {clock_time(report['start_ms'])} ({human_ms(age_ms)}); aborted by the broker after "
            f"{human_ms(report['timeout_ms'])}"
        )
    if partitions:
        print_table(("topic", "partition"), [(p["topic"], p["partition"]) for p in partitions])


@command(app)
@connected
def abort(
    target: Target,
    transactional_id: Annotated[
        str | None,
        typer.Argument(
            metavar="[ID]",
            help="Abort what this transactional id has open, and fence its producer.",
            autocompletion=names.transactional_ids,
        ),
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option(metavar="TOPIC", help="Of a transaction that hangs: its topic.", autocompletion=names.topics),
    ] = None,
    partition: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Of a transaction that hangs: its partition.")
    ] = None,
    start_offset: Annotated[
        int | None, typer.Option(metavar="OFFSET", min=0, help="Of a transaction that hangs: its first offset.")
    ] = None,
    yes: Yes = False,
) -> None:
    """Abort the transaction of an id, or one that hangs in a partition. Asks first when run in a terminal."""
    place = (topic, partition, start_offset)
    if transactional_id is not None and place == (None, None, None):
        _terminate(target, transactional_id, yes)
    elif transactional_id is None and topic is not None and partition is not None and start_offset is not None:
        _abort_hanging(target, topic, partition, start_offset, yes)
    else:
        raise WrongInput("give a transactional id, or --topic, --partition and --start-offset of one that hangs")


def _terminate(target: Target, transactional_id: str, yes: bool) -> None:
    shown = printable(transactional_id)
    with target.admin() as admin:
        before = _existing(admin, [transactional_id])[transactional_id]
        if before.state != "Ongoing":
            raise Failed(f"{shown} has no transaction open: it is {before.state}")
        partitions = plural(len(before.partitions), "partition")
        _confirm(f"Abort the transaction of {shown} in {partitions} and fence its producer?", yes)
        admin.terminate_transaction(transactional_id)
    print(f"aborted the transaction of {shown} in {partitions}; its producer {before.producer_id} is fenced")


def _abort_hanging(target: Target, topic: str, partition: int, start_offset: int, yes: bool) -> None:
    from kohort.client.types import TopicPartition

    place = f"{printable(topic)}-{partition}"
    with target.admin() as admin:
        producers = admin.describe_producers([TopicPartition(topic, partition)])
        found = [producer for producer in producers if producer.start_offset is not None]
        wanted = next((producer for producer in found if producer.start_offset == start_offset), None)
        if wanted is None:
            offsets = ", ".join(str(producer.start_offset) for producer in found)
            raise Failed(
                f"no transaction of {place} begins at {start_offset}: "
                + (f"those that are open begin at {offsets}" if found else "none is open there")
            )
        _refuse_what_does_not_hang(admin, wanted)
        _confirm(f"Abort the transaction of producer {wanted.producer_id} in {place}?", yes)
        admin.abort_transaction(wanted)
    print(f"aborted the transaction of producer {wanted.producer_id} in {place}")


def _refuse_what_does_not_hang(admin: Admin, producer: ProducerState) -> None:
    """A marker into one partition of an ordinary transaction would tear it apart."""
    name = next((r.transactional_id for r in admin.list_transactions() if r.producer_id == producer.producer_id), None)
    held = admin.describe_transactions([name])[name] if name is not None else None
    if held is not None and producer.partition in held.partitions:
        raise Failed(
            f"it does not hang: it belongs to the transaction of {printable(name or '')} ({held.state}); "
            f"kohort transactions abort {printable(name or '')} aborts that as a whole"
        )


def _confirm(question: str, yes: bool) -> None:
    if not yes and sys.stdin.isatty():
        typer.confirm(question, abort=True)
