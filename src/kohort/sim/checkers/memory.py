"""When everybody has gone nothing of them is left: no members, no parked requests, no timers but the broker's own."""

from __future__ import annotations

from typing import Any

from kohort.coordinator.modern.group import ModernGroup
from kohort.sim.trace import Checker

STALE_TIMERS = 100  # cancelled ones that have not surfaced yet


class Memory(Checker):
    def finished(self, world: Any) -> None:
        core = world.broker.core
        coordinator = core.coordinator
        for group_id, group in coordinator.groups.items():
            pending = () if isinstance(group, ModernGroup) else group.pending_members
            if group.members or pending:
                self.fail(f"{group_id} keeps {sorted(group.members)} and {sorted(pending)}")
            for timer in _timers(group):
                if timer.at_ms is not None:
                    self.fail(f"{timer} of the empty {group_id} is still set")
            if isinstance(group, ModernGroup) and (left := group.target or group.holders or group.on_the_way):
                self.fail(f"the empty {group_id} keeps {left}")
        if len(core.purgatory):
            self.fail(f"{len(core.purgatory)} fetches are still parked")
        of_its_own = world.journal.partitions  # the look for expired offsets, in each
        if (entries := coordinator.timer_entries) > of_its_own + STALE_TIMERS:
            self.fail(f"{entries} entries are still in the timer queue")


def _timers(group: Any) -> tuple[Any, Any]:
    if isinstance(group, ModernGroup):
        return group.resolve, group.assigned_by
    return group.join_timer, group.sync_timer
