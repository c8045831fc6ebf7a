"""`kohort serve`: run a broker until SIGINT or SIGTERM. argparse, since typer alone takes longer than a start."""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import signal
import sys
import time
from typing import Any

from kohort.cli.serve_logging import set_up_logging
from kohort.cli.serve_options import DEFAULT_DATA_DIR, OPTIONS
from kohort.cli.serve_settings import reload, say_start

logger = logging.getLogger("kohort.broker")

MAX_TOKEN_CHARACTERS = 1000
MOST_BROKERS = 9


class UsageError(Exception):
    """The command line is wrong; exit 2."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise UsageError(message)


def parse(arguments: list[str]) -> argparse.Namespace:
    made = _Parser(prog="kohort serve", add_help=False, allow_abbrev=False)
    for option in OPTIONS:
        if option.metavar is None:
            made.add_argument(option.flag, action="store_true")
        elif option.repeated:
            made.add_argument(option.flag, action="append", default=[])
        else:
            made.add_argument(option.flag, type=option.kind, default=option.default, choices=option.choices or None)
    options, unknown = made.parse_known_args(arguments)
    if unknown:
        raise UsageError(_unknown(unknown[0]))
    return options


def _unknown(word: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(word.partition("=")[0], [option.flag for option in OPTIONS], 1, 0.6)
    hint = f"; did you mean {near[0]}?" if near else ";"
    what = "no such option" if word.startswith("-") else "it takes options only, not"
    return f"{what}: {word}{hint} see kohort serve --help"


def main(arguments: list[str]) -> int:
    """Serve; the exit code is 0 after a clean stop, 2 for a wrong command line, 1 where the broker cannot run."""
    from kohort.broker.boot import StartError
    from kohort.broker.config import ConfigError
    from kohort.cli.failures import WrongInput

    try:
        options = parse(arguments)
        if options.memory and options.data_dir is not None:
            raise UsageError("--memory and --data-dir exclude each other: choose one")
        if options.cluster is not None and (options.memory or options.data_dir is not None):
            raise UsageError("a broker with --cluster keeps everything there: give no --memory and no --data-dir")
        _check_brokers(options)
        if options.cluster is not None and options.node_id is None:
            raise UsageError("--cluster needs --node-id, a number that no other broker of the cluster has")
        ports = {
            "--port": options.port,
            "--control-port": options.control_port,
            "--metrics-port": options.metrics_port,
            "--console-port": options.console_port,
        }
        for name, port in ports.items():
            if port is not None and not 0 <= port <= 65535:
                raise UsageError(f"{name} takes a number from 0 to 65535, not {port}")
        given = _given(options)
        flood = set_up_logging(options.log_level, options.log_format)
        try:
            return _run(options, given)
        finally:
            flood.flush()
    except (UsageError, WrongInput, ConfigError) as error:
        print(f"kohort serve: {error}", file=sys.stderr)
        return 2
    except StartError as error:
        print(f"kohort serve: {error}", file=sys.stderr)
        return 1


_OF_ONE = ("--data-dir", "--cluster", "--node-id", "--metrics-port", "--console-port", "--advertised-listener")


def _check_brokers(options: argparse.Namespace) -> None:
    """Of several brokers in this process."""
    if options.brokers is None:
        return
    if not 1 <= options.brokers <= MOST_BROKERS:
        raise UsageError(f"--brokers takes a number from 1 to {MOST_BROKERS}, not {options.brokers}")
    for flag in _OF_ONE:
        if getattr(options, flag[2:].replace("-", "_")) is not None:
            raise UsageError(
                f"{flag} is of one broker: leave it out with --brokers, which keep everything in memory, for tests; "
                "brokers that last are processes of their own, with --cluster"
            )
    if options.port and options.port + options.brokers - 1 > 65535:
        raise UsageError(f"--port {options.port} leaves too few ports for {options.brokers} brokers, one each")


def _given(options: argparse.Namespace) -> dict[str, str]:
    """The configurations of the file and of the command line, which is stronger."""
    from kohort.cli.properties import parse_pairs

    given = {
        "kohort.group.events.topic.enable": "true",
        **_file(options),
        **parse_pairs(options.config, "--config"),
    }
    if options.advertised_listener is not None:
        given["advertised.listeners"] = options.advertised_listener
    if options.node_id is not None:
        given["node.id"] = str(options.node_id)
    return given


def _token(options: argparse.Namespace) -> str | None:
    from pathlib import Path

    if options.control_token_file is None:
        return None
    if options.control_port is None:
        raise UsageError("--control-token-file is for --control-port: give that too")
    try:
        token = Path(options.control_token_file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--control-token-file {options.control_token_file}: {error}") from None
    if not 0 < len(token) <= MAX_TOKEN_CHARACTERS:
        raise UsageError(f"--control-token-file {options.control_token_file}: it has to hold a token, and nothing else")
    return token


def _file(options: argparse.Namespace) -> dict[str, str]:
    """The configurations of a file; its log.dirs is the data directory where no other was given."""
    from pathlib import Path

    from kohort.cli import properties

    if options.config_file is None:
        return {}
    found = properties.read(Path(options.config_file), "--config-file")
    directory = found.pop("log.dirs", None) or found.pop("log.dir", None)
    if directory and options.data_dir is None and not options.memory:
        options.data_dir = directory
    return found


def _run(options: argparse.Namespace, given: dict[str, str]) -> int:
    from kohort.broker.embedded import new_event_loop

    if options.brokers is not None:
        from kohort.cli.serve_several import ServingSeveral

        serving: Serving | ServingSeveral = ServingSeveral(options, given, _token(options))
    else:
        serving = Serving(options, given)
    loop = new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(serving.run())
    finally:
        loop.close()


class Serving:
    """The broker of this process, from its first start to its end; restarted on request of the control port."""

    def __init__(self, options: argparse.Namespace, given: dict[str, str]) -> None:
        from kohort.broker.boot import make_config
        from kohort.broker.client_requests import RequestLog
        from kohort.broker.clock import Clock
        from kohort.broker.faults import Faults

        self._options = options
        self._given = given
        self._control_token = _token(options)
        make_config(given)
        self._clock = Clock()
        self._faults = Faults()
        self._request_log = None if options.control_port is None else RequestLog()
        self._store: Any = self._open_store()
        self._running: Any = None
        self._meter: Any = None
        self._changing = asyncio.Lock()
        self._stop = asyncio.Event()

    def _open_store(self) -> Any:
        from kohort.broker.boot import make_config, open_store

        options = self._options
        if options.cluster is not None:
            return None
        return open_store(make_config(self._given), None if options.memory else options.data_dir or DEFAULT_DATA_DIR)

    async def run(self) -> int:
        stop = self._stop
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        metrics = await self._start_metrics()
        try:
            await self._start(self._options.port)
            control = await self._start_control()
            console = await self._start_console()
        except BaseException:
            if metrics is not None:
                await metrics.stop()
            raise
        say_start(self._running, self._options)
        for listener in self._running.listeners:
            named = "" if len(self._running.listeners) == 1 else f" ({listener.name}, {listener.protocol})"
            print(f"kohort listening on {listener.host}:{listener.port}{named}", flush=True)
        if control is not None:
            print(f"kohort control on http://{control.host}:{control.port}", flush=True)
        if metrics is not None:
            print(f"kohort metrics on http://{self._options.host}:{metrics.port}/metrics", flush=True)
        if console is not None:
            print(f"kohort console on {console.address}", flush=True)
        # What a start leaves behind lives as long as the process: keep the collector from walking it over and over.
        gc.collect()
        gc.freeze()
        # What survives is looked at once more, all of it at a time: few enough that nobody waits for that.
        gc.set_threshold(10_000, 4, 1_250)
        await stop.wait()
        began = time.monotonic()
        logger.info(
            "stopping: %d connections are closed, what is under way is finished", self._running.connection_count
        )
        if console is not None:
            await console.stop()
        if control is not None:
            await control.stop()
        async with self._changing:
            await self._running.stop()
        if metrics is not None:
            await metrics.stop()
        logger.info("stopped after %.1f s", time.monotonic() - began)
        membership = self._running.core.membership
        return 1 if membership is not None and membership.why_stopped is not None else 0

    def _reload(self) -> None:
        """SIGHUP: the configuration file and certificates are read again."""
        from kohort.cli.failures import WrongInput

        if self._running is None or self._stop.is_set():
            return
        try:
            given = _given(self._options)
        except (UsageError, WrongInput) as error:
            logger.error("SIGHUP: settings stay as they were: %s", error)
            given = self._given
        self._given = reload(self._running, given, self._given)

    async def _start(self, port: int) -> None:
        from kohort.broker.boot import make_config, start_broker

        config, store = make_config(self._given), self._store
        place = self._place()
        self._running = await start_broker(
            config, store, self._options.host, port, self._clock, self._faults, self._meter, self._request_log, place
        )
        if place is not None:
            self._running.core.membership.ended = self._stop.set

    def _place(self) -> Any:
        """In a cluster: the store, and this broker's place in it."""
        if self._options.cluster is None:
            return None
        from kohort.broker.boot import StartError
        from kohort.broker.cluster_boot import START_ERRORS, ClusterPlace

        try:
            return ClusterPlace.at(self._options.cluster)
        except START_ERRORS as error:
            raise StartError(f"--cluster: {error}") from None

    async def _start_metrics(self) -> Any:
        """Before the broker, so that a missing package or a port in use is known at once."""
        port = self._options.metrics_port
        if port is None:
            return None
        from kohort.broker.boot import StartError
        from kohort.broker.health import health_of
        from kohort.broker.meter import Meter

        try:
            from kohort.broker.metrics import snapshot
            from kohort.broker.metrics_port import MetricsPort
        except ImportError as error:
            raise StartError(f"--metrics-port: {error}") from None
        meter = self._meter = Meter(time.perf_counter)

        def take() -> Any:
            if self._running is None or self._changing.locked():
                return None
            return snapshot(self._running.core, meter, self._running.connection_count)

        def health() -> Any:
            core = None if self._running is None else self._running.core
            return health_of(core, self._stop.is_set() or self._changing.locked())

        made = MetricsPort(take, health)
        try:
            await made.start(self._options.host, port)
        except OSError as error:
            raise StartError(f"--metrics-port {port}: {error.strerror or error}") from None
        return made

    async def restart(self) -> None:
        """Stop, then start on the same port with the same data."""
        async with self._changing:
            port = self._running.port
            await self._running.stop()
            if not self._options.memory:
                self._store = self._open_store()
            await self._start(port)

    async def _start_control(self) -> Any:
        port = self._options.control_port
        if port is None:
            return None
        from kohort.broker.boot import StartError
        from kohort.broker.control import Control
        from kohort.broker.control_routes import Routes

        control = Control(Routes(lambda: self._running, self.restart), self._control_token)
        try:
            await control.start(port)
        except StartError:
            await self._running.stop()
            raise
        return control

    async def _start_console(self) -> Any:
        """A process of its own: what people look at must not keep the broker from its work."""
        port = self._options.console_port
        if port is None:
            return None
        from kohort.broker.boot import StartError
        from kohort.cli.console_process import ConsoleProcess

        try:
            return await ConsoleProcess.start(self._running.host, self._running.port, port)
        except StartError:
            await self._running.stop()
            raise
