"""When the faults are over every group can be joined, committed to, looked at and left, whatever it went through."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.sim.trace import Checker

if TYPE_CHECKING:
    from kohort.sim.world import World


class Usable(Checker):
    def settled(self, world: World) -> None:
        for loner in world.loners:
            if not loner.usable and world.is_readable(loner.group_id):
                self.fail(f"{loner.group_id} cannot be used: {loner.trouble}")
