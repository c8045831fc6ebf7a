"""The exactly-once sink under kill -9. `python tests/soak_exactly_once.py --runs 200`, `--kafka` for an Apache Kafka.

One streaming query, killed once in every run: a task's worker, the sink's process on the driver before or after any of
its steps (between decision and EndTxn, between two EndTxn, between the sink's commit and Spark's commit log), the whole
JVM at a random moment, or the broker. It is started again, and when it has come to the end of the input, every input
row is in the output once, for a read_committed consumer, and nothing is left open.

With `--group` it reads as a member of a group, its offsets in the transactions; and now and then it is killed for good,
and a second query, with a checkpoint of its own, takes its partitions over.

What a run of the query failed with is in failures.log, whole. Where the machine was too slow for Spark to start its
Python at all, nothing was tried: the query is started once more, a number of times; then the soak ends with 2, and has
shown neither that a promise holds nor that one is broken.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import queue
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

import kohort
from apache_kafka import ApacheKafka
from doomed_sink import DOOMS
from kohort.client import TopicPartition
from kohort.client.admin_types import NewTopic
from kohort_process import KohortProcess
from spark.streams import descendants

SOURCE, SINK, GROUP = "in", "out", "exactly-once"
PARTITIONS, ROWS = 4, 50
POLL_S = 0.5
TAKEN_OVER, AFTER = "taken over after", ("after:Write", "before:End", "ends:1", "ends:2", "after:End", "jvm")
ATTEMPTS, STARVED_ATTEMPTS = 6, 20
STARVED = "Python worker failed to connect back"
"""Spark's words where a Python process has not come up in ten seconds or so: no line of the query has run in it."""
JVM = "org.apache.spark.deploy.SparkSubmit"


class App:
    """A Spark application in a process of its own."""

    def __init__(self, servers: str, home: Path, checkpoint: str, group: bool, patience_s: float) -> None:
        self._patience_s = patience_s
        self._log = open(home / "app.log", "ab")  # noqa: SIM115 - as long as the process
        command = [sys.executable, str(Path(__file__).with_name("soak_exactly_once_app.py")), "--servers", servers]
        command += ["--source", SOURCE if group else str(home / SOURCE), "--sink", SINK]
        command += ["--checkpoint", str(home / checkpoint), *(("--group", GROUP) if group else ())]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, env=environment, text=True
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self.answer()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                self._lines.put(line)
        self._lines.put(None)

    def begin(self, doom: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"doom": doom}) + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any] | None:
        """None where it has died."""
        line = self._lines.get(timeout=self._patience_s)
        return None if line is None else json.loads(line)

    def kill(self) -> None:
        for pid in [*descendants(JVM, {self.process.pid}), self.process.pid]:
            os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        assert self.process.stdin is not None
        if self.process.poll() is None:
            self.process.stdin.close()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.kill()
        self._log.close()


