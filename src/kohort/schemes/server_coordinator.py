"""Scheme two: a broker watches ZooKeeper for a group, assigns, and tells the consumers to stop and to start.

Drafted for Kafka between 0.8 and 0.9, never released. A consumer puts itself into ZooKeeper and watches nothing; the
coordinator, elected among the brokers, first has everybody stop and then hands out the shares, so that there is one
view of the group. Whom ZooKeeper has and who does not answer is waited for: ZooKeeper decides who is alive. Groups are
divided into subsets, each with a coordinator of its own: another broker, while there are enough of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from kohort.schemes.line import MAX_DELAY_MS, Line
from kohort.schemes.meter import Meter, View
from kohort.schemes.on_zookeeper import OnZooKeeper, Participant
from kohort.schemes.process import Steps
from kohort.schemes.registry import BROKERS, LAGGING, TOPIC_PATH, coordinator_of, epoch_of, ids_of, range_shares
from kohort.schemes.scheme import COMMIT_EVERY_MS, GROUP, TOPIC
from kohort.schemes.znodes import NodeExists, NoNode

GONE_PATIENCE_MS = 1_000
"""How long a consumer that ZooKeeper has given up may take to confirm that it has stopped."""
OTHERS_WAIT_MS = 50
"""Of several subsets each broker first stands for its own."""
ROUNDS_A_TERM = 1_000_000
"""A coordinator begins so far above its predecessor, whose commands are thereby all older than its own."""


class ObedientConsumer(Participant):
    def __init__(self, world: ServerCoordinator, name: str, server: int, group: str) -> None:
        super().__init__(world.scheduler, world.ensemble, server)
        self.name = name
        self.group = group
        self._meter = world.meters[group]
        self.down = Line(world.scheduler, world.random)
        self.up = Line(world.scheduler, world.random)
        self._world = world
        self._epoch = 0
        self._run(self._register())
        self._run(self._auto_commit())

    def _register(self) -> Steps:
        yield self._zk.create_ephemeral(f"{ids_of(self.group)}/{self.name}", TOPIC)

    def _session_expired(self) -> None:
        self._meter.stops(self.name)
        self._run(self._register())

    # Commands.

    def stop(self, epoch: int, confirm: Callable[[str, int], None]) -> None:
        if epoch > self._epoch:
            self._epoch = epoch
            self._meter.stops(self.name)
            self.up.send(confirm, self.name, epoch)

    def start(self, epoch: int, partitions: tuple[int, ...], view: View) -> None:
        """Ask a broker for the committed offsets, then read on from them."""
        self._meter.tally.requests += 1
        round_trip_ms = self._world.random.randint(2, 2 * MAX_DELAY_MS)
        self._world.scheduler.after(round_trip_ms, self._read, epoch, partitions, view)

    def _read(self, epoch: int, partitions: tuple[int, ...], view: View) -> None:
        if epoch == self._epoch and not self.down.closed:
            self._meter.reads(self.name, partitions, view)

    # The end, and faults.

    def _die(self) -> None:
        super()._die()
        self.up.close()
        self.down.close()

    def cut(self) -> None:
        for end in (self._zk, self.up, self.down):
            end.cut()

    def heal(self) -> None:
        for end in (self.up, self.down, self._zk):
            end.heal()

    def _auto_commit(self) -> Steps:
        """To the brokers; a commit of those days names no generation, so nobody can tell a stale one."""
        while True:
            yield COMMIT_EVERY_MS
            if self._world.flowing:
                for partition in sorted(self._meter.read_by(self.name)):
                    if self._world.owner_of(partition, self.group) != self.name:
                        self._meter.tally.stale_commits += 1


class Confirmations:
    """Waits until all have confirmed that they have stopped, or it is no use to wait any longer."""

    def __init__(self, waited_for: set[str], epoch: int) -> None:
        self._waited_for = waited_for
        self._epoch = epoch
        self._answered: Callable[[Any, Exception | None], None] | None = None

    def begin(self, answered: Callable[[Any, Exception | None], None]) -> None:
        self._answered = answered
        self._see()

    def confirm(self, name: str, epoch: int) -> None:
        if epoch == self._epoch:
            self.give_up({name})

    def give_up(self, names: set[str]) -> None:
        self._waited_for -= names
        self._see()

    def _see(self) -> None:
        if not self._waited_for and self._answered is not None:
            answered, self._answered = self._answered, None
            answered(None, None)


class Rounds:
    """The rebalances of one group, by the broker that coordinates it."""

    def __init__(self, broker: CoordinatingBroker, group: str, epoch: int) -> None:
        self._world = broker.world
        self._zk = broker.zk
        self._meter = broker.world.meters[group]
        self._ids = ids_of(group)
        self.owners: dict[int, str] = {}
        self._connected: dict[str, ObedientConsumer] = {}
        self._epoch = epoch  # rises from round to round, and from one coordinator to the next
        self._triggered = False
        self._rebalancing = False
        self._stopping: Confirmations | None = None

    def begin(self) -> Steps:
        yield self._zk.children(self._ids, watch=True)
        yield self._zk.get(TOPIC_PATH, watch=True)
        yield from self._rebalance_until_calm()

    def heed(self, path: str) -> Steps:
        yield self._zk.get(path, watch=True) if path == TOPIC_PATH else self._zk.children(path, watch=True)
        self._triggered = True
        if self._stopping is not None:
            self._stopping.give_up(set(self._connected))
        if not self._rebalancing:
            yield from self._rebalance_until_calm()

    def _rebalance_until_calm(self) -> Steps:
        self._rebalancing = self._triggered = True
        while self._triggered:
            self._triggered = False
            try:
                yield from self._rebalance()
            except NoNode:
                self._triggered = True  # a consumer went while it was looked at
        self._rebalancing = False

    def _rebalance(self) -> Steps:
        members = yield self._zk.children(self._ids)
        for name in members:
            if name not in self._connected:
                yield self._zk.get(f"{self._ids}/{name}")
                if (consumer := self._world.consumers.get(name)) is not None:
                    self._connected[name] = consumer
        partitions = int((yield self._zk.get(TOPIC_PATH)))
        self._epoch += 1
        epoch = self._epoch
        yield from self._stop_all(epoch, set(members))
        if not self._triggered:
            self._start_all(epoch, members, partitions)

    def _stop_all(self, epoch: int, members: set[str]) -> Steps:
        reachable = {name: one for name, one in self._connected.items() if not one.down.closed}
        gone = set(self._connected) - members
        self._stopping = Confirmations(set(reachable), epoch)
        for consumer in reachable.values():
            self._meter.tally.requests += 1
            consumer.down.send(consumer.stop, epoch, self._stopping.confirm)
        self._world.scheduler.after(GONE_PATIENCE_MS, self._stopping.give_up, gone)
        yield self._stopping
        self._stopping = None
        self._connected = {name: one for name, one in self._connected.items() if name in members}

    def _start_all(self, epoch: int, members: list[str], partitions: int) -> None:
        shares = range_shares(members, partitions)
        self.owners = {partition: name for name, share in shares.items() for partition in share}
        view = View(frozenset(members), epoch)
        for name, share in shares.items():
            if name in self._connected:
                self._meter.tally.requests += 1
                self._connected[name].down.send(self._connected[name].start, epoch, share, view)


class CoordinatingBroker(Participant):
    """A candidate for every subset; of each one is elected by being the first to create the coordinator's znode."""

    def __init__(self, world: ServerCoordinator, index: int) -> None:
        super().__init__(world.scheduler, world.ensemble, LAGGING)
        self.index = index
        self.leads: set[int] = set()  # subsets
        self.rounds: dict[str, Rounds] = {}  # of the groups in them
        self.world = world
        self.zk = self._zk
        for subset in range(world.subsets):
            self._run(self._stand_for(subset))

    def _stand_for(self, subset: int) -> Steps:
        if self.world.subsets > 1 and subset != self.index:
            yield OTHERS_WAIT_MS
        yield from self._campaign(subset)

    def _campaign(self, subset: int) -> Steps:
        while subset not in self.leads:
            try:
                yield self._zk.create_ephemeral(coordinator_of(subset), str(self.index))
                self.leads.add(subset)
            except NodeExists:
                if (yield self._zk.exists(coordinator_of(subset), watch=True)):
                    return
        epoch = 0
        try:
            epoch = int((yield self._zk.get(epoch_of(subset)))) + ROUNDS_A_TERM
        except NoNode:
            pass
        yield self._zk.set(epoch_of(subset), str(epoch))
        mine = {group: Rounds(self, group, epoch) for group in self.world.groups_of(subset)}
        self.rounds |= mine
        for rounds in mine.values():
            self._run(rounds.begin())

    def _watch_fired(self, path: str) -> None:
        for subset in range(self.world.subsets):
            if path == coordinator_of(subset):
                self._run(self._campaign(subset))
        for group, rounds in self.rounds.items():
            if path in (TOPIC_PATH, ids_of(group)):
                self._run(rounds.heed(path))

    def _die(self) -> None:
        super()._die()
        self.leads.clear()
        self.rounds.clear()


