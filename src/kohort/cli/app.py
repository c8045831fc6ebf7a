"""The typer application: every command by name, imported only when it is called or its help is asked for."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kohort.cli import names
from kohort.cli.style import PlainGroup, command, new_app

if TYPE_CHECKING:
    from kohort.cli.serve_options import ServeOption

COMMANDS: dict[str, str] = {
    "apis": "kohort.cli.apis:app",
    "cluster": "kohort.cli.cluster:app",
    "completions": "kohort.cli.completions:app",
    "configs": "kohort.cli.configs:app",
    "console": "kohort.cli.console:app",
    "consume": "kohort.cli.consume:app",
    "demo": "kohort.cli.demo:app",
    "groups": "kohort.cli.groups:app",
    "history": "kohort.cli.history:app",
    "log": "kohort.cli.log:app",
    "produce": "kohort.cli.produce:app",
    "schemes": "kohort.cli.schemes:app",
    "sim": "kohort.cli.sim:app",
    "topics": "kohort.cli.topics:app",
    "transactions": "kohort.cli.transactions:app",
}
"""Command -> "module:app", a typer application with one command or with several below it."""


class LazyGroup(PlainGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return sorted({*COMMANDS, "serve"})

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name == "serve":
            return serve_command()
        home = COMMANDS.get(cmd_name)
        if home is None:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = home.partition(":")
        found = typer.main.get_command(getattr(import_module(module), attribute))
        found.name = cmd_name
        return found


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


def serve_command() -> Any:
    """Help and completion of `kohort serve`, which runs without typer: that alone takes longer than a start."""
    from kohort.cli.serve_options import DESCRIPTION, OPTIONS

    def serve(**options: Any) -> None:
        raise AssertionError("kohort serve starts in kohort.cli.main")

    parameters = [
        inspect.Parameter(
            option.flag.strip("-").replace("-", "_"),
            inspect.Parameter.KEYWORD_ONLY,
            default=False if option.metavar is None else option.default,
            annotation=_annotation(option),
        )
        for option in OPTIONS
    ]
    serve.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    serve.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    serve.__doc__ = DESCRIPTION
    made = new_app()
    command(made, "serve")(serve)
    return typer.main.get_command(made)


def _annotation(option: ServeOption) -> Any:
    kind: Any = bool if option.metavar is None else str if option.kind is str else int
    if option.repeated:
        kind = list[str]
    if option.default is None and option.metavar is not None:
        kind |= None
    complete = names.one_of(*option.choices) if option.choices else None
    return Annotated[kind, typer.Option(option.flag, metavar=option.metavar, help=option.help, autocompletion=complete)]
