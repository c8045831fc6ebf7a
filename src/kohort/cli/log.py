"""`kohort log`: check and repair the data directory of a broker that does not run, and see what segments hold."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kohort.cli.failures import Failed
from kohort.cli.output import JsonOption, Yes, plural, print_json, print_table, printable
from kohort.cli.serve_options import DEFAULT_DATA_DIR
from kohort.cli.style import command, new_app

if TYPE_CHECKING:
    from kohort.records.batch import Record
    from kohort.storage.checkup import Checkup, PartitionCheck

app = new_app(
    "Check and repair the data directory of a broker that does not run; see what is in it.", no_args_is_help=True
)

Directory = Annotated[
    str, typer.Argument(metavar="DIR", help=f"The data directory; ./{DEFAULT_DATA_DIR} unless given.")
]
OneTopic = Annotated[str | None, typer.Option("--topic", metavar="TOPIC", help="Only this topic.")]
COLUMNS = ("partition", "offset", "goes on at", "file position", "bytes", "records", "reason")


@command(app)
def check(directory: Directory = DEFAULT_DATA_DIR, topic: OneTopic = None, json: JsonOption = False) -> None:
    """Read every batch, and say which are damaged and what a repair would cost. Exit 1 where there are any."""
    with _open(directory) as checkup:
        checked = _check(checkup, topic)
    damaged = [found for found in checked if found.damage]
    if json:
        print_json([asdict(found) for found in checked])
    else:
        _print(checked, damaged)
    if damaged:
        raise typer.Exit(1)


@command(app)
def repair(
    directory: Directory = DEFAULT_DATA_DIR, topic: OneTopic = None, yes: Yes = False, json: JsonOption = False
) -> None:
    """Take damaged batches out of the log; a copy of them stays in the folder `damaged` of the data directory."""
    with _open(directory) as checkup:
        checked = _check(checkup, topic)
        damaged = [found for found in checked if found.damage]
        if not json:
            _print(checked, damaged)
        if damaged and not yes:
            typer.confirm(f"Repair {plural(len(damaged), 'partition')}, at this cost?", abort=True)
        kept = {found.name: [str(path) for path in checkup.repair(found)] for found in damaged}
    if json:
        print_json([asdict(found) | {"kept": kept.get(found.name, [])} for found in checked])
    for name, paths in kept.items() if not json else ():
        print(f"repaired {printable(name)}; what was taken out is in {', '.join(paths)}")


@command(app)
def dump(
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH", help="A .log file, a partition's folder, or a data directory.")
    ],
    first: Annotated[int, typer.Option("--from", metavar="OFFSET", help="From this offset on.", min=0)] = 0,
    last: Annotated[int | None, typer.Option("--to", metavar="OFFSET", help="Up to this offset.", min=0)] = None,
    batches: Annotated[bool, typer.Option("--batches", help="Only batches, without their records.")] = False,
    topic: Annotated[
        str | None, typer.Option("--topic", metavar="TOPIC", help="Whose records they are, if the folder does not say.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Print batches and records of segment files, kohort's and Kafka's; nothing is locked or changed. Exit 1 where
    something is damaged."""
    from pathlib import Path

    from kohort.cli.log_dump import Dump
    from kohort.protocol.errors import KafkaError
    from kohort.storage.dump import segments

    dumped = Dump(first, last, records=not batches, json=json, topic=topic)
    try:
        for path in paths:
            for segment in segments(Path(path)):
                dumped.print(segment)
    except KafkaError as error:
        raise Failed(error.message) from None
    except OSError as error:
        raise Failed(f"cannot read {error.filename}: {error.strerror}") from None
    if not dumped.is_sound:
        raise typer.Exit(1)


def _open(directory: str) -> Checkup:
    from kohort.protocol.errors import KafkaError
    from kohort.storage.checkup import Checkup

    try:
        return Checkup(directory, _check_record)
    except KafkaError as error:
        raise Failed(error.message) from None


def _check(checkup: Checkup, topic: str | None) -> list[PartitionCheck]:
    places = checkup.partitions(topic)
    if topic is not None and not places:
        raise Failed(f"there is no topic {printable(topic)} in {checkup.path}")
    return [checkup.check(*place) for place in places]


def _check_record(topic: str, record: Record) -> str | None:
    """What the coordinator could not make sense of is damage, whatever its checksum says."""
    from kohort.coordinator.records import OFFSETS_TOPIC, UnknownRecord, UnreadableRecord, decode

    if topic != OFFSETS_TOPIC:
        return None
    try:
        decode(record.key or b"", record.value)
    except UnreadableRecord as error:
        return str(error)
    except UnknownRecord:
        pass
    return None


def _print(checked: list[PartitionCheck], damaged: list[PartitionCheck]) -> None:
    batches = sum(found.batches for found in checked)
    if not damaged:
        print(f"{plural(len(checked), 'partition')}, {batches} batches: nothing is damaged")
        return
    rows: list[tuple[Any, ...]] = [
        (
            found.name,
            damage.offset,
            "the end" if damage.next_offset is None else damage.next_offset,
            f"{damage.segment:020d}.log:{damage.position}",
            damage.size,
            "unknown" if damage.records is None else damage.records,
            damage.reason,
        )
        for found in damaged
        for damage in found.damage
    ]
    print_table(COLUMNS, rows)
    costs = [damage.records for found in damaged for damage in found.damage]
    known = sum(cost for cost in costs if cost is not None)
    unknown = sum(cost is None for cost in costs)
    beside = f", and {plural(unknown, 'stretch', 'stretches')} whose records cannot be counted" if unknown else ""
    print(f"a repair costs {plural(known, 'record')}{beside}; in __consumer_offsets these are commits and generations,")
    print("which are only missed where nothing later was written for the same group and partition")
