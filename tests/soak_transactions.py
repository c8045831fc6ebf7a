"""Read, process, write for some minutes on brokers that are processes, killed with kill -9 like their clients; then an
audit: every input is in the output exactly once. `python tests/soak_transactions.py --minutes 3`
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import kohort
from kohort.client import KafkaError, TopicPartition
from serving import Serving

HERE = Path(__file__).parent
SCRIPTS = {"kohort-0": "eos_worker.py", "kohort-1": "eos_worker.py", "confluent-0": "eos_confluent.py"}
PARTITIONS = 4
QUICK = ("--config", "broker.session.timeout.ms=3000", "--config", "broker.heartbeat.interval.ms=500")
SETTLE_S = 180


class Brokers:
    """Three over one directory, each on a port of its own for good."""

    def __init__(self, store: str) -> None:
        self._store = store
        self.running = {node_id: self._serve(node_id, "0") for node_id in (1, 2, 3)}
        self._ports = {node_id: one.address.rpartition(":")[2] for node_id, one in self.running.items()}
        self.servers = ",".join(one.address for one in self.running.values())

    def _serve(self, node_id: int, port: str) -> Serving:
        where = ("--cluster", f"file://{self._store}", "--node-id", str(node_id), "--port", port)
        return Serving(*where, *QUICK)

    def kill_and_start(self, node_id: int, away_s: float) -> None:
        self.running.pop(node_id).kill()
        time.sleep(away_s)
        self.running[node_id] = self._serve(node_id, self._ports[node_id])

    def stop(self) -> None:
        for one in self.running.values():
            one.kill()


class Workers:
    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.starts = 0

    def keep_up(self) -> None:
        for name, script in SCRIPTS.items():
            process = self._running.get(name)
            if process is None or process.poll() is not None:
                command = [sys.executable, str(HERE / script), self._servers, name]
                self._running[name] = subprocess.Popen(command, stderr=subprocess.DEVNULL)
                self.starts += 1

    def kill(self, name: str) -> None:
        self._running[name].send_signal(signal.SIGKILL)
        self._running[name].wait()

    def stop(self) -> None:
        for name in self._running:
            self.kill(name)


def output(servers: str) -> list[int]:
    """What a read_committed consumer finds, up to the end of what is stable."""
    partitions = [TopicPartition("out", number) for number in range(PARTITIONS)]
    settings = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
    with kohort.Consumer(bootstrap_servers=servers, **settings) as consumer:
        ends = consumer.end_offsets(partitions)
        consumer.assign(partitions)
        found: list[int] = []
        while any(consumer.position(tp) < ends[tp] for tp in partitions):
            found += [int(record.value) for record in consumer.poll(1)]
        return found


def run(minutes: float, seed: int) -> int:
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        brokers = Brokers(folder)
        workers = Workers(brokers.servers)
        sent, kills = 0, Counter[str]()
        try:
            with kohort.Admin(bootstrap_servers=brokers.servers) as admin:
                admin.create_topics([kohort.NewTopic("in", PARTITIONS), kohort.NewTopic("out", PARTITIONS)])
            ends_at = time.monotonic() + minutes * 60
            with kohort.Producer(bootstrap_servers=brokers.servers) as producer:
                while time.monotonic() < ends_at:
                    workers.keep_up()
                    for _ in range(200):
                        producer.send("in", str(sent), partition=sent % PARTITIONS)
                        sent += 1
                    time.sleep(chance.uniform(1, 4))
                    if chance.random() < 0.4:
                        kills["broker"] += 1
                        brokers.kill_and_start(chance.choice((1, 2, 3)), chance.uniform(0, 5))
                    else:
                        kills["client"] += 1
                        workers.kill(chance.choice(list(SCRIPTS)))
                producer.flush()
            found = _settled(brokers.servers, workers, sent)
        finally:
            workers.stop()
            brokers.stop()
    counts = Counter(found)
    missing = [number for number in range(sent) if number not in counts]
    twice = [number for number, count in counts.items() if count > 1]
    print(
        f"{sent} records in, {len(found)} out, {len(missing)} missing, {len(twice)} more than once; killed: "
        f"{kills['broker']} brokers, {kills['client']} clients; {workers.starts} starts of clients"
    )
    return 1 if missing or twice else 0


def _settled(servers: str, workers: Workers, sent: int) -> list[int]:
    deadline, found = time.monotonic() + SETTLE_S, []
    while time.monotonic() < deadline:
        workers.keep_up()
        time.sleep(2)
        try:
            found = output(servers)
        except KafkaError as error:
            print(f"not yet: {error}", file=sys.stderr)
            continue
        if len(set(found)) >= sent:
            break
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    sys.exit(run(given.minutes, given.seed))
