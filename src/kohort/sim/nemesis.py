"""What goes wrong, and when: each kind of fault on its own, at random intervals, until the world is told to heal."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from kohort.coordinator.records import OFFSETS_TOPIC

if TYPE_CHECKING:
    from kohort.sim.world import World


Faults = dict[str, tuple[int, Callable[[], None]]]
"""By name: the mean time between two of a kind, and what happens."""


class Nemesis:
    def __init__(self, world: World) -> None:
        self._world = world
        self._random: Random = world.random_for("nemesis")
        self._active = True
        for name, (every_ms, strike) in self._faults().items():
            if every_ms:
                self._schedule(name, every_ms, strike)

    def _faults(self) -> Faults:
        world, options = self._world, self._world.options
        return {
            "broker crash": (options.broker_crash_every_ms, self._crash_broker),
            "broker stall": (options.broker_stall_every_ms, self._stall_broker),
            "disk error": (options.disk_error_every_ms, world.broker.fail_next_append),
            "slow disk": (options.slow_disk_every_ms, self._slow_disk),
            **self._client_faults(),
            "topic grows": (options.grow_every_ms, world.grow_a_topic),
            "look": (options.look_every_ms, world.administrator.look),
            "delete groups": (options.delete_groups_every_ms, world.administrator.delete_groups),
            "delete offsets": (options.delete_offsets_every_ms, world.administrator.delete_offsets),
            "topic again": (options.recreate_topic_every_ms, world.administrator.recreate_topic),
            "offsets topic grows": (options.grow_offsets_topic_every_ms, world.administrator.grow_offsets_topic),
            "offsets error": (options.offsets_error_every_ms, self._offsets_error),
            "slow offsets": (options.slow_offsets_every_ms, self._slow_offsets),
            "sync error": (options.sync_error_every_ms, self._sync_error),
            "damage": (options.damage_every_ms, self._damage),
        }

    def _client_faults(self) -> Faults:
        """Of whoever is no broker, and of the network between."""
        options = self._world.options
        return {
            "connection loss": (options.connection_loss_every_ms, self._world.network.cut_one),
            "partition": (options.partition_every_ms, self._partition),
            "member crash": (options.member_crash_every_ms, self._crash_member),
            "member stall": (options.member_stall_every_ms, self._stall_member),
            "late poll": (options.late_poll_every_ms, self._late_poll),
            "duplicate instance": (options.duplicate_every_ms, self._duplicate),
            "member leaves": (options.member_leave_every_ms, self._leave),
            "resubscribe": (options.resubscribe_every_ms, self._resubscribe),
        }

    def stop(self) -> None:
        self._active = False

    def _schedule(self, name: str, every_ms: int, strike: Callable[[], None]) -> None:
        delay_ms = max(1, int(self._random.expovariate(1 / every_ms)))
        self._world.scheduler.after(delay_ms, self._strike, name, every_ms, strike)

    def _strike(self, name: str, every_ms: int, strike: Callable[[], None]) -> None:
        if not self._active:
            return
        self._world.trace.note("fault", name)
        strike()
        self._schedule(name, every_ms, strike)

    def _crash_broker(self) -> None:
        if not self._active:
            return
        broker = self._world.broker
        broker.crash(power_loss=self._random.random() < self._world.options.power_loss_share)
        self._world.scheduler.after(self._random.choice([100, 2_000, 15_000]), broker.start)

    def _stall_broker(self) -> None:
        self._world.broker.stall(self._random.choice([200, 3_000, 20_000]))

    def _slow_disk(self) -> None:
        """A disk that gets slow may be a disk that dies."""
        duration_ms = self._random.choice([500, 5_000, 20_000])
        self._world.broker.slow_disk(duration_ms)
        if self._random.random() < self._world.options.power_loss_share:
            self._world.scheduler.after(self._random.randint(1, duration_ms), self._crash_broker)

    def _offsets_error(self) -> None:
        self._world.broker.fail_next_append(OFFSETS_TOPIC)

    def _slow_offsets(self) -> None:
        self._world.broker.slow_disk(self._random.choice([100, 1_500, 6_000, 20_000]), OFFSETS_TOPIC)

    def _sync_error(self) -> None:
        self._world.broker.fail_next_sync()
        self._world.scheduler.after(self._random.choice([1_000, 10_000]), self._crash_broker)

    def _damage(self) -> None:
        self._crash_broker()
        self._world.broker.damage()

    def _partition(self) -> None:
        host = self._random.choice(self._world.host_names())
        self._world.network.partition(host)
        duration_ms = self._random.choice([500, 5_000, 40_000])
        self._world.scheduler.after(duration_ms, self._world.network.heal, host)

    def _crash_member(self) -> None:
        if (slot := self._world.random_slot(self._random)) is not None:
            slot.crash(self._random.choice([100, 2_000, 20_000]))

    def _stall_member(self) -> None:
        if (slot := self._world.random_slot(self._random)) is not None and slot.member is not None:
            slot.member.stall(self._random.choice([1_000, 15_000, 45_000]))

    def _late_poll(self) -> None:
        if (slot := self._world.random_slot(self._random)) is not None and slot.member is not None:
            slot.member.poll_late(int(self._world.options.max_poll_interval_ms * self._random.choice([0.5, 1.2, 2.0])))

    def _duplicate(self) -> None:
        if (slot := self._world.random_slot(self._random)) is not None:
            slot.duplicate()

    def _leave(self) -> None:
        if (slot := self._world.random_slot(self._random)) is not None:
            slot.leave(self._random.choice([100, 5_000, 30_000]))

    def _resubscribe(self) -> None:
        if (slot := self._world.random_slot(self._random)) is not None:
            slot.resubscribe(self._world.random_topics(self._random))
