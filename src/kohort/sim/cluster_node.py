"""One broker of a simulated cluster: the real core and membership over a store that all share, and that can fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kohort.broker.cluster_topics import ClusterCatalog
from kohort.broker.config import BrokerConfig
from kohort.broker.membership import Life, Membership
from kohort.broker.proposals import Wish
from kohort.broker.topics import Partition
from kohort.cluster.memory_engine import MemoryEngine, Mishap
from kohort.cluster.meta_log import found_cluster
from kohort.cluster.state import Change
from kohort.sim.broker import PORT, SimBroker
from kohort.sim.observed import ObservedCore
from kohort.sim.peer_links import PeerLinks
from kohort.storage.journal_store import JournalStore

if TYPE_CHECKING:
    from kohort.sim.cluster_world import ClusterWorld

CLUSTER_ID = "simulated"
LOOK_MS = 100
AGAIN_MS = 2_000
MISHAPS = (Mishap.REFUSED, Mishap.LOST_ANSWER, Mishap.RETRIED, Mishap.LATE)


class SimNode(SimBroker):
    def __init__(self, world: ClusterWorld, config: dict[str, Any], node_id: int) -> None:
        super().__init__(world, {**config, "node.id": node_id}, f"b{node_id}")
        self.node_id = node_id
        self._cluster = world
        self.engine: MemoryEngine | None = None
        self.is_cut_off = False  # from the store
        self._behind_ms = 0  # its clock
        self._peers: PeerLinks | None = None

    @property
    def membership(self) -> Membership | None:
        return self.core.membership if self.core is not None else None

    @property
    def now_ms(self) -> int:
        return self._scheduler.now_ms - self._behind_ms

    def suspend(self, duration_ms: int) -> None:
        """The machine stands still, and its clock: nothing tells the process that time has passed."""
        if self.core is not None and self._scheduler.now_ms >= self.stalled_until_ms:
            self.stall(duration_ms)
            self._scheduler.after(0, self._fall_behind, self._epoch, duration_ms)

    def _fall_behind(self, epoch: int, duration_ms: int) -> None:
        if epoch == self._epoch and self._timer is not None:
            self._behind_ms += duration_ms
            self._timer.cancel()
            self._timer = None
            self._scheduler.after(0, self._on_time, epoch)

    # Life.

    def start(self) -> None:
        if self.core is not None:
            return
        self._epoch += 1
        self._behind_ms = 0
        objects = self._cluster.objects
        state = found_cluster(objects.engine(), CLUSTER_ID, CLUSTER_ID)
        self.engine = objects.engine(self._mishap)
        self.engine.cut_off = self.is_cut_off
        config = BrokerConfig(self._config)
        store = JournalStore(cluster_id=state.cluster_id, node_id=self.node_id)
        catalog = ClusterCatalog(config, store, self._random.randbytes, state)
        core = ObservedCore(self._world, config, store, self._random.randbytes, self.end_turn_soon, catalog)
        self.core = core
        core.host, core.port = self.name, PORT
        membership = core.membership = Membership(core, self.engine, state)
        self._peers = PeerLinks(self, self._world.network, membership.peers)
        core.start(self.now_ms)
        membership.join(self.name, PORT, self.now_ms)
        self._world.trace.note("broker", f"{self.name} starts")
        self.end_turn_soon()
        self._scheduler.after(AGAIN_MS, self._look_after, self._epoch)

    def kill(self) -> None:
        """Nobody is told, and nothing is stored that was not."""
        if self.core is not None:
            self._world.trace.note("broker", f"{self.name} is killed")
            self._end()

    def _end(self) -> None:
        assert self.engine is not None and self._peers is not None
        self.engine.close()
        self._peers.vanish()
        self._vanish()

    def stop(self) -> None:
        """Hand everything over, and end."""
        if self.membership is not None and not self._stall.holds(self.stop):
            self._world.trace.note("broker", f"{self.name} stops")
            self.membership.leave(self.now_ms)
            self.end_turn_soon()
            self._await_end(self._epoch)

    def _await_end(self, epoch: int) -> None:
        if epoch == self._epoch and self.membership is not None:
            if self.membership.life is Life.OUTSIDE:
                self._end()
                if self._cluster.is_calm:
                    self.start()
            else:
                self._scheduler.after(LOOK_MS, self._await_end, epoch)

    def _look_after(self, epoch: int) -> None:
        """Where the broker has ended by itself, its process is started again."""
        if epoch == self._epoch and self.membership is not None:
            if self.membership.why_stopped is not None:
                self._world.trace.fail(f"{self.name} stops: {self.membership.why_stopped}")
            self._scheduler.after(AGAIN_MS, self._look_after, epoch)

    # The store.

    def cut_off(self, cut: bool) -> None:
        self.is_cut_off = cut
        if self.engine is not None:
            self.engine.cut_off = cut

    def _mishap(self, verb: str, name: str) -> Mishap:
        share = self._world.options.store_trouble
        if self._cluster.is_calm or not share or self._random.random() > share:
            return Mishap.NONE
        return self._random.choice(MISHAPS)

    def holds_back(self, action: Callable[..., None], *arguments: Any) -> bool:
        """Whether it stands still, and does that when it goes on."""
        return self._stall.holds(action, *arguments)

    def _run_jobs(self, core: ObservedCore) -> None:
        assert self._peers is not None
        self._peers.serve()
        for job in core.take_jobs():
            self._scheduler.after(self._delay_ms(), self._ask, self._epoch, job)

    def _delay_ms(self) -> int:
        return self._random.randint(0, self._world.options.store_delay_ms)

    def _ask(self, epoch: int, job: Any) -> None:
        if epoch != self._epoch:
            return
        if self._random.random() < 0.5 and self._stall.holds(self._ask, epoch, job):
            return  # else it was on its way when the process stood still
        failed: Exception | None = None
        try:
            job.run()
        except Exception as error:  # as the server does
            failed = error
        self._scheduler.after(self._delay_ms(), self._hear, epoch, job, failed)

    def _hear(self, epoch: int, job: Any, failed: Exception | None) -> None:
        if epoch != self._epoch or self.core is None or self._stall.holds(self._hear, epoch, job, failed):
            return
        self.core.job_done(job, failed, self.now_ms)
        self.end_turn_soon()

    # What it leads.

    def wish(self, change: Change) -> None:
        if self.membership is not None:
            self.membership.propose(Wish([change]), self.now_ms)
            self.end_turn_soon()

    def led(self, topic: str, index: int) -> Partition | None:
        partition = self.core.topics.partition(topic, index) if self.core is not None else None
        return partition if partition is not None and partition.leads else None

    @property
    def is_settled(self) -> bool:
        membership = self.membership
        return membership is not None and membership.is_member and membership.leading.is_settled
