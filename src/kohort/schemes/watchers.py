"""Scheme one: every consumer watches ZooKeeper and works out for itself which partitions are its own, as in Kafka 0.8.

Nobody tells anybody anything. Each consumer releases what it holds, looks at the group, takes its share by creating the
znodes of the owners, and where one is still held by another it lets go of all, waits and tries again; after
`rebalance.max.retries` it gives up and holds nothing until the next change.
"""

from __future__ import annotations

from random import Random

from kohort.schemes.meter import Meter, Tally, View
from kohort.schemes.process import Process, Steps
from kohort.schemes.registry import (
    BROKER_IDS,
    BROKERS,
    IDS,
    LAGGING,
    OFFSETS,
    OWNERS,
    TOPIC_PATH,
    range_shares,
)
from kohort.schemes.scheme import COMMIT_EVERY_MS, SESSION_TIMEOUT_MS, TOPIC
from kohort.schemes.znodes import NodeExists, NoNode
from kohort.schemes.zookeeper import Client, Ensemble
from kohort.sim.scheduler import Scheduler

MAX_RETRIES = 4
BACKOFF_MS = 2_000


class WatchingConsumer:
    def __init__(self, world: Watchers, name: str, server: int) -> None:
        self.name = name
        self._world = world
        self._zk: Client = world.ensemble.connect(server, SESSION_TIMEOUT_MS, self._watch_fired, self._session_expired)
        self._owned: list[int] = []  # as this consumer believes
        self._triggered = False
        self._rebalancing = False
        self._processes: list[Process] = []
        self._run(self._begin())
        self._run(self._auto_commit())

    def _run(self, steps: Steps) -> None:
        self._processes.append(Process(self._world.scheduler, steps))

    # Life.

    def _begin(self) -> Steps:
        self._rebalancing = True
        yield from self._register()
        yield from self._rebalance_until_calm()

    def _register(self) -> Steps:
        yield self._zk.create_ephemeral(f"{IDS}/{self.name}", TOPIC)
        yield self._zk.children(IDS, watch=True)
        yield self._zk.children(BROKER_IDS, watch=True)
        yield self._zk.get(TOPIC_PATH, watch=True)

    def _watch_fired(self, path: str) -> None:
        """A watch is good for one time: set it again, then see what has changed."""
        self._run(self._heed(path))

    def _heed(self, path: str) -> Steps:
        yield self._zk.get(path, watch=True) if path == TOPIC_PATH else self._zk.children(path, watch=True)
        self._triggered = True
        if not self._rebalancing:
            self._rebalancing = True
            yield from self._rebalance_until_calm()

    def _session_expired(self) -> None:
        """Its znodes are gone; until now it has not known, and has read on."""
        self._owned = []
        self._world.meter.stops(self.name)
        self._run(self._come_back())

    def _come_back(self) -> Steps:
        yield from self._register()
        self._triggered = True
        if not self._rebalancing:
            self._rebalancing = True
            yield from self._rebalance_until_calm()

    def leave(self) -> None:
        self._die()
        Process(self._world.scheduler, self._close())

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

    # Rebalancing.

    def _rebalance_until_calm(self) -> Steps:
        self._triggered = True
        while self._triggered:
            self._triggered = False
            yield from self._rebalance()
        self._rebalancing = False

    def _rebalance(self) -> Steps:
        for _ in range(MAX_RETRIES):
            try:
                if (yield from self._attempt()):
                    return
            except NoNode:
                pass  # the group changed while it was looked at
            self._world.meter.tally.failed_attempts += 1
            yield BACKOFF_MS
        self._world.meter.tally.gave_up += 1

    def _attempt(self) -> Steps:
        self._world.meter.stops(self.name)
        yield from self._release()
        members, partitions = yield from self._look()
        share = range_shares(members, partitions).get(self.name, ())
        for partition in share:
            yield self._zk.exists(f"{OFFSETS}/{partition}")
        if not (yield from self._take(share)):
            return False
        self._world.meter.reads(self.name, self._owned, View(frozenset(members), partitions))
        return True

    def _release(self) -> Steps:
        while self._owned:
            try:
                yield self._zk.delete(f"{OWNERS}/{self._owned[-1]}")
            except NoNode:
                pass
            if self._owned:  # unless the session ended meanwhile
                self._owned.pop()

    def _look(self) -> Steps:
        """All that the decision needs, read anew by each consumer at each attempt."""
        for broker in (yield self._zk.children(BROKER_IDS)):
            yield self._zk.get(f"{BROKER_IDS}/{broker}")
        members = yield self._zk.children(IDS)
        for member in members:
            yield self._zk.get(f"{IDS}/{member}")
        return members, int((yield self._zk.get(TOPIC_PATH)))

    def _take(self, share: tuple[int, ...]) -> Steps:
        """All of it or nothing."""
        refused = False
        for partition in share:
            try:
                yield self._zk.create_ephemeral(f"{OWNERS}/{partition}", self.name)
                self._owned.append(partition)
            except NodeExists:
                refused = True
        if refused:
            yield from self._release()
        return not refused

    # Offsets, in ZooKeeper; nobody asks whether the writer is the owner.

    def _auto_commit(self) -> Steps:
        while True:
            yield COMMIT_EVERY_MS
            if not self._world.flowing:
                continue
            for partition in sorted(self._world.meter.read_by(self.name)):
                yield self._zk.commit_offset(f"{OFFSETS}/{partition}", self.name)
                owner = self._world.ensemble.truth.nodes.get(f"{OWNERS}/{partition}")
                if owner is not None and owner.data != self.name:
                    self._world.meter.tally.stale_commits += 1


