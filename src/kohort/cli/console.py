"""`kohort console`: the options, the source that they name, and a line with the address. Served by console/."""

from __future__ import annotations

import asyncio
import time
import webbrowser
from pathlib import Path
from typing import Annotated, Any

import typer

from kohort.cli import times
from kohort.cli.failures import Failed, WrongInput
from kohort.cli.style import command, new_app
from kohort.cli.target import Target, connected, warn

app = new_app()
DEFAULT_PORT = 9095


@command(app)
@connected
def console(
    target: Target,
    history: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Show what kohort history ingest keeps there, instead of a cluster."),
    ] = None,
    port: Annotated[int, typer.Option(help="Port to listen on; 0 picks a free one.", min=0, max=65535)] = DEFAULT_PORT,
    host: Annotated[
        str, typer.Option(metavar="HOST", help="Address to listen on; with one of another machine a token is needed.")
    ] = "127.0.0.1",
    since: Annotated[
        str, typer.Option(metavar="TIME", help="Read from then on: a time in UTC, or so long ago (2h, 7d).")
    ] = "1d",
    allow_changes: Annotated[
        bool,
        typer.Option("--allow-changes", help="Let people reset offsets, remove members and delete groups from here."),
    ] = False,
    open_browser: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    end_with_stdin: Annotated[bool, typer.Option("--end-with-stdin", hidden=True)] = False,
) -> None:
    """Show groups and why they rebalance in the browser: live from any Kafka, or from a kept history.

    Listens on this machine alone. It joins no group and, unless --allow-changes is given, changes nothing.
    """
    try:
        from kohort.console import server
    except ImportError as error:
        raise Failed(f"the console needs more packages ({error.name}): pip install 'kohort[console]'") from None
    if history is not None and allow_changes:
        raise WrongInput("--allow-changes and --history exclude each other: a history cannot be changed")
    source = _kept(history) if history is not None else _live(target, since)
    try:
        listening = server.listen(host, port)
    except OSError as error:
        raise Failed(f"cannot listen on {host}:{port}: {error.strerror or error}; choose another with --port") from None
    rules = server.rules_for(host)
    where = server.address(host, listening.getsockname()[1], rules)
    changes = _changes(target) if allow_changes else None

    def ready() -> None:
        print(f"kohort console on {where}", flush=True)
        if rules.token:
            warn("whoever has this address can look, and others can reach it: it is HTTP, without encryption")
        if open_browser:
            webbrowser.open(where)

    asyncio.run(server.serve(source, listening, rules, changes, ready, end_with_stdin))


def _kept(directory: Path) -> Any:
    from kohort.history.kept import NotAHistory, rounds

    try:
        from kohort.console.kept import KeptSource

        rounds(directory)
    except ImportError as error:
        raise Failed(f"--history needs more packages ({error.name}): pip install 'kohort[console]'") from None
    except NotAHistory as error:
        raise Failed(str(error)) from None
    return KeptSource(directory=directory)


def _live(target: Target, since: str) -> Any:
    from kohort.client.config import SETTINGS
    from kohort.console.live import LiveSource

    settings = target.settings_for(SETTINGS, {})
    since_ms = times.parse_moment_ms(since, int(time.time() * 1000))
    try:
        target.admin().close()
    except Failed as error:
        warn(f"{error}; the console starts all the same, and shows it when it is there")
    return LiveSource(settings=settings, since_ms=since_ms)


def _changes(target: Target) -> Any:
    from kohort.cli.console_changes import ClusterChanges

    return ClusterChanges(target)
