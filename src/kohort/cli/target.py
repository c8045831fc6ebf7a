"""Which cluster a command talks to, and the client settings: the options that every command has, and the clients."""

from __future__ import annotations

import functools
import inspect
import socket
import sys
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from kohort.cli import properties
from kohort.cli.failures import Failed, WrongInput

if TYPE_CHECKING:
    from kohort.client import Admin, Consumer, Producer

DEFAULT_SERVER = "localhost:9092"
CONNECT_TIMEOUT_S = 5.0
MAX_BLOCK_MS = 15_000
# A person waits: what a cluster does not answer by then is a failure worth reporting.
NOT_TEXT = ("callable", "object")  # such as key.serializer, which is a class in Java
DEFAULTS = {"default.api.timeout.ms": 20_000, "client.id": "kohort-cli"}

BootstrapServer = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        "-b",
        envvar="KOHORT_BOOTSTRAP_SERVER",
        metavar="HOST:PORT[,...]",
        help="Brokers of the cluster, any Kafka.",
        rich_help_panel="Connection",
    ),
]
CommandConfig = Annotated[
    Path | None,
    typer.Option(
        "--command-config", metavar="FILE", help="Client settings, a properties file.", rich_help_panel="Connection"
    ),
]
_SETTING_HELP = "A client setting; may be given several times."
ClientConfig = Annotated[
    list[str] | None,
    typer.Option("--config", "-X", metavar="KEY=VALUE", help=_SETTING_HELP, rich_help_panel="Connection"),
]
CommandProperty = Annotated[
    list[str] | None, typer.Option("--command-property", metavar="KEY=VALUE", help=_SETTING_HELP, hidden=True)
]
# Where --config is a topic's configuration, as in Kafka's tools.
OnlyCommandProperty = Annotated[
    list[str] | None,
    typer.Option("--command-property", "-X", metavar="KEY=VALUE", help=_SETTING_HELP, rich_help_panel="Connection"),
]


class Target:
    """A cluster and how to talk to it; makes the clients."""

    def __init__(self, servers: str, file: Path | None, pairs: Iterable[str]) -> None:
        self.settings: dict[str, Any] = dict(DEFAULTS)
        self._from_file: dict[str, str] = {}
        if file is not None:
            self._from_file = properties.client_settings(properties.read(file))
            self.settings["bootstrap.servers"] = self._from_file.pop("bootstrap.servers", servers)
        self._given = properties.parse_pairs(pairs, "--config")
        if file is None or servers != DEFAULT_SERVER:
            self.settings["bootstrap.servers"] = servers

    def at(self, servers: str) -> Target:
        """Another cluster, reached with the same settings."""
        other = copy(self)
        other.settings = {**self.settings, "bootstrap.servers": servers}
        other._given = {name: value for name, value in self._given.items() if name != "bootstrap.servers"}
        return other

    def settings_for(self, known: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
        """Of a file, what this kind of client knows (tools share such files); of the command line, everything.

        `options` are the command's own, by Kafka's names with underscores; None stands for an option not given.
        """
        taken = {name for name, setting in known.items() if setting.kind not in NOT_TEXT}
        from_file = {name: value for name, value in self._from_file.items() if name in taken}
        given = {name.replace("_", "."): value for name, value in options.items() if value is not None}
        return {**self.settings, **from_file, **given, **self._given}

    def _reach(self, settings: Mapping[str, Any]) -> None:
        """Say at once that nobody listens, rather than after the timeouts of a client that hopes."""
        from kohort.client.config import SETTINGS

        try:
            servers = SETTINGS["bootstrap.servers"].parse(settings["bootstrap.servers"])
        except ValueError as error:
            raise WrongInput(f"--bootstrap-server {error}; it takes HOST:PORT, several with commas") from None
        failure: OSError | None = None
        for host, port in servers:
            try:
                socket.create_connection((host, port), CONNECT_TIMEOUT_S).close()
                return
            except (OSError, OverflowError) as error:
                failure = error if isinstance(error, OSError) else OSError(str(error))
        assert failure is not None
        raise Failed(
            f"no broker can be reached at {settings['bootstrap.servers']} ({failure.strerror or failure}); "
            "start one with kohort serve, or name another with --bootstrap-server"
        )

    def admin(self) -> Admin:
        from kohort.client import Admin
        from kohort.client.config import SETTINGS

        settings = self.settings_for(SETTINGS, {})
        self._reach(settings)
        return Admin(settings)

    def consumer(self, **options: Any) -> Consumer:
        from kohort.client import Consumer
        from kohort.client.config import SETTINGS

        settings = self.settings_for(SETTINGS, options)
        self._reach(settings)
        return Consumer(settings)

    def producer(self, **options: Any) -> Producer:
        from kohort.client import Producer
        from kohort.client.producer_config import PRODUCER_SETTINGS

        settings = {"max.block.ms": MAX_BLOCK_MS} | self.settings_for(PRODUCER_SETTINGS, options)
        self._reach(settings)
        return Producer(settings)


def connected(function: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command the connection options, and the Target they amount to as its first argument."""
    return _connected(function, _OPTIONS)


def connected_without_config(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same where --config means something else, so that client settings are --command-property only."""
    return _connected(function, _OPTIONS_WITHOUT_CONFIG)


_OPTIONS: dict[str, tuple[Any, Any]] = {
    "bootstrap_server": (DEFAULT_SERVER, BootstrapServer),
    "command_config": (None, CommandConfig),
    "client_config": (None, ClientConfig),
    "command_property": (None, CommandProperty),
}
_OPTIONS_WITHOUT_CONFIG: dict[str, tuple[Any, Any]] = {
    "bootstrap_server": (DEFAULT_SERVER, BootstrapServer),
    "command_config": (None, CommandConfig),
    "command_property": (None, OnlyCommandProperty),
}


def _connected(function: Callable[..., Any], options: Mapping[str, tuple[Any, Any]]) -> Callable[..., Any]:
    @functools.wraps(function)
    def command(
        *args: Any,
        bootstrap_server: str,
        command_config: Path | None,
        command_property: list[str] | None,
        client_config: list[str] | None = None,
        **rest: Any,
    ) -> Any:
        target = Target(bootstrap_server, command_config, [*(client_config or ()), *(command_property or ())])
        try:
            return function(target, *args, **rest)
        except BrokenPipeError:
            from kohort.cli.run import broken_pipe

            raise typer.Exit(broken_pipe()) from None

    hints = get_type_hints(function, include_extras=True)
    own = [p.replace(annotation=hints[p.name]) for p in list(inspect.signature(function).parameters.values())[1:]]
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (default, annotation) in options.items()
    ]
    command.__signature__ = inspect.Signature([*own, *added])  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in [*own, *added]}
    return command


def warn(sentence: str) -> None:
    print(f"kohort: {sentence}", file=sys.stderr)
