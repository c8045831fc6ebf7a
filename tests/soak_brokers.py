"""The brokers of a soak with a cluster: three processes over one store, killed, paused and restarted."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from soak_processes import BrokerProcess

NODES = (1, 2, 3)
SESSION_MS = 3_000
CONFIG = {
    "broker.session.timeout.ms": SESSION_MS,
    "broker.heartbeat.interval.ms": 500,
    "kohort.cluster.balance.delay.ms": 1_000,
    "group.initial.rebalance.delay.ms": 500,
    "offsets.topic.num.partitions": 12,
}
PAUSES_S = (1.0, 2.0, 5.0, 9.0)
AWAY_S = (0.0, 0.5, 2.0, 6.0)
"""Some shorter than the time after which a broker is taken for dead, some longer."""


class Brokers:
    """All of them, and what happens to them."""

    def __init__(self, home: Path, store: str, chance: random.Random) -> None:
        self._chance = chance
        self.processes = {node_id: _process(home, store, node_id) for node_id in NODES}
        self.bootstrap_servers = ",".join(process.bootstrap_servers for process in self.processes.values())
        self._back: dict[int, float] = {}  # when a broker is started again, or goes on
        self._paused: set[int] = set()
        self._starter = ThreadPoolExecutor(len(NODES))  # a slow start of one must not keep another paused
        self._starting: dict[int, Future[None]] = {}
        self.happened: Counter[str] = Counter()

    def start(self) -> None:
        for process in self.processes.values():
            process.start()

    def trouble(self) -> str:
        """One more thing goes wrong; what it is."""
        free = [node_id for node_id in NODES if node_id not in self._back and node_id not in self._starting]
        if not free:
            return ""
        node_id = self._chance.choice(free)
        what = self._chance.choice(("kill -9", "pause", "clean restart"))
        self.happened[what] += 1
        seconds = self._chance.choice(PAUSES_S if what == "pause" else AWAY_S)
        process = self.processes[node_id]
        if what == "kill -9":
            process.kill()
        elif what == "pause":
            process.signal(signal.SIGSTOP)
            self._paused.add(node_id)
        else:
            process.stop()
        self._back[node_id] = time.monotonic() + seconds
        return f"broker {node_id}: {what}, for {seconds:g} s"

    def look_after(self) -> list[str]:
        """Whoever's time has come is back; those that ended by themselves, which none should."""
        now, broken = time.monotonic(), []
        for node_id, start in list(self._starting.items()):
            if start.done():
                del self._starting[node_id]
                broken += [str(error)] if (error := start.exception()) is not None else []
        for node_id, process in self.processes.items():
            if now >= self._back.get(node_id, now + 1):
                self._bring_back(node_id)
            elif node_id not in self._back and node_id not in self._starting and process.pid is None:
                broken.append(f"broker {node_id} ended by itself, see {process.log}")
                process.start()
        return broken

    def _bring_back(self, node_id: int) -> None:
        del self._back[node_id]
        if node_id in self._paused:
            self._paused.discard(node_id)
            self.processes[node_id].signal(signal.SIGCONT)
        else:
            self._starting[node_id] = self._starter.submit(self.processes[node_id].start)

    def all_back(self) -> None:
        for node_id in list(self._back):
            self._bring_back(node_id)
        while self._starting:
            self._starting.popitem()[1].result()

    def stop(self) -> None:
        """Cleanly, one after the other."""
        self.all_back()
        for process in self.processes.values():
            process.stop()

    def kill(self) -> None:
        self._starter.shutdown()
        for process in self.processes.values():
            process.kill()

    @property
    def starts(self) -> int:
        return sum(process.lives for process in self.processes.values())

    @property
    def slowest_start_s(self) -> float:
        return max(process.slowest_start_s for process in self.processes.values())


def _process(home: Path, store: str, node_id: int) -> BrokerProcess:
    where = ["--cluster", store, "--node-id", str(node_id)]
    return BrokerProcess(home, CONFIG, where, f"broker-{node_id}")
