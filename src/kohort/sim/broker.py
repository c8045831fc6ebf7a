"""The broker's host: drives the real core turn by turn, and lets it crash, stall, restart and lose its disk's cache."""

from __future__ import annotations

import errno
from random import Random
from typing import TYPE_CHECKING, Any

from kohort.broker.config import BrokerConfig
from kohort.broker.connection import Connection
from kohort.coordinator.records import OFFSETS_TOPIC
from kohort.records.batch import HEADER_SIZE
from kohort.sim.network import BROKER, Link
from kohort.sim.observed import ObservedCore
from kohort.sim.scheduler import Event, Stall
from kohort.storage.config import LogConfig
from kohort.storage.memory_log import MemoryLog
from kohort.storage.store import MemoryStore

if TYPE_CHECKING:
    from kohort.sim.world import World


PORT = 9092


class SimConfig(BrokerConfig):
    """A broker counts the retention of offsets in whole minutes; most of a run is over by then."""

    def __init__(self, given: dict[str, Any], retention_ms: int) -> None:
        self._retention_ms = retention_ms
        super().__init__(given)

    def __getitem__(self, name: str) -> Any:
        if name == "offsets.retention.minutes" and self._retention_ms:
            return self._retention_ms / 60_000
        return super().__getitem__(name)


class SimStore(MemoryStore):
    """Remembers which topic an id ever meant."""

    def __init__(self) -> None:
        super().__init__()
        self.names_ever: dict[bytes, str] = {}

    def create(self, topic: str, partition: int, topic_id: bytes, config: LogConfig, *, now_ms: int) -> MemoryLog:
        self.names_ever[topic_id] = topic
        return super().create(topic, partition, topic_id, config, now_ms=now_ms)


