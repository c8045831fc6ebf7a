"""When the faults are over every group becomes stable with everybody in it, and nobody waits for an answer."""

from __future__ import annotations

from typing import Any

from kohort.coordinator.classic.states import STABLE
from kohort.coordinator.modern.group import ModernGroup, ModernState
from kohort.sim.trace import Checker


class Liveness(Checker):
    def settled(self, world: Any) -> None:
        coordinator = world.broker.core.coordinator
        for slot in world.slots:
            if len(slot.lives) > 1 and world.is_readable(slot.group_id):
                self.fail(f"{' and '.join(map(str, slot.lives))} both live with one group.instance.id")
        for member in world.members():
            if not member.member.in_group:
                told = "; ".join(text for _, text in list(member.member.story)[-3:])
                self.fail(f"{member} is {member.member.standing}; {told}")
            group = coordinator.group(member.group_id)
            if group is None or group.state not in (STABLE, ModernState.STABLE):
                self.fail(f"{member.group_id} is {group.state.value if group else 'gone'}, not Stable")
            if member.member.member_id not in group.members:
                self.fail(f"{member} believes to be in {member.group_id}, which does not know it")
        for group_id in world.group_ids():
            if (group := coordinator.group(group_id)) is None:
                continue
            expected = {member.member.member_id for member in world.members() if member.group_id == group_id}
            if strangers := set(group.members) - expected:
                self.fail(f"{group_id} still has members that are gone: {sorted(strangers)}")
            if isinstance(group, ModernGroup):
                self._nobody_is_waited_for(group)
                continue
            for member in group.members.values():
                if member.parked_join is not None or member.parked_sync is not None:
                    self.fail(f"{member} still waits for an answer in stable {group_id}")

    def _nobody_is_waited_for(self, group: ModernGroup) -> None:
        for member in group.members.values():
            if member.sync is not None and member.sync.at_ms is not None:
                self.fail(f"{member} is still to join or to sync in stable {group.group_id}")
            if member.rebalance.at_ms is not None:
                self.fail(f"{member} is still to give something up in stable {group.group_id}")
