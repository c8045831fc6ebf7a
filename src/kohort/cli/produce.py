"""`kohort produce`: records from standard input to a topic."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from kohort.cli import lines, names
from kohort.cli.failures import WrongInput
from kohort.cli.output import plural
from kohort.cli.style import command, new_app
from kohort.cli.target import Target, connected, warn

app = new_app()

PATIENCE_S = 1.0


Format = Annotated[
    str,
    typer.Option(
        "--format",
        "-f",
        metavar="lines|json",
        help="What a line of the input is: a value, or an object.",
        autocompletion=names.one_of("lines", "json"),
    ),
]
Key = Annotated[str | None, typer.Option("--key", "-k", metavar="TEXT", help="The key of records that bring none.")]
KeySeparator = Annotated[
    str | None, typer.Option("--key-separator", "-K", metavar="TEXT", help="The key ends where this is found.")
]
HeaderOption = Annotated[
    list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header of every record.")
]
Partition = Annotated[
    int | None, typer.Option("--partition", "-p", metavar="N", min=0, help="The partition; else by key.")
]
Codec = Annotated[
    str | None,
    typer.Option(
        "--compression",
        "--compression-codec",
        "-z",
        metavar="CODEC",
        help="none (the default), gzip, snappy, lz4, zstd.",
        autocompletion=names.one_of("none", "gzip", "snappy", "lz4", "zstd"),
    ),
]
Acks = Annotated[
    str | None,
    typer.Option(
        "--acks",
        "--request-required-acks",
        metavar="all|1|0",
        help="Who must have a record; all is the default.",
        autocompletion=names.one_of("all", "1", "0"),
    ),
]
LingerMs = Annotated[
    int | None,
    typer.Option("--linger-ms", metavar="MS", min=0, help="How long a record waits for company; 5 is the default."),
]
NullValue = Annotated[
    str | None, typer.Option("--null-value", metavar="TEXT", help="A value that stands for none: a tombstone.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Do not say how many records were stored.")]


@command(app)
@connected
def produce(
    target: Target,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.", autocompletion=names.topics)],
    format: Format = "lines",
    key: Key = None,
    key_separator: KeySeparator = None,
    header: HeaderOption = None,
    partition: Partition = None,
    compression: Codec = None,
    acks: Acks = None,
    linger_ms: LingerMs = None,
    null_value: NullValue = None,
    quiet: Quiet = False,
) -> None:
    """Write records from standard input to a topic, one per line.

    With --format json a line is {"key": ..., "value": ..., "headers": ..., "partition": ..., "timestamp": ...}, all of
    it optional: what `kohort consume --format json` prints can be written back.
    """
    if format not in ("lines", "json"):
        raise WrongInput(f"--format takes lines or json, not {format!r}")
    if format == "json" and key_separator is not None:
        raise WrongInput("--key-separator is for --format lines: a JSON line has its key in itself")
    if key_separator == "":
        raise WrongInput("--key-separator must not be empty")
    headers = _headers(header or ())
    count = 0
    with target.producer(compression_type=compression, acks=acks, linger_ms=linger_ms) as producer:
        _invite(topic, format, key_separator)
        for record in _read(format, key_separator):
            with _Patience(topic) if not count else contextlib.nullcontext():
                producer.send(
                    topic,
                    None if null_value is not None and record.value == null_value.encode() else record.value,
                    record.key if record.key is not None else key,
                    headers=record.headers + headers,
                    partition=partition if record.partition is None else record.partition,
                    timestamp_ms=record.timestamp_ms,
                )
            count += 1
        producer.flush()
    if not quiet:
        warn(f"{plural(count, 'record')} stored in {topic}")


def _invite(topic: str, form: str, key_separator: str | None) -> None:
    """To somebody at a terminal, who would otherwise look at nothing."""
    if sys.stdin.isatty():
        line = "a JSON object" if form == "json" else f"key{key_separator}value" if key_separator else "a value"
        warn(f"type {line} a line for {topic}; ctrl-D ends")


class _Patience:
    """Says, once, what the first record waits for, if it has to."""

    def __init__(self, topic: str) -> None:
        text = f"waiting for the topic {topic}: the broker does not have it, or it has no leader yet"
        self._timer = threading.Timer(PATIENCE_S, warn, [text])
        self._timer.daemon = True

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *exc: object) -> None:
        self._timer.cancel()


def _headers(pairs: Any) -> tuple[lines.Header, ...]:
    found = []
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise WrongInput(f"--header takes NAME=VALUE, not {pair!r}")
        found.append((name, value.encode()))
    return tuple(found)


def _read(form: str, key_separator: str | None) -> Iterator[lines.Outgoing]:
    separator = None if key_separator is None else key_separator.encode()
    for number, raw in enumerate(sys.stdin.buffer, 1):
        line = raw.rstrip(b"\n").removesuffix(b"\r")
        try:
            if form == "json":
                if line.strip():
                    yield lines.from_json(line)
            else:
                yield lines.from_line(line, separator)
        except WrongInput as error:
            raise WrongInput(f"line {number} of the input: {error}") from None
