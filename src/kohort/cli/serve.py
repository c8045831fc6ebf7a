"""`kohort serve`: run a broker until SIGINT or SIGTERM. argparse, since typer alone takes longer than a start."""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import logging
import signal
import sys
from typing import Any

DEFAULT_PORT = 9092
DEFAULT_DATA_DIR = "kohort-data"
_LEVELS = ("debug", "info", "warning", "error")


class UsageError(Exception):
    """The command line is wrong; exit 2."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise UsageError(message)


def parser() -> argparse.ArgumentParser:
    made = _Parser(
        prog="kohort serve",
        description="Run a Kafka broker. Prints one line when it accepts requests; logs go to standard error.",
    )
    add = made.add_argument
    add("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    add("--port", type=int, default=DEFAULT_PORT, help="port to listen on; 0 picks a free one (default: %(default)s)")
    add("--data-dir", metavar="DIR", help=f"where records are kept (default: ./{DEFAULT_DATA_DIR})")
    add("--memory", action="store_true", help="keep everything in memory, write no files")
    add(
        "--config",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="a broker configuration by Kafka's name; may be given several times",
    )
    add("--advertised-listener", metavar="HOST:PORT", help="the address told to clients, where it is another one")
    add("--log-level", choices=_LEVELS, default="info", help="how much to log (default: %(default)s)")
    add("--log-format", choices=("text", "json"), default="text", help="how to log (default: %(default)s)")
    return made


class JsonFormatter(logging.Formatter):
    """One JSON object a line, for machines."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time_ms": int(record.created * 1000),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def set_up_logging(level: str, form: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    handler.setFormatter(JsonFormatter() if form == "json" else text)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


def parse_configs(pairs: list[str]) -> dict[str, str]:
    given = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"--config takes KEY=VALUE, not {pair}")
        given[name.strip()] = value.strip()
    return given


def main(arguments: list[str]) -> int:
    """Serve; the exit code is 0 after a clean stop, 2 for a wrong command line, 1 where the broker cannot run."""
    from kohort.broker.boot import StartError
    from kohort.broker.config import ConfigError

    try:
        options = parser().parse_args(arguments)
        if options.memory and options.data_dir is not None:
            raise UsageError("--memory and --data-dir exclude each other: choose one")
        if not 0 <= options.port <= 65535:
            raise UsageError(f"--port takes a number from 0 to 65535, not {options.port}")
        given = parse_configs(options.config)
        if options.advertised_listener is not None:
            given["advertised.listeners"] = options.advertised_listener
        set_up_logging(options.log_level, options.log_format)
        return _run(options, given)
    except (UsageError, ConfigError) as error:
        print(f"kohort serve: {error}", file=sys.stderr)
        return 2
    except StartError as error:
        print(f"kohort serve: {error}", file=sys.stderr)
        return 1


def _run(options: argparse.Namespace, given: dict[str, str]) -> int:
    from kohort.broker.boot import make_config, open_store
    from kohort.broker.embedded import new_event_loop

    config = make_config(given)
    store = open_store(config, None if options.memory else options.data_dir or DEFAULT_DATA_DIR)
    loop = new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(_serve(config, store, options.host, options.port))
    finally:
        loop.close()


async def _serve(config: Any, store: Any, host: str, port: int) -> int:
    from kohort.broker.boot import start_broker
    from kohort.broker.clock import Clock

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    running = await start_broker(config, store, host, port, Clock())
    print(f"kohort listening on {running.host}:{running.port}", flush=True)
    # What a start leaves behind lives as long as the process: keep the collector from walking it over and over.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    await stop.wait()
    logging.getLogger("kohort.broker").info("stopping")
    await running.stop()
    return 0
