"""The typer application: every command by name, imported only when it is called or its help is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer

from kohort.cli.style import PlainGroup, new_app

COMMANDS: dict[str, str] = {
    "completions": "kohort.cli.completions:app",
    "consume": "kohort.cli.consume:app",
    "demo": "kohort.cli.demo:app",
    "groups": "kohort.cli.groups:app",
    "history": "kohort.cli.history:app",
    "produce": "kohort.cli.produce:app",
    "schemes": "kohort.cli.schemes:app",
    "sim": "kohort.cli.sim:app",
    "topics": "kohort.cli.topics:app",
}
"""Command -> "module:app", a typer application with one command or with several below it."""


class LazyGroup(PlainGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return sorted({*COMMANDS, *super().list_commands(ctx)})

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        home = COMMANDS.get(cmd_name)
        if home is None:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = home.partition(":")
        command = typer.main.get_command(getattr(import_module(module), attribute))
        command.name = cmd_name
        return command


app = new_app("Kafka's consumer-group coordination for Python and Spark.", cls=LazyGroup, no_args_is_help=True)


def _version(asked: bool) -> None:
    if asked:
        from kohort import __version__

        typer.echo(f"kohort {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """Kafka's consumer-group coordination for Python and Spark."""


@app.command(add_help_option=False, context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
def serve(ctx: typer.Context) -> None:
    """Run a Kafka broker."""
    from kohort.cli.serve import main

    raise typer.Exit(main(ctx.args))