class Watchers:
    """The scheme: an ensemble of three and the consumers, each connected to the next server in turn."""

    def __init__(self, seed: int, partitions: int) -> None:
        self.scheduler = Scheduler(0)
        self.meter = Meter(self.scheduler)
        self.ensemble = Ensemble(self.scheduler, Random(f"{seed} watchers"))
        self.flowing = False
        self._consumers: dict[str, WatchingConsumer] = {}
        self._joined = 0
        for broker in range(BROKERS):
            self.ensemble.put(f"{BROKER_IDS}/{broker}", f"broker{broker}:9092")
        self.grow(partitions)

    def join(self, name: str) -> None:
        self._consumers[name] = WatchingConsumer(self, name, self._joined)
        self._joined += 1
        self.meter.joined(name)

    def leave(self, name: str) -> None:
        self._consumers.pop(name).leave()
        self.meter.gone(name)

    def crash(self, name: str) -> None:
        self._consumers.pop(name).crash()
        self.meter.gone(name)

    def grow(self, partitions: int) -> None:
        self.ensemble.put(TOPIC_PATH, str(partitions))
        self.meter.topic_has(partitions)

    def lose_broker(self) -> None:
        """Its session ends like any other; every consumer watches the brokers as well."""
        self.scheduler.after(SESSION_TIMEOUT_MS, self.ensemble.remove, f"{BROKER_IDS}/0")

    def fall_behind(self, lag_ms: int) -> None:
        self.ensemble.servers[LAGGING].fall_behind(lag_ms)

    def cut(self, name: str) -> None:
        self._consumers[name].cut()

    def heal(self, name: str) -> None:
        self._consumers[name].heal()

    def records_flow(self, flowing: bool) -> None:
        self.flowing = flowing

    def tally(self) -> Tally:
        tally, counts = self.meter.now(), self.ensemble.counts
        tally.reads, tally.writes, tally.notifications = counts.reads, counts.writes, counts.notifications
        return tally

    def longest_wait_us(self) -> int:
        longest, self.ensemble.counts.longest_wait_us = self.ensemble.counts.longest_wait_us, 0
        return longest