class Soak:
    def __init__(self, options: argparse.Namespace, home: Path) -> None:
        self.options, self.home = options, home
        self.chance = random.Random(options.seed)
        config = {"group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 100}
        self.broker = ApacheKafka(config) if options.kafka else KohortProcess(config, log_level="warning")
        self.app: App | None = None
        self.done: Counter[str] = Counter()
        self.broken: list[str] = []
        self.starved = 0
        self.gave_up = ""
        self.produced = 0
        self.queries = 1
        self.found: Counter[str] = Counter()
        self.began = time.monotonic()

    @property
    def servers(self) -> str:
        return self.broker.bootstrap_servers

    def run(self) -> bool:
        (self.home / SOURCE).mkdir(exist_ok=True)
        self.broker.start()
        with kohort.Admin(bootstrap_servers=self.servers, default_api_timeout_ms=60_000) as admin:
            admin.create_topics([NewTopic(SOURCE, PARTITIONS, 1), NewTopic(SINK, 2, 1)])
        bag: list[str] = []
        for number in range(1, self.options.runs + 1):
            if not bag:
                taken_over = [f"{TAKEN_OVER} {doom}" for doom in AFTER] if self.options.group else []
                bag = [*DOOMS, "jvm", "broker", *taken_over]
                self.chance.shuffle(bag)
            if time.monotonic() - self.began > self.options.minutes * 60:
                break
            self._one(number, bag.pop())
            if self.broken or self.gave_up:
                break
        self._judge()
        return not self.broken and not self.gave_up

    def _one(self, number: int, doom: str) -> None:
        if doom.startswith(TAKEN_OVER):
            self._take_over(doom.removeprefix(f"{TAKEN_OVER} "))
        self._produce()
        app = self._living()
        app.begin(doom if doom in DOOMS else "")
        if doom == "jvm":
            time.sleep(self.chance.uniform(0.3, 4))
            app.kill()
        elif doom == "broker":
            time.sleep(self.chance.uniform(0.3, 3))
            self.broker.kill()
            self.broker.start()
        if not self._finish(doom):
            return
        self._check(number)
        self.done[doom] += 1
        print(f"{time.monotonic() - self.began:5.0f} s  run {number:4d}  {self.produced:6d} rows  {doom}", flush=True)

    def _take_over(self, doom: str) -> None:
        """The query dies with all it has, and another one, with a checkpoint of its own, takes its partitions over."""
        self._produce()
        app = self._living()
        app.begin(doom if doom in DOOMS else "")
        if doom in DOOMS:
            app.answer()
        else:
            time.sleep(self.chance.uniform(0.3, 4))
        app.kill()
        self.queries += 1

    def _living(self) -> App:
        if self.app is None or self.app.process.poll() is not None:
            options, checkpoint = self.options, f"checkpoint-{self.queries}"
            self.app = App(self.servers, self.home, checkpoint, options.group, options.patience)
        return self.app

    def _finish(self, doom: str) -> bool:
        """Until a run of the query ends well: the first was killed, the next is not."""
        attempts = starved = 0
        while attempts < ATTEMPTS and starved < STARVED_ATTEMPTS:
            assert self.app is not None
            answer = self.app.answer()
            failed = None if answer is None else answer["failed"]
            if answer is not None and failed is None:
                return True
            if failed is not None and STARVED in failed:
                starved += 1
                self.starved += 1
            else:
                attempts += 1
            if failed is not None:
                with open(self.home / "failures.log", "a") as log:
                    log.write(f"== {time.strftime('%H:%M:%S')} {doom}: {failed}\n")
            self._living().begin("")
        if attempts == ATTEMPTS:
            self.broken.append(f"the query does not recover from {doom}: see failures.log")
        else:
            self.gave_up = f"{starved} times Spark could not start its Python after {doom}: the machine is too slow"
        return False

    def _produce(self) -> None:
        numbers = range(self.produced, self.produced + ROWS)
        self.produced += ROWS
        if self.options.group:
            with kohort.Producer(bootstrap_servers=self.servers) as producer:
                for number in numbers:
                    producer.send(SOURCE, str(number), key=str(number), partition=number % PARTITIONS)
            return
        for part in range(PARTITIONS):
            lines = "".join(f"{number}\n" for number in numbers if number % PARTITIONS == part)
            made = self.home / f".{numbers.start}-{part}"
            made.write_text(lines)
            made.rename(self.home / SOURCE / f"{numbers.start}-{part}")

    def _check(self, number: int) -> None:
        """All of the output so far, by a new consumer; it must reach the end of the log: nothing is left open."""
        settings = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
        with kohort.Consumer(bootstrap_servers=self.servers, **settings) as consumer:
            places = [TopicPartition(SINK, index) for index in range(2)]
            with kohort.Admin(bootstrap_servers=self.servers) as admin:
                latest = admin.list_offsets(dict.fromkeys(places, "latest"))
            ends = {tp: 0 if at is None else at.offset for tp, at in latest.items()}
            consumer.assign(places)
            found: Counter[str] = Counter()
            # Counted in polls, as a machine that stands still is no proof; what nobody has decided on expires.
            polls_left = round((120 if self.options.group else 30) / POLL_S)
            while any(consumer.position(tp) < ends[tp] for tp in places):
                found.update(record.value.decode() for record in consumer.poll(POLL_S))
                polls_left -= 1
                if polls_left < 0:
                    at = {str(tp): (consumer.position(tp), ends[tp]) for tp in places}
                    self.broken.append(f"run {number}: the output cannot be read to its end, something is open: {at}")
                    break
        self.found = found
        twice = sorted(row for row, count in found.items() if count > 1)
        missing = sorted({str(n) for n in range(self.produced)} - found.keys())
        if twice:
            self.broken.append(f"run {number}: {len(twice)} rows twice, {twice[:5]}")
        if missing:
            self.broken.append(f"run {number}: {len(missing)} rows missing, {missing[:5]}")

    def _judge(self) -> None:
        print()
        for doom, count in sorted(self.done.items()):
            print(f"{count:6d}  {doom}")
        where = "Apache Kafka" if self.options.kafka else "kohort"
        print(
            f"{sum(self.done.values())} runs on {where}: {self.produced} rows in, {sum(self.found.values())} rows out"
        )
        if self.starved:
            print(f"{self.starved} starts of the query did not count: {STARVED}")
        for what in self.broken:
            print(f"BROKEN: {what}")
        print(self._verdict(), flush=True)

    def _verdict(self) -> str:
        if self.broken:
            return f"{len(self.broken)} promises broken"
        return f"NOTHING SHOWN of the last run: {self.gave_up}" if self.gave_up else "every row once"

    def close(self) -> None:
        if self.app is not None:
            self.app.close()
        self.broker.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=120, help="at most")
    parser.add_argument(
        "--patience", type=float, default=180, metavar="SECONDS", help="for a start or run of the query"
    )
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--kafka", action="store_true", help="on a real Apache Kafka")
    parser.add_argument(
        "--group", action="store_true", help="the query reads as a member of a group, sourceOffsets=in-transaction"
    )
    parser.add_argument("--keep", metavar="DIR", help="keep checkpoint and logs there")
    options = parser.parse_args()
    logging.getLogger("kohort").setLevel(logging.CRITICAL)
    home = Path(options.keep or tempfile.mkdtemp(prefix="kohort-exactly-once-"))
    home.mkdir(parents=True, exist_ok=True)
    soak, good = Soak(options, home), False
    try:
        good = soak.run()
    finally:
        soak.close()
    if good and not options.keep:
        shutil.rmtree(home, ignore_errors=True)
    elif not good:
        print(f"checkpoint and logs are in {home}")
    return 0 if good else 1 if soak.broken else 2


if __name__ == "__main__":
    sys.exit(main())
