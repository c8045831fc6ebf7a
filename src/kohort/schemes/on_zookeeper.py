"""What the two schemes on ZooKeeper have in common: an ensemble, processes with a session, a group of consumers.

How a group comes to agree is each scheme's own business.
"""

from __future__ import annotations

from random import Random
from typing import Generic, TypeVar

from kohort.schemes.meter import Meter, Tally
from kohort.schemes.process import Process, Steps
from kohort.schemes.registry import LAGGING, TOPIC_PATH
from kohort.schemes.scheme import SESSION_TIMEOUT_MS
from kohort.schemes.zookeeper import Client, Ensemble
from kohort.sim.scheduler import Scheduler


class Participant:
    """A process with a session: it may leave, crash, or be cut off."""

    def __init__(self, scheduler: Scheduler, ensemble: Ensemble, server: int) -> None:
        self._scheduler = scheduler
        self._zk: Client = ensemble.connect(server, SESSION_TIMEOUT_MS, self._watch_fired, self._session_expired)
        self._processes: list[Process] = []

    def _run(self, steps: Steps) -> None:
        self._processes.append(Process(self._scheduler, steps))

    def _watch_fired(self, path: str) -> None:
        pass

    def _session_expired(self) -> None:
        pass

    def leave(self) -> None:
        self._die()
        Process(self._scheduler, self._close())

    def _close(self) -> Steps:
        yield self._zk.close()

    def crash(self) -> None:
        self._die()
        self._zk.crash()

    def _die(self) -> None:
        for process in self._processes:
            process.stop()

    def cut(self) -> None:
        self._zk.cut()

    def heal(self) -> None:
        self._zk.heal()


Consumer = TypeVar("Consumer", bound=Participant)


class OnZooKeeper(Generic[Consumer]):
    """A scheme but for `lose_broker` and what its consumers do; each is connected to the next server in turn."""

    def __init__(self, random: Random) -> None:
        self.scheduler = Scheduler(0)
        self.random = random
        self.meter = Meter(self.scheduler)
        self.ensemble = Ensemble(self.scheduler, random)
        self.consumers: dict[str, Consumer] = {}
        self.flowing = False
        self._joined = 0

    def _new_consumer(self, name: str, server: int) -> Consumer:
        raise NotImplementedError

    def join(self, name: str) -> None:
        self.consumers[name] = self._new_consumer(name, self._joined)
        self._joined += 1
        self.meter.joined(name)

    def leave(self, name: str) -> None:
        self.consumers.pop(name).leave()
        self.meter.gone(name)

    def crash(self, name: str) -> None:
        self.consumers.pop(name).crash()
        self.meter.gone(name)

    def grow(self, partitions: int) -> None:
        self.ensemble.put(TOPIC_PATH, str(partitions))
        self.meter.topic_has(partitions)

    def fall_behind(self, lag_ms: int) -> None:
        self.ensemble.servers[LAGGING].fall_behind(lag_ms)

    def cut(self, name: str) -> None:
        self.consumers[name].cut()

    def heal(self, name: str) -> None:
        self.consumers[name].heal()

    def records_flow(self, flowing: bool) -> None:
        self.flowing = flowing

    def tally(self) -> Tally:
        tally, counts = self.meter.now(), self.ensemble.counts
        tally.reads, tally.writes, tally.notifications = counts.reads, counts.writes, counts.notifications
        return tally

    def longest_wait_us(self) -> int:
        longest, self.ensemble.counts.longest_wait_us = self.ensemble.counts.longest_wait_us, 0
        return longest
