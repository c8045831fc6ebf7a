"""The options of `kohort serve`, once: read by argparse for a quick start, and by typer for help and completion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

DEFAULT_PORT = 9092
DEFAULT_DATA_DIR = "kohort-data"
DESCRIPTION = """Run a Kafka broker.

Prints one line when it accepts requests; logs go to standard error. What happens to groups is kept in the topic
__kohort_group_events, for kohort groups explain; --config kohort.group.events.topic.enable=false turns that off.
"""


class ServeOption(NamedTuple):
    """`metavar` is None for a flag."""

    flag: str
    metavar: str | None
    help: str
    default: Any = None
    kind: Callable[[str], Any] = str
    choices: tuple[str, ...] = ()
    repeated: bool = False


LEVELS = ("debug", "info", "warning", "error")
OPTIONS = (
    ServeOption("--host", "HOST", "Address to listen on.", "127.0.0.1"),
    ServeOption("--port", "PORT", "Port to listen on; 0 picks a free one.", DEFAULT_PORT, int),
    ServeOption("--data-dir", "DIR", f"Where records are kept; ./{DEFAULT_DATA_DIR} unless given."),
    ServeOption("--memory", None, "Keep everything in memory, write no files."),
    ServeOption(
        "--cluster",
        "URL",
        "Be one of several brokers over a store: file:///path, s3://bucket/prefix, gs://…, az://… (docs/cluster.md).",
    ),
    ServeOption(
        "--brokers",
        "N",
        "So many brokers of one cluster in this process, in memory, for tests: with --control-port they can be killed, "
        "paused, cut off, moved and added to. Each takes the port after the one before.",
        kind=int,
    ),
    ServeOption("--node-id", "ID", "The id of this broker; each broker of a cluster has its own.", kind=int),
    ServeOption(
        "--config", "KEY=VALUE", "A broker configuration by Kafka's name; may be given several times.", repeated=True
    ),
    ServeOption(
        "--config-file", "FILE", "Broker configurations in Kafka's server.properties format; --config is stronger."
    ),
    ServeOption("--advertised-listener", "HOST:PORT", "The address told to clients, where it is another one."),
    ServeOption(
        "--control-port",
        "PORT",
        "Take what a test wants (faults, time, restarts, questions) over HTTP on this loopback port; 0 picks one. Off "
        "unless given.",
        kind=int,
    ),
    ServeOption(
        "--control-token-file",
        "FILE",
        "A file with the token that the control port wants, as Authorization: Bearer TOKEN.",
    ),
    ServeOption(
        "--metrics-port",
        "PORT",
        "Serve Prometheus metrics, /health and /ready over HTTP on this port; 0 picks one. Off unless given.",
        kind=int,
    ),
    ServeOption(
        "--console-port",
        "PORT",
        "Show groups and why they rebalance in the browser, on this loopback port; 0 picks one. Off unless given.",
        kind=int,
    ),
    ServeOption("--log-level", "|".join(LEVELS), "How much to log.", "info", choices=LEVELS),
    ServeOption("--log-format", "text|json", "How to log.", "text", choices=("text", "json")),
)
