"""Groups that move between the protocols: what may, and what becomes of it."""

from __future__ import annotations

from collections.abc import Sequence

from kohort.coordinator.causes import Cause
from kohort.coordinator.classic.group import ClassicGroup
from kohort.coordinator.classic.states import EMPTY
from kohort.coordinator.context import Context
from kohort.coordinator.effects import Decision
from kohort.coordinator.group import Group
from kohort.coordinator.modern.group import ModernGroup
from kohort.coordinator.modern.member import Member
from kohort.coordinator.modern.refusing import Refused
from kohort.coordinator.modern.steps import Steps
from kohort.coordinator.records import GroupMetadata
from kohort.protocol.errors import ErrorCode


def check_upgrade(context: Context, group: Group | None) -> None:
    """Whether a group of the consumer protocol can be made of it."""
    if isinstance(group, ClassicGroup) and group.state is not EMPTY:
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, "The group has members of the classic protocol.")


def begin(context: Context, group_id: str, old: Group | None, cause: Cause) -> Steps:
    """A new group; of an empty classic one it takes the commits."""
    made = ModernGroup(group_id)
    made.restore()
    if old is None:
        context.groups[group_id] = made
        return Steps(context, made)
    steps = Steps(context, made)
    steps.add(GroupMetadata(group_id, None))
    adopt(context, made, old)
    return steps


def adopt(context: Context, group: Group, old: Group) -> None:
    """What a group has whatever its protocol."""
    group.offsets, group.open_transactions, group.story = old.offsets, old.open_transactions, old.story
    context.groups[group.group_id] = group


def may_downgrade(context: Context, group: ModernGroup, leaving: Sequence[Member]) -> bool:
    return False


def downgrade(context: Context, group: ModernGroup, leaving: Sequence[Member]) -> Decision | None:
    raise NotImplementedError
