"""What was computed elsewhere comes back: the group is looked at as it is now, which may be another one, or none."""

from __future__ import annotations

from typing import Any

from kohort.coordinator.context import Context
from kohort.coordinator.effects import Decision
from kohort.coordinator.modern import regexes, target
from kohort.coordinator.modern.group import ModernGroup
from kohort.coordinator.modern.work import Assigning, Work


def computed(context: Context, work: Work, made: Any, error: Exception | None) -> Decision | None:
    group = context.groups.get(work.group_id)
    if not isinstance(group, ModernGroup):
        return None
    if isinstance(work, Assigning):
        return target.assigned(context, group, work, made, error)
    return regexes.resolved(context, group, work, made)
