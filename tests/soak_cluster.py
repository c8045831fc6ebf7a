"""The soak on three brokers over one store: every few seconds one is killed with -9, stands still, or hands over and
starts again, while clients of all kinds are in groups. `python tests/soak.py --cluster directory`, or `s3`.

Java's client and franz-go take part where a JDK with Maven, or Go, is there; the figures say which did.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tools"))

import franz_go  # noqa: E402
import s3  # noqa: E402
from apache_kafka import Unavailable, available, compile_java, java_command  # noqa: E402
from kohort.cluster import names  # noqa: E402
from kohort.cluster.engine import EngineError, Missing  # noqa: E402
from kohort.cluster.open_engine import open_engine  # noqa: E402
from soak import Soak  # noqa: E402
from soak_audit import Audit, Ledgers  # noqa: E402
from soak_brokers import SESSION_MS, Brokers  # noqa: E402
from soak_processes import Workers  # noqa: E402

TROUBLE_EVERY_S = (2.0, 6.0)
WORKER_KILL_S = 20
LOOK_EVERY_S = 0.5
CONFORMANCE = HERE / "conformance"


@contextlib.contextmanager
def store(kind: str, home: Path) -> Iterator[str]:
    """The address of a store, which is there meanwhile."""
    if kind == "directory":
        yield f"file://{home / 'store'}"
        return
    with s3.running() as (address, environment):
        before = dict(os.environ)
        os.environ.update(environment)
        try:
            yield address
        finally:
            os.environ.clear()
            os.environ.update(before)


class StoreWatch:
    """How long one request to the store takes meanwhile. Brokers wait for several, one after the other: where one takes
    seconds, as on a busy machine with moto, which answers some 200 a second, so do commits and take-overs."""

    def __init__(self, address: str) -> None:
        self._engine = open_engine(address)
        self.seconds: list[float] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(LOOK_EVERY_S):
            began = time.monotonic()
            with contextlib.suppress(EngineError, Missing):  # one that fails takes time all the same
                self._engine.get(names.meta(0))
            self.seconds.append(time.monotonic() - began)

    def end(self) -> None:
        self._over.set()
        self._thread.join()


class ClusterSoak(Soak):
    broker: Brokers

    def __init__(self, options: argparse.Namespace, home: Path, address: str) -> None:
        self._address = address
        self._programs = dict(_programs())
        super().__init__(options, home)

    def _make_broker(self) -> Brokers:
        return Brokers(self.home, self._address, self.chance)

    def _foreign(self) -> list[tuple[list[str], list[str]]]:
        every_other = list(self.groups.items())[::2]
        return [
            (program, [f"{kind}:{group}:{topic}" for group, topic in every_other])
            for kind, program in self._programs.items()
        ]

    def _watch_memory(self) -> None:
        """Of a broker alone it is watched in the other mode."""

    def _storm(self, workers: Workers, seconds: float) -> None:
        watch = StoreWatch(self._address)
        try:
            self._troubles(workers, seconds)
        finally:
            watch.end()
        self._requests = sorted(watch.seconds)

    def _troubles(self, workers: Workers, seconds: float) -> None:
        end = time.monotonic() + seconds
        next_trouble, next_worker = time.monotonic() + TROUBLE_EVERY_S[1], time.monotonic() + WORKER_KILL_S
        while (now := time.monotonic()) < end:
            if now >= next_trouble:
                next_trouble = now + self.chance.uniform(*TROUBLE_EVERY_S)
                self.say(self.broker.trouble())
            if now >= next_worker:
                next_worker = now + self.chance.uniform(0.5, 1.5) * WORKER_KILL_S
                workers.kill_one(self.chance.randrange(len(workers.processes)))
            self._look_after(workers)
            time.sleep(0.1)
        self.broker.all_back()

    def _look_after(self, workers: Workers) -> None:
        self.broken += workers.revive() + self.broker.look_after()

    def say(self, what: str) -> None:
        print(f"{time.monotonic() - self.began:5.0f} s  {len(self.produced):7d} records stored  {what}", flush=True)

    def _count_rebalances(self) -> Counter[str]:
        return Counter()

    def _judge_memory(self) -> list[str]:
        return []

    def _figures(
        self, workers: Workers, ledgers: Ledgers, found: Audit, events: Counter[str], stored: int
    ) -> list[tuple[str, Any]]:
        happened = self.broker.happened
        rounds = {(group, number) for _, group, number in ledgers.assigned.values() if number is not None}
        gaps, asked = sorted(_gaps(ledgers)), self._requests
        return [
            ("store", self._address.partition(":")[0]),
            ("clients", ", ".join(sorted({"confluent", "kafka-python", "aiokafka", "kohort", *self._programs}))),
            *self._figures_of_records(found, stored),
            ("generations of all groups", len(rounds)),
            ("brokers", ", ".join(f"{what} {count} times" for what, count in sorted(happened.items()))),
            ("slowest start of a broker", f"{self.broker.slowest_start_s:.2f} s"),
            ("broker.session.timeout.ms", SESSION_MS),
            ("client process kills", workers.kills),
            ("clients that gave up and were started again", sum(found.gave_up.values())),
            ("longest time without a commit of a group", f"median {_part(gaps, 0.5)}, longest {_part(gaps, 1)}"),
            ("one request to the store", f"median {_part(asked, 0.5, 3)}, longest {_part(asked, 1, 3)}"),
        ]


def _programs() -> Iterator[tuple[str, list[str]]]:
    """Of other languages, where they can be had; who cannot is told of."""
    there, why = available()
    if there:
        yield "java", java_command("SoakMember", extra_class_path=[compile_java(CONFORMANCE / "java")])
    else:
        print(f"without Java's client: {why}")
    try:
        yield "go", [str(franz_go.build(CONFORMANCE / "go" / "soak_member.go"))]
    except Unavailable as unavailable:
        print(f"without franz-go: {unavailable}")


def _gaps(ledgers: Ledgers) -> Iterator[float]:
    """Of each group the longest time between two commits that were acknowledged, of any partition."""
    times: dict[str, list[float]] = {}
    for (group, _), commits in ledgers.commits.items():
        times.setdefault(group, []).extend(acknowledged for _, acknowledged, _ in commits)
    for moments in times.values():
        moments.sort()
        yield max((after - before for before, after in itertools.pairwise(moments)), default=0.0)


def _part(seconds: list[float], share: float, digits: int = 1) -> str:
    return f"{seconds[int(share * (len(seconds) - 1))]:.{digits}f} s" if seconds else "-"
