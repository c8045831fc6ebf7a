"""`kohort apis`: what a broker serves, alone or side by side with another."""

from __future__ import annotations

from typing import Annotated

import typer

from kohort.cli.output import JsonOption, print_json, print_table
from kohort.cli.style import command, new_app
from kohort.cli.target import Target, connected

app = new_app()

Versions = dict[str, tuple[int, int]]


@command(app)
@connected
def apis(
    target: Target,
    compare: Annotated[
        str | None, typer.Option("--compare", metavar="HOST:PORT", help="Show another broker beside it.")
    ] = None,
    differences: Annotated[bool, typer.Option("--differences", help="With --compare: only what differs.")] = False,
    json: JsonOption = False,
) -> None:
    """Show the apis that a broker serves, and in which versions."""
    with target.admin() as admin:
        mine: Versions = admin.api_versions()
    names = list(mine)
    columns: list[tuple[str, Versions]] = [("versions", mine)]
    if compare is not None:
        with target.at(compare).admin() as admin:
            other: Versions = admin.api_versions()
        names += [name for name in other if name not in mine]
        columns.append((compare, other))
    if differences and compare is not None:
        names = [name for name in names if mine.get(name) != columns[1][1].get(name)]
    if json:
        print_json([{"api": name} | {title: found.get(name) for title, found in columns} for name in names])
        return
    rows = [(name, *(_range(found.get(name)) for _, found in columns)) for name in names]
    print_table(("api", *(title for title, _ in columns)), rows, "both serve the same")


def _range(versions: tuple[int, int] | None) -> str:
    if versions is None:
        return "-"
    low, high = versions
    return f"{low} to {high}" if low != high else str(low)