class SimBroker:
    def __init__(self, world: World, config: dict[str, Any], name: str = BROKER) -> None:
        self.name = name
        self._world = world
        self._scheduler = world.scheduler
        self._random: Random = world.random_for(name)
        self._config = config
        self.store = SimStore()
        self.damaged: dict[int, tuple[int, int]] = {}  # partition of the offsets topic -> offset, position
        self.core: ObservedCore | None = None
        self.restarts = 0
        self._links: dict[Connection, Link] = {}
        self._turn_open = False
        self._timer: Event | None = None
        self._stall = Stall(world.scheduler)
        self.stalled_until_ms = 0
        self._epoch = 0  # of this life: what was scheduled in an earlier one no longer counts

    @property
    def now_ms(self) -> int:
        """By its own clock."""
        return self._scheduler.now_ms

    @property
    def up(self) -> bool:
        return self.core is not None

    # Life.

    def start(self) -> None:
        if self.core is not None:
            return
        self._epoch += 1
        self.core = ObservedCore(
            self._world,
            SimConfig(self._config, self._world.options.retention_ms),
            self.store,
            self._random.randbytes,
            self.end_turn_soon,
        )
        self.core.host, self.core.port = BROKER, PORT
        self.core.start(self._scheduler.now_ms)
        self._world.trace.broker_started(self)
        self.end_turn_soon()

    def crash(self, *, power_loss: bool) -> None:
        """The process is gone; with a power loss so is what the disk had not synced."""
        if self.core is None:
            return
        self._vanish()
        self.store.crash(lose_unflushed=power_loss)
        for log in self._logs():
            log.faults.append_errors.clear()
            log.faults.flush_errors.clear()

    def _vanish(self) -> None:
        self.core = None
        self.restarts += 1
        self._epoch += 1
        self._turn_open = False
        self._timer = None
        self._stall.forget()
        links, self._links = list(self._links.values()), {}
        for link in links:
            link.broker_closed = True
            if not link.client_closed:
                link.client_closed = True
                self._scheduler.after(self._world.network.delay_ms(), link.on_closed, "the broker is gone")

    def stall(self, duration_ms: int) -> None:
        """The process does nothing; what arrives waits in its buffers."""
        self._stall.lasts(duration_ms)
        self.stalled_until_ms = max(self.stalled_until_ms, self._scheduler.now_ms + duration_ms)

    # The disk.

    def _logs(self, topic: str | None = None) -> list[MemoryLog]:
        """In order, so that a run can be repeated."""
        chosen = [log for (name, _), log in sorted(self.store.logs.items()) if topic is None or name == topic]
        return [log for log in chosen if isinstance(log, MemoryLog)]

    def fail_next_append(self, topic: str | None = None) -> None:
        if logs := self._logs(topic):
            self._random.choice(logs).faults.append_errors.append(self._random.choice([errno.ENOSPC, errno.EIO]))

    def fail_next_sync(self) -> None:
        """The log is offline from then on, until somebody starts the broker again."""
        if self.core is not None and (logs := self._logs(OFFSETS_TOPIC)):
            self._random.choice(logs).faults.flush_errors.append(errno.EIO)

    def slow_disk(self, duration_ms: int, topic: str | None = None) -> None:
        for log in self._logs(topic):
            log.faults.hold_flushes = True
        self._scheduler.after(duration_ms, self.disk_recovers)

    def disk_recovers(self) -> None:
        for log in self._logs():
            log.faults.append_errors.clear()
            log.faults.flush_errors.clear()
            log.faults.hold_flushes = False
            log.release_flushes()

    @property
    def has_failed_logs(self) -> bool:
        return any(log.failure is not None for log in self._logs())

    def damage(self) -> None:
        """While the broker is down: a byte in one batch of one partition of the offsets topic changes."""
        read_below = self._world.journal.read_below
        if self.core is None and not self.damaged and (partitions := sorted(read_below)):
            partition = self._random.choice(partitions)
            offset = self._random.randrange(read_below[partition])
            # Its CRC, or what that covers; how a log finds its batches is not in question.
            position = self._random.choice([17, HEADER_SIZE + self._random.randrange(1_000)])
            self._damage(partition, offset, position)
            self.damaged[partition] = offset, position

    def mend(self) -> None:
        """While the broker is down: the damaged byte is what it was."""
        for partition, (offset, position) in self.damaged.items():
            self._damage(partition, offset, position)
        self.damaged.clear()

    def _damage(self, partition: int, offset: int, position: int) -> None:
        log = self.store.logs[OFFSETS_TOPIC, partition]
        assert isinstance(log, MemoryLog)
        log.damage(offset, position)

    # The network.

    def accept(self, link: Link) -> bool:
        if self.core is None:
            return False
        link.connection = Connection(link.host, link)
        self._links[link.connection] = link
        return True

    def receive(self, link: Link, data: bytes) -> None:
        if self._stall.holds(self.receive, link, data) or self.core is None:
            return
        self.core.receive(link.connection, data[4:], self.now_ms)
        self.end_turn_soon()

    def disconnected(self, link: Link) -> None:
        if self.core is not None and self._links.pop(link.connection, None) is not None:
            self.core.connection_lost(link.connection)
            self.end_turn_soon()

    # Turns.

    def end_turn_soon(self) -> None:
        if not self._turn_open:
            self._turn_open = True
            self._scheduler.after(0, self._end_turn, self._epoch)

    def _end_turn(self, epoch: int) -> None:
        if epoch != self._epoch or self.core is None:
            return
        if self._stall.holds(self._end_turn, epoch):
            return
        self._turn_open = False
        core, now_ms = self.core, self.now_ms
        for connection in core.flush(now_ms):
            link = self._links.get(connection)
            if link is None:
                continue
            if parts := connection.take_output():
                link.to_client(b"".join(parts))
            if connection.closed:
                del self._links[connection]
                link.close_by_broker()
        self._run_jobs(core)
        if core.busy:
            self.end_turn_soon()
        self._arm()

    def _run_jobs(self, core: ObservedCore) -> None:
        for job in core.take_jobs():
            job.run()
            core.job_done(job, None, self.now_ms)
            self.end_turn_soon()

    def _arm(self) -> None:
        assert self.core is not None
        due_ms = self.core.next_deadline()
        at_ms = None if due_ms is None else due_ms + self._scheduler.now_ms - self.now_ms
        if at_ms is None or (self._timer is not None and self._timer.action and self._timer.at_ms <= at_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._scheduler.at(at_ms, self._on_time, self._epoch)

    def _on_time(self, epoch: int) -> None:
        if epoch != self._epoch or self.core is None:
            return
        if self._stall.holds(self._on_time, epoch):
            return
        self._timer = None
        self.core.on_time(self.now_ms)
        self._turn_open = True
        self._end_turn(epoch)
