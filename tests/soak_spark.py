"""The soak with Spark: two applications and a plain consumer in one group. `python tests/soak_spark.py --minutes 6`.

Drivers, JVMs, source processes, the plain consumer and the broker are killed with -9 or stand still, an operator resets
offsets, topics grow and are created again. At the end every (topic, partition, offset) has been read, and twice only
for a reason that docs/spark.md names. `--kafka` runs it on a real Apache Kafka.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

import confluent_kafka as ck

import kohort
from apache_kafka import ApacheKafka
from kohort.client import TopicPartition
from kohort.client.admin_types import NewTopic
from kohort_process import KohortProcess
from soak_spark_audit import Place, Reading, Reset, Story, Trouble, audit
from spark.streams import RUNNER, descendants

GROUP = "soak"
TOPICS = ("orders", "refunds", "visits")
PARTITIONS, MOST_PARTITIONS = 3, 6
PAUSE_S = 9.0
"""Longer than the members' sessions last."""
START_LIMIT_S, DRAIN_LIMIT_S, MEMBERS_LIMIT_S = 240, 300, 90
BUSY_MACHINE = "connect back"
"""Of Spark's error where a Python process took longer to start than Spark waits for it."""


def patiently(condition: Callable[[], Any], what: str, seconds: float = START_LIMIT_S) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds} s: {what}")
        time.sleep(0.2)


class Member:
    """A process that is started again whenever it has ended."""

    def __init__(self, who: str, kind: str, servers: str, home: Path) -> None:
        self.who, self.kind, self._servers, self._home = who, kind, servers, home
        self.life = 0
        self.expected = False
        """Whether something was done to this life that may end it."""
        self._process: subprocess.Popen[bytes] | None = None
        self.log = home / f"{who}.log"

    def start(self) -> None:
        self.life += 1
        self.expected = False
        command = [sys.executable, str(Path(__file__).with_name("soak_spark_member.py")), "--kind", self.kind]
        command += ["--servers", self._servers, "--group", GROUP, "--topics", ",".join(TOPICS), "--who", self.who]
        command += ["--checkpoint", str(self._home / f"{self.who}.checkpoint"), "--life", str(self.life)]
        command += ["--ledger", str(self._home / f"{self.who}.ledger")]
        with open(self.log, "ab") as log:
            log.write(f"--- life {self.life}\n".encode())
            log.flush()
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def pids(self, which: str) -> set[int]:
        """Of the driver, or of what it has started: "java", or the process of the source."""
        if self._process is None:
            return set()
        return {self._process.pid} if which == "driver" else descendants(which, {self._process.pid})

    def ended(self) -> int | None:
        return None if self._process is None else self._process.poll()

    def stop(self) -> int | None:
        if self._process is None:
            return None
        self.expected = True
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(90)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._process = None
        return code

    def last_words(self) -> str:
        said = [line for line in self.log.read_text(errors="replace").splitlines() if line.startswith("FAILED")]
        return said[-1] if said else "without a word"

    def reading(self) -> list[Reading]:
        path, found = self._home / f"{self.who}.ledger", []
        for line in path.read_text().splitlines() if path.exists() else []:
            who, life, at, batch, runs = json.loads(line)
            found.append(
                Reading(who, life, at, batch, tuple(((t, i, p), first, last) for t, i, p, first, last in runs))
            )
        return found


