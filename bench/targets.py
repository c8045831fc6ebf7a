"""The two brokers under measurement, started as subprocesses in the same way: `kohort serve` and a real Apache Kafka.

What is measured on them belongs to the sections.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Protocol

from apache_kafka import PRODUCTION_JVM, ApacheKafka, available
from kohort_process import KohortProcess


class Target(Protocol):
    """A running broker. `side` is the column of the tables it belongs to."""

    side: str
    bootstrap_servers: str
    pid: int
    startup_seconds: float

    def start(self) -> None: ...

    def stop(self) -> None: ...


class KohortTarget(KohortProcess):
    """`kohort serve` with files in a temporary folder."""

    side = "kohort"

    def __init__(self, config: Mapping[str, object] | None = None) -> None:
        super().__init__(config, log_level="warning")


class KafkaTarget(ApacheKafka):
    """Apache Kafka with the JVM settings of its own start script."""

    side = "kafka"

    def __init__(self, config: Mapping[str, object] | None = None) -> None:
        super().__init__(config, jvm=PRODUCTION_JVM, log_level="WARN")


@contextlib.contextmanager
def running(side: str, config: Mapping[str, object] | None = None) -> Iterator[Target]:
    """A started broker of one side, ended and cleaned up afterwards."""
    target = KohortTarget(config) if side == "kohort" else KafkaTarget(config)
    try:
        target.start()
        yield target
    finally:
        target.close()


def usable_sides(wanted: list[str]) -> tuple[list[str], list[str]]:
    """The sides that can be run here, and a sentence for each that cannot."""
    usable, reasons = [], []
    for side in wanted:
        if side == "kafka" and not available()[0]:
            reasons.append(f"Apache Kafka is left out: {available()[1]}")
        else:
            usable.append(side)
    return usable, reasons
