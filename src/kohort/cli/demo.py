"""`kohort demo`: the options; what happens is in kohort.demo."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kohort.cli.failures import Failed
from kohort.cli.style import command, new_app

app = new_app()


@command(app)
def demo(
    fast: Annotated[bool, typer.Option("--fast", help="The group alone, without Spark, in some ten seconds.")] = False,
    part: Annotated[
        int | None, typer.Option("--part", metavar="1|2", min=1, max=2, help="Only the readers, or only Spark.")
    ] = None,
    plain: Annotated[bool, typer.Option("--plain", help="Lines instead of a live screen, as in a pipe.")] = False,
    record: Annotated[
        Path | None, typer.Option("--record", metavar="FILE", help="Also write an animated picture (SVG).")
    ] = None,
) -> None:
    """Watch a consumer group form, lose a member and recover; then the same with two Spark queries.

    Starts a broker of its own, a shop that writes orders, and real readers, some of which are killed. In the end it
    proves from what they wrote that no order was skipped.
    """
    from kohort.demo.run import DemoFailed, run

    if record is not None and not record.parent.is_dir():
        raise typer.BadParameter(f"the directory {record.parent} does not exist", param_hint="--record")
    try:
        code = run(fast, plain, record, part)
    except DemoFailed as error:
        raise Failed(str(error)) from None
    raise typer.Exit(code)