class Producer:
    """Writes to every partition in turn; a record says which of the topics of its name it is for."""

    def __init__(self, servers: str, rate: float) -> None:
        self._servers, self._pause = servers, 1 / rate
        self.incarnation = dict.fromkeys(TOPICS, 0)
        self.partitions = dict.fromkeys(TOPICS, PARTITIONS)
        self.ends: dict[Place, int] = defaultdict(int)
        self.failed: list[str] = []
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._producer = self._made()
        self._thread.start()

    def _made(self) -> Any:
        settings = {"bootstrap.servers": self._servers, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        return ck.Producer({**settings, "reconnect.backoff.max.ms": 500, "message.timeout.ms": 300_000})

    def _run(self) -> None:
        number = 0
        while not self._over.wait(self._pause):
            with self._lock:
                for topic in TOPICS:
                    number += 1
                    value = f"{self.incarnation[topic]}:{number}"
                    partition = number // len(TOPICS) % self.partitions[topic]
                    self._producer.produce(topic, value, partition=partition, on_delivery=self._delivered)
                self._producer.poll(0)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failed.append(f"a record was not stored: {error}")
            return
        place = (message.topic(), int(message.value().split(b":")[0]), message.partition())
        self.ends[place] = max(self.ends[place], message.offset() + 1)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Everything is stored, and nothing more is written; a new producer then, which knows nothing of old topics."""
        with self._lock:
            self._producer.flush()
            yield
            self._producer = self._made()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()
        self._producer.flush()


class Soak:
    def __init__(self, options: argparse.Namespace, home: Path) -> None:
        self.options, self.home = options, home
        self.chance = random.Random(options.seed)
        config = {"group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 100}
        self.broker = ApacheKafka(config) if options.kafka else KohortProcess(config, log_level="warning")
        servers = self.broker.bootstrap_servers
        self.apps = [Member(f"app-{number}", "spark", servers, home) for number in (1, 2)]
        self.plain = Member("plain", "plain", servers, home)
        self.producer = Producer(servers, options.rate / len(TOPICS))
        self.story = Story(careless=frozenset({"plain"}))
        self.done: Counter[str] = Counter()
        self.broken: list[str] = []
        self.restarts: Counter[str] = Counter()
        self.began = time.monotonic()

    @property
    def members(self) -> list[Member]:
        return [*self.apps, self.plain]

    def say(self, what: str) -> None:
        stored = sum(self.producer.ends.values())
        print(f"{time.monotonic() - self.began:5.0f} s  {stored:8d} records stored  {what}", flush=True)

    def admin(self) -> kohort.Admin:
        return kohort.Admin(bootstrap_servers=self.broker.bootstrap_servers, default_api_timeout_ms=60_000)

    # -- the run -------------------------------------------------------------------------------------------------------

    def run(self) -> bool:
        self.broker.start()
        with self.admin() as admin:
            admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in TOPICS])
        for app in self.apps:
            app.start()
        patiently(lambda: self._committed() is not None, "every partition has been taken up, at its end: latest")
        self.plain.start()
        self.producer.start()
        self.say("the group has begun, producing")
        self._storm(self.options.minutes * 60)
        self.producer.stop()
        self.say("no more records, no more trouble")
        self._drain()
        for member in self.members:
            member.stop()
        self.say("all have stopped")
        return self._judge()

    def _places(self) -> list[TopicPartition]:
        counts = self.producer.partitions
        return [TopicPartition(topic, number) for topic in TOPICS for number in range(counts[topic])]

    def _committed(self) -> dict[TopicPartition, int] | None:
        """None unless every partition has one."""
        self._revive()
        try:
            with self.admin() as admin:
                found = admin.group_offsets(GROUP, self._places())
        except kohort.client.KafkaError:
            return None
        offsets = {place: at.offset for place, at in found.items() if at is not None}
        return offsets if len(offsets) == len(self._places()) else None

    def _revive(self) -> None:
        for member in self.members:
            code = member.ended()
            if code is None:
                continue
            if not member.expected:
                why = member.last_words()
                self.story.troubles.append(Trouble("an end", time.monotonic(), member.who, member.life))
                if BUSY_MACHINE in why:
                    self.restarts["Spark did not wait for a Python process on a busy machine"] += 1
                else:
                    self.broken.append(f"{member.who}.{member.life} ended by itself ({code}): {why}")
            member.start()

    def _storm(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        deeds = [
            self.kill_driver, self.kill_jvm, self.kill_source, self.kill_source, self.kill_broker, self.kill_broker,
            self.kill_plain, self.pause_source, self.pause_broker, self.stop_app, self.reset,
            self.grow, self.create_again,
        ]  # fmt: skip
        bag: list[Callable[[], str | None]] = []
        while time.monotonic() < end:
            self._let_them_read(self.chance.uniform(2, 8))
            if not bag:
                bag = list(deeds)
                self.chance.shuffle(bag)
            what = bag.pop()()
            if what is not None:
                self.done[what] += 1
                self.say(what)

    def _let_them_read(self, seconds: float) -> None:
        """Until all have been members for a while, mostly: some trouble comes while others still begin."""
        patience = time.monotonic() + (MEMBERS_LIMIT_S if self.chance.random() < 0.7 else 0)
        while time.monotonic() < patience and not self._all_are_members():
            self._revive()
            time.sleep(0.5)
        calm = time.monotonic() + seconds
        while time.monotonic() < calm:
            self._revive()
            time.sleep(0.2)

    def _all_are_members(self) -> bool:
        try:
            with self.admin() as admin:
                group = admin.describe_groups([GROUP])[GROUP]
        except kohort.client.KafkaError:
            return False
        return group.state == "Stable" and len(group.members) == len(self.members)

    def _drain(self) -> None:
        def all_read() -> bool:
            found = self._committed()
            return found is not None and all(
                found[tp] == self.producer.ends[tp.topic, self.producer.incarnation[tp.topic], tp.partition]
                for tp in self._places()
            )

        try:
            patiently(all_read, "everything has been read and committed", DRAIN_LIMIT_S)
        except TimeoutError as error:
            self.broken.append(str(error))

    # -- what is done --------------------------------------------------------------------------------------------------

    def _hurt(self, member: Member, which: str, number: int, kind: str) -> str | None:
        pids = member.pids(which)
        if not pids:
            return None
        member.expected = True
        self.story.troubles.append(Trouble(kind, time.monotonic(), member.who, member.life))
        for pid in pids:
            os.kill(pid, number)
        return kind

    def kill_driver(self) -> str | None:
        return self._hurt(self.chance.choice(self.apps), "driver", signal.SIGKILL, "a driver's kill -9")

    def kill_jvm(self) -> str | None:
        return self._hurt(
            self.chance.choice(self.apps), "org.apache.spark.deploy.SparkSubmit", signal.SIGKILL, "a JVM's kill -9"
        )

    def kill_source(self) -> str | None:
        return self._hurt(self.chance.choice(self.apps), RUNNER, signal.SIGKILL, "a source process's kill -9")

    def kill_plain(self) -> str | None:
        return self._hurt(self.plain, "driver", signal.SIGKILL, "the plain consumer's kill -9")

    def pause_source(self) -> str | None:
        app = self.chance.choice(self.apps)
        kind = self._hurt(app, RUNNER, signal.SIGSTOP, "a pause longer than the session")
        if kind is not None:
            pids = app.pids(RUNNER)
            time.sleep(PAUSE_S)
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
            app.expected = False
        return kind

    def kill_broker(self) -> str:
        self.story.troubles.append(Trouble("a broker's kill -9", time.monotonic()))
        self.broker.kill()
        time.sleep(self.chance.uniform(0, 4))
        self.broker.start()
        return "a broker's kill -9"

    def pause_broker(self) -> str:
        self.story.troubles.append(Trouble("a broker's pause", time.monotonic()))
        os.kill(self.broker.pid, signal.SIGSTOP)
        time.sleep(PAUSE_S)
        os.kill(self.broker.pid, signal.SIGCONT)
        return "a broker's pause"

    def stop_app(self) -> str:
        """Clean: nothing is to be read again for it."""
        self.chance.choice(self.apps).stop()
        self._start_stopped()
        return "a clean stop and a start"

    def _start_stopped(self) -> None:
        for member in self.members:
            if not member.pids("driver"):
                member.start()

    def reset(self) -> str | None:
        """An operator's, while no member is active, of one partition of each topic."""
        for member in self.members:
            member.stop()
        try:
            patiently(self._is_empty, "the group is empty", 60)
            now, offsets = time.monotonic(), self._committed_now()
            chosen = {tp: max(at - self.chance.randrange(1, 200), 0) for tp, at in offsets.items() if tp.partition == 0}
            with self.admin() as admin:
                admin.alter_group_offsets(GROUP, chosen)
            self.story.resets += [
                Reset((tp.topic, self.producer.incarnation[tp.topic], tp.partition), now, to)
                for tp, to in chosen.items()
            ]
        finally:
            self._start_stopped()
        return "an operator's reset"

    def _is_empty(self) -> bool:
        with self.admin() as admin:
            return admin.describe_groups([GROUP])[GROUP].state in ("Empty", "Dead")

    def _committed_now(self) -> dict[TopicPartition, int]:
        with self.admin() as admin:
            found = admin.group_offsets(GROUP, self._places())
        return {tp: at.offset for tp, at in found.items() if at is not None}

    def grow(self) -> str | None:
        topic = self.chance.choice(TOPICS)
        if self.producer.partitions[topic] >= MOST_PARTITIONS:
            return None
        with self.producer.paused(), self.admin() as admin:
            admin.create_partitions({topic: self.producer.partitions[topic] + 1})
            self.producer.partitions[topic] += 1
        return "a topic that grows"

    def create_again(self) -> str:
        """Without the plain consumer, whose commits carry no topic id."""
        topic = self.chance.choice(TOPICS)
        self.plain.stop()
        with self.producer.paused(), self.admin() as admin:
            admin.delete_topics([topic])
            patiently(lambda: topic not in admin.list_topics(), f"{topic} is gone", 60)
            admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
            self.producer.incarnation[topic] += 1
            self.producer.partitions[topic] = PARTITIONS
        self._start_stopped()
        return "a topic created again"

    # -- what came of it -----------------------------------------------------------------------------------------------

    def _judge(self) -> bool:
        story = self.story
        story.readings = [reading for member in self.members for reading in member.reading()]
        story.ends = {
            place: end for place, end in self.producer.ends.items() if place[1] == self.producer.incarnation[place[0]]
        }
        verdict = audit(story)
        broken = self.broken + self.producer.failed + verdict.broken
        by_who = Counter(reading.who for reading in story.readings)
        print()
        for what, count in sorted(self.done.items()):
            print(f"{count:8d}  {what}")
        for what, count in self.restarts.items():
            print(f"{count:8d}  {what}")
        print(f"{verdict.records:8d}  records read, of {verdict.places} partitions; {dict(by_who)} batches")
        for why, count in sorted(verdict.again.items()):
            print(f"{count:8d}  of them again: {why}")
        lives = ", ".join(f"{member.who} {member.life}" for member in self.members)
        print(f"lives: {lives}")
        for what in broken[:20]:
            print(f"BROKEN: {what}")
        print(f"{len(broken)} promises broken" if broken else "every promise kept", flush=True)
        return not broken


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=6)
    parser.add_argument("--rate", type=float, default=300, help="records produced a second")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--kafka", action="store_true", help="on a real Apache Kafka")
    parser.add_argument("--keep", metavar="DIR", help="keep ledgers, checkpoints and logs there")
    options = parser.parse_args()
    logging.getLogger("kohort").setLevel(logging.CRITICAL)
    home = Path(options.keep or tempfile.mkdtemp(prefix="kohort-soak-spark-"))
    home.mkdir(parents=True, exist_ok=True)
    soak, good = Soak(options, home), False
    try:
        good = soak.run()
    finally:
        for member in soak.members:
            member.stop()
        soak.broker.close()
    if good and not options.keep:
        shutil.rmtree(home, ignore_errors=True)
    elif not good:
        print(f"ledgers, checkpoints and logs are in {home}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
