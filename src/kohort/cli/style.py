"""How help looks: plain text in sections, complete at any width, without boxes."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

_TYPE = re.compile(r"\s*<[^>]*>")
_BRACED = re.compile(r"^\{(.*)\}")
FIRST, LAST = ("Arguments", "Options"), ("Connection",)
# typer carries its own click or uses the installed one, by version; either way these are the bases of BadParameter.
_BASES: dict[str, Any] = {kind.__name__: kind for kind in typer.BadParameter.__mro__}
ClickException, UsageError = _BASES["ClickException"], _BASES["UsageError"]
WIDTH = {"max_content_width": 100, "help_option_names": ["-h", "--help"]}


def _sections(command: Any, ctx: Any) -> dict[str, list[tuple[str, str]]]:
    """The parameters by the panel they name; typer's own help would need rich for that."""
    found: dict[str, list[tuple[str, str]]] = {}
    for param in command.get_params(ctx):
        record = param.get_help_record(ctx)
        if record is not None:
            is_argument = param.param_type_name == "argument"
            name = _TYPE.sub("", record[0]) if is_argument else record[0]
            panel = getattr(param, "rich_help_panel", None) or ("Arguments" if is_argument else "Options")
            found.setdefault(panel, []).append((name, record[1]))
    middle = [name for name in found if name not in FIRST + LAST]
    return {name: found[name] for name in (*FIRST, *middle, *LAST) if name in found}


class PlainCommand(TyperCommand):
    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """`TOPIC`, not `{TOPIC}`."""
        return [_BRACED.sub(r"\1", piece) for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        for name, rows in _sections(self, ctx).items():
            with formatter.section(name):
                formatter.write_dl(rows)


class PlainGroup(TyperGroup):
    """Several commands below one name; one that is misspelt is answered with the nearest."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except UsageError as error:
            near = get_close_matches(args[0], self.list_commands(ctx), 1, 0.6) if args else []
            said = error.message.partition(" Did you mean")[0].rstrip(".")  # typer knows only some of the commands
            error.message = f"{said}; did you mean {near[0]}?" if near else said
            if hasattr(error, "possibilities"):  # click would say it once more
                error.possibilities = None
            raise


class GroupWithOptions(PlainGroup):
    """A command of its own that has commands below it too."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        for name, rows in _sections(self, ctx).items():
            with formatter.section(name):
                formatter.write_dl(rows)
        self.format_commands(ctx, formatter)


def new_app(help: str | None = None, **settings: Any) -> typer.Typer:
    """A typer application in this style."""
    return typer.Typer(
        help=help,
        add_completion=False,
        rich_markup_mode=None,
        context_settings=WIDTH,
        **{"cls": PlainGroup, **settings},
    )


def command(app: typer.Typer, name: str | None = None) -> Callable[..., Any]:
    """`@command(app)`: like `@app.command()`."""
    return functools.partial(app.command, name, cls=PlainCommand)()
