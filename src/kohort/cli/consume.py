"""`kohort consume`: records of a topic to standard output, alone or as a member of a group."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from kohort.cli import lines, names, times
from kohort.cli.failures import Failed, WrongInput
from kohort.cli.output import reader_is_gone
from kohort.cli.style import command, new_app
from kohort.cli.target import Target, connected

if TYPE_CHECKING:
    from kohort.client import Consumer
    from kohort.client.types import TopicPartition

app = new_app()

POLL_S = 0.1
POLL_RECORDS = 500
PLACES = ("earliest", "latest", "beginning", "end")


GroupOption = Annotated[
    str | None,
    typer.Option(
        "--group",
        "-g",
        metavar="GROUP",
        help="Read as a member of this group, and commit what was printed.",
        autocompletion=names.groups,
    ),
]
Start = Annotated[
    str | None,
    typer.Option(
        "--from",
        "--offset",
        "-o",
        metavar="PLACE",
        help="earliest, latest, an offset, -N for the last N, a time (2026-01-31T12:00) or an age (15m). In a "
        "group it is earliest or latest, and counts where nothing is committed.",
    ),
]
FromBeginning = Annotated[bool, typer.Option("--from-beginning", help="The same as --from earliest.")]
Count = Annotated[
    int | None,
    typer.Option("--count", "--max-messages", "-n", metavar="N", min=1, help="Stop after so many records."),
]
Partitions = Annotated[
    list[int] | None,
    typer.Option("--partition", "-p", metavar="N", min=0, help="Only this partition; may be given several times."),
]
Exit = Annotated[bool, typer.Option("--exit", "-e", help="Stop at the end instead of waiting for more.")]
TimeoutMs = Annotated[int | None, typer.Option(metavar="MS", min=1, help="Stop when no record came for so long.")]
Format = Annotated[
    str,
    typer.Option(
        "--format",
        "-f",
        metavar="value|json|TEMPLATE",
        help="A template is kcat's: '%t %p %o %T %k %s %h\\n'.",
        autocompletion=names.one_of("value", "json"),
    ),
]
Isolation = Annotated[
    str | None,
    typer.Option(
        metavar="LEVEL",
        help="read_uncommitted (the default) or read_committed.",
        autocompletion=names.one_of("read_uncommitted", "read_committed"),
    ),
]


class Until(NamedTuple):
    """When to stop."""

    max_messages: int | None
    timeout_ms: int | None
    at_end: bool


@command(app)
@connected
def consume(
    target: Target,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.", autocompletion=names.topics)],
    group: GroupOption = None,
    start: Start = None,
    from_beginning: FromBeginning = False,
    count: Count = None,
    partition: Partitions = None,
    exit_at_end: Exit = False,
    timeout_ms: TimeoutMs = None,
    format: Format = "value",
    isolation_level: Isolation = None,
) -> None:
    """Print the records of a topic.

    From now on, or from where --from says. JSON lines have topic, partition, offset, timestamp, key, value and headers.
    """
    if from_beginning and start is not None:
        raise WrongInput("--from and --from-beginning exclude each other: choose one")
    start = "earliest" if from_beginning else start
    write = lines.formatter(format)
    if group is not None and (partition or (start is not None and start not in PLACES)):
        raise WrongInput(
            "in a group, members share the partitions and start where the group has committed: leave out --partition, "
            "and use --from earliest or latest, or kohort groups reset-offsets"
        )
    with target.admin() as admin:
        _existing(admin, topic)
    consumer = target.consumer(isolation_level=isolation_level, **_settings(group, start))
    with contextlib.closing(consumer):
        if group is not None:
            consumer.subscribe(topic)
        else:
            _assign(consumer, topic, partition or (), start or "latest")
        _copy(consumer, write, Until(count, timeout_ms, exit_at_end), commit=group is not None)


def _settings(group: str | None, start: str | None) -> dict[str, Any]:
    if group is None:
        # A position that retention has overtaken: go on with what there is.
        return {"auto_offset_reset": "latest" if start is None or start in PLACES else "earliest"}
    reset = "earliest" if start in ("earliest", "beginning") else "latest"
    return {"group_id": group, "enable_auto_commit": False, "auto_offset_reset": reset}


def _existing(admin: Any, topic: str) -> None:
    if topic not in admin.list_topics(internal=True):
        raise Failed(f"no such topic: {topic}; kohort topics list shows those that exist")


def _assign(consumer: Any, topic: str, wanted: Any, start: str) -> None:
    from kohort.client.types import TopicPartition

    existing = {info.partition for info in consumer.partitions_for(topic)}
    if missing := sorted(set(wanted) - existing):
        raise WrongInput(f"{topic} has partitions 0 to {max(existing)}, not {', '.join(map(str, missing))}")
    partitions = [TopicPartition(topic, number) for number in sorted(wanted or existing)]
    consumer.assign(partitions)
    for tp, offset in _starts(consumer, partitions, start).items():
        consumer.seek(tp, offset)


def _starts(consumer: Consumer, partitions: list[TopicPartition], start: str) -> Mapping[TopicPartition, int]:
    if start in ("earliest", "beginning"):
        return consumer.beginning_offsets(partitions)
    ends = consumer.end_offsets(partitions)
    if start in ("latest", "end"):
        return ends
    begins = consumer.beginning_offsets(partitions)
    if start.lstrip("-").isdigit() and start.count("-") <= 1:
        number = int(start)
        wanted = {tp: number if number >= 0 and start[0] != "-" else ends[tp] + number for tp in partitions}
        return {tp: min(max(offset, begins[tp]), ends[tp]) for tp, offset in wanted.items()}
    found = consumer.offsets_for_times(dict.fromkeys(partitions, _moment(start)))
    return {tp: ends[tp] if place is None else place.offset for tp, place in found.items()}


def _moment(start: str) -> int:
    try:
        return times.parse_moment_ms(start, int(time.time() * 1000))
    except WrongInput:
        raise WrongInput(
            f"--from takes earliest, latest, an offset, -N, a time (2026-01-31T12:00) or an age (15m), not {start!r}"
        ) from None


def _copy(consumer: Any, write: Callable[[Any], bytes], until: Until, commit: bool) -> None:
    """Records to standard output; in a group, committed once they are printed."""
    out = sys.stdout.buffer
    left = until.max_messages
    last_news = time.monotonic()
    while left is None or left > 0:
        records = consumer.poll(POLL_S, max_records=min(left or POLL_RECORDS, POLL_RECORDS))
        if records:
            out.write(b"".join(map(write, records)))
            out.flush()
            last_news = time.monotonic()
            left = None if left is None else left - len(records)
            if commit:
                _commit(consumer, records)
        elif until.timeout_ms is not None and time.monotonic() - last_news >= until.timeout_ms / 1000:
            return
        if until.at_end and len(records) < POLL_RECORDS and _at_end(consumer):
            return
        if reader_is_gone():
            raise BrokenPipeError


def _commit(consumer: Any, records: list[Any]) -> None:
    """What was printed, no more: the positions are ahead where a record limit cut a fetch short."""
    from kohort.client.errors import CommitFailedError, RebalanceInProgressError

    try:
        consumer.commit({record.topic_partition: record.offset + 1 for record in records})
    except (CommitFailedError, RebalanceInProgressError):
        pass  # the partitions moved: their next owner prints these records again, as at-least-once has it


def _at_end(consumer: Any) -> bool:
    assigned = consumer.assignment()
    if not assigned:
        return False
    ends = consumer.end_offsets(assigned)
    return all(consumer.position(tp) >= end for tp, end in ends.items())