class ServerCoordinator(OnZooKeeper[ObedientConsumer]):
    """With three brokers on the ZooKeeper server that may fall behind."""

    def __init__(self, seed: int, partitions: int, groups: Sequence[str] = (GROUP,), subsets: int = 1) -> None:
        super().__init__(Random(f"{seed} server coordinator"))
        self.groups, self.subsets = list(groups), subsets
        self.meters = {group: Meter(self.scheduler) for group in groups} | {GROUP: self.meter}
        self.grow(partitions)
        self.scheduler.run(100)
        self._brokers = [CoordinatingBroker(self, index) for index in range(BROKERS)]
        self.scheduler.run(200)

    def groups_of(self, subset: int) -> list[str]:
        return self.groups[subset :: self.subsets]

    def grow(self, partitions: int) -> None:
        super().grow(partitions)
        for meter in self.meters.values():
            if meter is not self.meter:
                meter.topic_has(partitions)

    def _new_consumer(self, name: str, server: int) -> ObedientConsumer:
        return ObedientConsumer(self, name, server, GROUP)

    def join_group(self, name: str, group: str) -> None:
        """Of several."""
        self.consumers[name] = ObedientConsumer(self, name, len(self.consumers), group)
        self.meters[group].joined(name)

    def coordinator(self, group: str = GROUP) -> CoordinatingBroker | None:
        return next((broker for broker in self._brokers if group in broker.rounds), None)

    def owner_of(self, partition: int, group: str = GROUP) -> str | None:
        broker = self.coordinator(group)
        return None if broker is None else broker.rounds[group].owners.get(partition)

    def lose_broker(self, group: str = GROUP) -> None:
        broker = self.coordinator(group)
        assert broker is not None
        broker.crash()
