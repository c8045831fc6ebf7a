"""Subscriptions by regular expression: whether one can be taken, and what it means for the group when it changes."""

from __future__ import annotations

from typing import NamedTuple

from kohort.coordinator.context import Context
from kohort.coordinator.modern import expressions
from kohort.coordinator.modern.group import ModernGroup
from kohort.coordinator.modern.refusing import Refused
from kohort.coordinator.modern.steps import Steps
from kohort.coordinator.modern_records import Kind
from kohort.protocol.errors import ErrorCode


class RegexUpdate(NamedTuple):
    is_changed: bool
    is_resolved: bool
    """Changed, and what it stands for is known."""


def check(context: Context, group: ModernGroup | None, regex: str | None) -> None:
    """An expression that nobody in the group has used yet must be one."""
    if not regex or (group is not None and group.regexes[regex]):
        return
    if why := expressions.problem(regex):
        raise Refused(ErrorCode.INVALID_REGULAR_EXPRESSION, why)


def update(steps: Steps, old: str, new: str) -> RegexUpdate:
    """The member's record is in the group already."""
    group = steps.group
    if old == new:
        return RegexUpdate(False, False)
    if old and not group.regexes[old] and old in group.resolved:
        steps.put(Kind.REGEX, None, old)
    return RegexUpdate(True, new in group.resolved if new else bool(old))
