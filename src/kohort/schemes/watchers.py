"""Scheme one: every consumer watches ZooKeeper and works out for itself which partitions are its own, as in Kafka 0.8.

Nobody tells anybody anything. Each consumer releases what it holds, looks at the group, takes its share by creating the
znodes of the owners, and where one is still held by another it lets go of all, waits and tries again; after
`rebalance.max.retries` it gives up and holds nothing until the next change.
"""

from __future__ import annotations

from random import Random

from kohort.schemes.meter import View
from kohort.schemes.on_zookeeper import OnZooKeeper, Participant
from kohort.schemes.process import Steps
from kohort.schemes.registry import (
    BROKER_IDS,
    BROKERS,
    IDS,
    OFFSETS,
    OWNERS,
    TOPIC_PATH,
    range_shares,
)
from kohort.schemes.scheme import COMMIT_EVERY_MS, SESSION_TIMEOUT_MS, TOPIC
from kohort.schemes.znodes import NodeExists, NoNode

MAX_RETRIES = 4
BACKOFF_MS = 2_000


class WatchingConsumer(Participant):
    def __init__(self, world: Watchers, name: str, server: int) -> None:
        super().__init__(world.scheduler, world.ensemble, server)
        self.name = name
        self._world = world
        self._owned: list[int] = []  # as this consumer believes
        self._triggered = False
        self._rebalancing = False
        self._run(self._begin())
        self._run(self._auto_commit())

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


class Watchers(OnZooKeeper[WatchingConsumer]):
    def __init__(self, seed: int, partitions: int) -> None:
        super().__init__(Random(f"{seed} watchers"))
        for broker in range(BROKERS):
            self.ensemble.put(f"{BROKER_IDS}/{broker}", f"broker{broker}:9092")
        self.grow(partitions)

    def _new_consumer(self, name: str, server: int) -> WatchingConsumer:
        return WatchingConsumer(self, name, server)

    def lose_broker(self) -> None:
        """Its session ends like any other; every consumer watches the brokers as well."""
        self.scheduler.after(SESSION_TIMEOUT_MS, self.ensemble.remove, f"{BROKER_IDS}/0")
