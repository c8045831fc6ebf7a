"""The soak: real clients of four kinds, real sockets, real crashes. `python tests/soak.py --minutes 10`; with
`--cluster directory` or `--cluster s3` on three brokers, see soak_cluster.py.

A broker process is killed with -9 every 20 seconds and started again, so are the processes of the consumers, now and
then, while producers and 200 consumers in 40 groups go on. At the end: nothing acknowledged is lost, nothing skipped,
nothing processed twice within a generation, memory flat. The last fifth of the time the broker is left alone, so that a
slow leak would show in one life as well.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import kohort
from kohort.client import TopicPartition
from kohort.client.admin_types import NewTopic
from soak_audit import Audit, Ledgers, audit
from soak_processes import BrokerProcess, Memory, Workers
from soak_producers import PARTITIONS, Produced, produce_confluent, produce_own

KINDS = ("confluent", "confluent", "kafka-python", "aiokafka", "kohort")
GROUPS = 40
TOPICS = 4
WORKERS = 10
BROKER_KILL_S = 20
WORKER_KILL_S = 12
DRAIN_S = 180
EVENTS_TOPIC = "__kohort_group_events"

Place = tuple[str, int]


class Soak:
    def __init__(self, options: argparse.Namespace, home: Path) -> None:
        self.options = options
        self.home = home
        self.chance = random.Random(options.seed)
        self.memory = Memory()
        self.produced = Produced()
        self.broken: list[str] = []
        self.topics = [f"topic-{number}" for number in range(TOPICS)]
        self.groups = {f"group-{number}": self.topics[number % TOPICS] for number in range(options.groups)}
        self.broker = self._make_broker()
        self._broker_lock = threading.Lock()
        self._over = threading.Event()
        self.began = time.monotonic()

    def _make_broker(self) -> Any:
        config = {"group.initial.rebalance.delay.ms": 500, "kohort.group.events.topic.enable": "true"}
        return BrokerProcess(self.home, config)

    def run(self) -> bool:
        options = self.options
        self.broker.start()
        with kohort.Admin(bootstrap_servers=self.broker.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in self.topics])
        consumers = [f"{kind}:{group}:{topic}" for group, topic in self.groups.items() for kind in KINDS]
        workers = Workers(self.broker.bootstrap_servers, self.home, consumers, options.workers, self._foreign())
        stop_producing = threading.Event()
        producers = self._start_producers(stop_producing)
        watcher = threading.Thread(target=self._watch_memory, daemon=True)
        watcher.start()
        print(f"{len(consumers)} consumers in {len(self.groups)} groups, {options.workers} processes", flush=True)
        try:
            calm_s = min(options.minutes / 5, 2) * 60
            self._storm(workers, options.minutes * 60 - calm_s)
            self.say("no more broker kills")
            self._calm(workers, calm_s)
            stop_producing.set()
            for thread in producers:
                thread.join(DRAIN_S)
            self.say("producers are done, consumers catch up")
            ends = self._drain(workers)
        finally:
            stop_producing.set()
            workers.stop()
            self._over.set()
        return self._judge(workers, ends)

    def _foreign(self) -> list[tuple[list[str], list[str]]]:
        """Programs of other languages, and the consumers that each is to have."""
        return []

    def _start_producers(self, stop: threading.Event) -> list[threading.Thread]:
        threads = []
        half = len(self.topics) // 2
        for target, topics in ((produce_confluent, self.topics[:half]), (produce_own, self.topics[half:])):
            arguments = (self.broker.bootstrap_servers, topics, self.options.rate / 2, stop, self.produced)
            threads.append(threading.Thread(target=target, args=arguments, daemon=True))
            threads[-1].start()
        return threads

    def _watch_memory(self) -> None:
        while not self._over.wait(1):
            with self._broker_lock:
                if self.broker.pid is not None:
                    self.memory.sample(self.broker.pid, self.broker.lives)

    # What happens.

    def _storm(self, workers: Workers, seconds: float) -> None:
        end = time.monotonic() + seconds
        next_broker, next_worker = time.monotonic() + BROKER_KILL_S, time.monotonic() + WORKER_KILL_S
        while (now := time.monotonic()) < end:
            if now >= next_broker:
                next_broker = now + BROKER_KILL_S
                self._kill_broker()
            if now >= next_worker:
                next_worker = now + self.chance.uniform(0.5, 1.5) * WORKER_KILL_S
                workers.kill_one(self.chance.randrange(self.options.workers))
            self._look_after(workers)
            time.sleep(0.2)

    def _calm(self, workers: Workers, seconds: float) -> None:
        end = time.monotonic() + seconds
        next_line = time.monotonic() + BROKER_KILL_S
        while time.monotonic() < end:
            self._look_after(workers)
            if time.monotonic() > next_line:
                next_line += BROKER_KILL_S
                self.say("")
            time.sleep(0.5)

    def _look_after(self, workers: Workers) -> None:
        self.broken += workers.revive()
        if self.broker.pid is None:
            self.broken.append(f"the broker ended by itself, see {self.broker.log}")
            with self._broker_lock:
                self.broker.start()

    def _kill_broker(self) -> None:
        if self.memory.samples:
            self.say("kill -9")
        with self._broker_lock:
            self.broker.kill()
            self.broker.start()

    def say(self, what: str) -> None:
        _, life, anonymous, everything = self.memory.samples[-1] if self.memory.samples else (0, 0, 0, 0)
        print(
            f"{time.monotonic() - self.began:5.0f} s  life {life:2d}  {len(self.produced):7d} records stored"
            f"  broker {anonymous:5.1f} MB anonymous, {everything:5.1f} MB resident  {what}",
            flush=True,
        )

    def _drain(self, workers: Workers) -> dict[Place, int]:
        """Until every group has committed everything; the ends of all partitions."""
        limit = time.monotonic() + DRAIN_S
        places = [TopicPartition(topic, index) for topic in self.topics for index in range(PARTITIONS)]
        behind: list[str] = []
        with kohort.Admin(bootstrap_servers=self.broker.bootstrap_servers) as admin:
            while time.monotonic() < limit:
                ends = {
                    tuple(place): found.offset
                    for place, found in admin.list_offsets(dict.fromkeys(places, "latest")).items()
                }
                behind = [group for group, topic in self.groups.items() if self._lag(admin, group, topic, ends)]
                if not behind:
                    return ends
                self._look_after(workers)
                time.sleep(1)
        self.broken.append(f"{len(behind)} groups did not catch up in {DRAIN_S} s: {', '.join(behind[:5])}")
        return ends

    def _lag(self, admin: kohort.Admin, group: str, topic: str, ends: dict[Place, int]) -> int:
        committed = admin.group_offsets(group, [TopicPartition(topic, index) for index in range(PARTITIONS)])
        return sum(ends[tuple(place)] - (found.offset if found else 0) for place, found in committed.items())

    # What came of it.

    def _judge(self, workers: Workers, ends: dict[Place, int]) -> bool:
        stored = self._read_everything(ends)
        lost = duplicates = 0
        for place, acknowledged in self.produced.acknowledged.items():
            lost += sum(stored[place].get(offset) != value for offset, value in acknowledged.items())
        for values in stored.values():
            duplicates += len(values) - len(set(values.values()))
        rebalances = self._count_rebalances()
        with self._broker_lock:
            self.broker.stop()
        ledgers = workers.ledgers()
        found = audit(ledgers, self.groups, ends)
        broken = self.broken + self.produced.failed + found.broken
        if lost:
            broken.append(f"{lost} acknowledged records are lost")
        if duplicates:
            broken.append(f"{duplicates} records are stored twice, by idempotent producers")
        broken += self._judge_memory()
        self._print_figures(self._figures(workers, ledgers, found, rebalances, sum(map(len, stored.values()))), found)
        for what in broken[:20]:
            print(f"BROKEN: {what}")
        print(f"{len(broken)} promises broken" if broken else "every promise kept", flush=True)
        return not broken

    def _read_everything(self, ends: dict[Place, int]) -> dict[Place, dict[int, bytes]]:
        stored: dict[Place, dict[int, bytes]] = {place: {} for place in ends}
        wanted = sum(ends.values())
        servers = self.broker.bootstrap_servers
        with kohort.Consumer(
            bootstrap_servers=servers, auto_offset_reset="earliest", max_poll_records=10_000
        ) as reader:
            reader.assign([TopicPartition(*place) for place in ends])
            limit = time.monotonic() + DRAIN_S
            while sum(map(len, stored.values())) < wanted and time.monotonic() < limit:
                for record in reader.poll(1):
                    stored[record.topic, record.partition][record.offset] = record.value
        return stored

    def _count_rebalances(self) -> Counter[str]:
        """From the broker's own events, which outlive it."""
        kinds: Counter[str] = Counter()
        servers = self.broker.bootstrap_servers
        with kohort.Consumer(
            bootstrap_servers=servers, auto_offset_reset="earliest", max_poll_records=10_000
        ) as reader:
            place = TopicPartition(EVENTS_TOPIC, 0)
            reader.assign([place])
            end = reader.end_offsets([place])[place]
            limit = time.monotonic() + DRAIN_S
            while reader.position(place) < end and time.monotonic() < limit:
                kinds.update(json.loads(record.value)["type"] for record in reader.poll(1))
        return kinds

    def _judge_memory(self) -> list[str]:
        ends = self.memory.ends()
        broken = []
        third = len(ends) // 3
        if third >= 2:
            early, late = sorted(ends[1 : 1 + third])[third // 2], sorted(ends[-third:])[third // 2]
            if late > early * 1.25 + 4:
                broken.append(f"the broker grows from life to life: {early:.1f} MB, later {late:.1f} MB")
        slope = self.memory.slope(self.broker.lives)
        if slope > 2:
            broken.append(f"the broker grows by {slope:.2f} MB a minute in its last life")
        return broken

    def _figures(
        self, workers: Workers, ledgers: Ledgers, found: Audit, events: Counter[str], stored: int
    ) -> list[tuple[str, Any]]:
        ends = self.memory.ends()
        joined, evicted, left = (events[f"Member{what}"] for what in ("Joined", "Evicted", "Left"))
        return [
            *self._figures_of_records(found, stored),
            ("rebalances completed", events["RebalanceCompleted"]),
            ("members joined / evicted / left", f"{joined} / {evicted} / {left}"),
            ("broker kills / slowest start", f"{self.broker.lives - 1} / {self.broker.slowest_start_s:.2f} s"),
            ("client process kills", workers.kills),
            ("clients that gave up and were started again", sum(found.gave_up.values())),
            ("broker memory at the end of its lives", " ".join(f"{end:.0f}" for end in ends) + " MB"),
            ("broker memory, most", f"{max((s[2] for s in self.memory.samples), default=0):.1f} MB anonymous, "
             f"{max((s[3] for s in self.memory.samples), default=0):.1f} MB resident"),
            ("growth in the last life", f"{self.memory.slope(self.broker.lives):+.2f} MB a minute"),
        ]  # fmt: skip

    def _figures_of_records(self, found: Audit, stored: int) -> list[tuple[str, Any]]:
        return [
            ("records stored / acknowledged", f"{stored} / {len(self.produced)}"),
            ("records processed", f"{found.processed} ({found.again} of them again, after a crash or rebalance)"),
            ("commits acknowledged", found.commits),
        ]

    def _print_figures(self, rows: list[tuple[str, Any]], found: Audit) -> None:
        print()
        for name, value in rows:
            print(f"{name:46s} {value}")
        for what, count in sorted(found.gave_up.items(), key=lambda item: -item[1])[:5]:
            print(f"    {count} x {what}")


def _make(options: argparse.Namespace, home: Path, stack: contextlib.ExitStack) -> Soak:
    if options.cluster is None:
        return Soak(options, home)
    from soak_cluster import ClusterSoak, store

    return ClusterSoak(options, home, stack.enter_context(store(options.cluster, home)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--groups", type=int, default=GROUPS, help="groups of five consumers each")
    parser.add_argument("--workers", type=int, default=WORKERS, help="processes of the consumers")
    parser.add_argument("--rate", type=float, default=100, help="records produced a second")
    parser.add_argument("--seed", type=int, default=None, help="of the choice of victims")
    parser.add_argument("--cluster", choices=["directory", "s3"], help="three brokers over such a store")
    parser.add_argument("--keep", metavar="DIR", help="keep the data and ledgers there")
    options = parser.parse_args()
    logging.getLogger("kohort").setLevel(logging.CRITICAL)
    home = Path(options.keep or tempfile.mkdtemp(prefix="kohort-soak-"))
    home.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        soak = _make(options, home, stack)
        stack.callback(soak.broker.kill)
        good = soak.run()
    if good and not options.keep:
        shutil.rmtree(home, ignore_errors=True)
    elif not good:
        print(f"data and ledgers are in {home}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
