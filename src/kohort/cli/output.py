"""What commands print: tables, JSON, plain words. A terminal gets styles; a pipe gets aligned text and nothing else."""

from __future__ import annotations

import json
import re
import select
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any

import typer

from kohort.insight.wording import plural as plural
from kohort.insight.wording import printable as printable

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
_NUMBER = re.compile(r"[-+]?[\d,]*\.?\d+ ?[%x]?")


def is_terminal() -> bool:
    return sys.stdout.isatty()


def reader_is_gone() -> bool:
    """Whether standard output is a pipe that nobody reads any more: known without writing to it."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
    except (OSError, ValueError, AttributeError):  # no descriptor behind it, or a system without poll
        return False


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_reports(reports: Sequence[Any], print_one: Callable[[Any], None]) -> None:
    """One after another, an empty line between them."""
    for number, report in enumerate(reports):
        if number:
            print()
        print_one(report)


def print_json_line(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False), flush=True)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], empty: str = "") -> None:
    """Headers in capitals, as Kafka's tools have them. `empty` is said instead of a table without rows."""
    cells = [[printable(cell) for cell in row] for row in rows]
    if not cells and empty:
        print(empty)
    elif is_terminal():
        from rich.console import Console

        Console(highlight=False).print(rich_table(columns, cells))
    else:
        print("\n".join(plain_table(columns, cells)))


def plain_table(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> list[str]:
    rows = [[name.upper() for name in columns], *cells]
    widths = [max(len(row[i]) for row in rows) for i in range(len(columns))]
    right = _numeric(columns, cells)
    return [
        "  ".join(
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in rows
    ]


def _numeric(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> list[bool]:
    """Which columns hold nothing but numbers: they line up on the right."""
    found = []
    for i in range(len(columns)):
        column = [row[i] for row in cells if row[i] != "-"]
        found.append(bool(column) and all(map(_NUMBER.fullmatch, column)))
    return found


def rich_table(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> Any:
    """Folds what is too wide for the terminal rather than cutting it off."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name, to_right in zip(columns, _numeric(columns, cells), strict=True):
        table.add_column(name.upper(), justify="right" if to_right else "left", overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))
    return table
