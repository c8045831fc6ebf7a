"""Deliberate bugs in groups of the consumer protocol and in their moves, as in mutations.py. For tests only."""

from __future__ import annotations

from typing import Any

from kohort.coordinator.context import Context
from kohort.coordinator.modern import describe, heartbeat, migration
from kohort.coordinator.modern.group import ModernGroup
from kohort.coordinator.modern.steps import Steps
from kohort.coordinator.modern_records import NOTHING, Kind
from kohort.coordinator.runtime import Runtime
from kohort.sim.mutations import Mutation, reply_before_append


def _no_session(original: Any) -> Any:
    return lambda self, member, timeout_ms=None: None


def _keep_who_left(original: Any) -> Any:
    return lambda self, member: self.put(
        Kind.CURRENT_MEMBER, member.current._replace(assigned=NOTHING), member.member_id
    )


def _nobody_subscribes(original: Any) -> Any:
    return lambda self, topic: False


def _begin_anew(original: Any) -> Any:
    """After a load the group counts its epochs from the start."""

    def restore(self: ModernGroup) -> None:
        original(self)
        if self.epoch > 3:
            self.epoch = self.assignment_epoch = 1

    return restore


def _move_to_the_first_epoch(original: Any) -> Any:
    def take_over(steps: Any, old: Any, members: Any, cause: Any) -> None:
        old.generation = 1
        original(steps, old, members, cause)

    return take_over


def _any_epoch(original: Any) -> Any:
    return lambda member, message: None


def _show_the_target(original: Any) -> Any:
    def member(topics: Any, group: Any, one: Any) -> Any:
        shown = original(topics, group, one)
        shown.member_epoch = group.epoch
        return shown

    return member


def _never_downgrade(original: Any) -> Any:
    """The tombstones of the group are written, and what is left of it is not."""

    def downgrade(*arguments: Any, **named: Any) -> Any:
        decision = original(*arguments, **named)
        decision.records, decision.changes = decision.records[:-1], decision.changes[:-1]
        return decision

    return downgrade


MODERN_MUTATIONS: dict[str, tuple[Mutation, ...]] = {
    "Liveness": (
        Mutation("members of the consumer protocol never time out", Context, "reset_heartbeat", _no_session),
        Mutation("who leaves stays a member", Steps, "remove_member", _keep_who_left),
    ),
    "Memory": (Mutation("who leaves stays a member", Steps, "remove_member", _keep_who_left),),
    "Stored": (
        Mutation("reply before append", Runtime, "decided", reply_before_append),
        Mutation("show members where the group is", describe, "_member", _show_the_target),
        Mutation("a group that moves back is not stored", migration, "downgrade", _never_downgrade),
    ),
    "Kept": (Mutation("expire what a member subscribes to", ModernGroup, "is_subscribed", _nobody_subscribes),),
    "Order": (
        Mutation("start from epoch 1 after a restart", ModernGroup, "restore", _begin_anew),
        Mutation("a group that moves begins anew", migration, "_take_over", _move_to_the_first_epoch),
    ),
    "Legality": (Mutation("accept every epoch", heartbeat, "check_epoch", _any_epoch),),
}
"""By the checker that finds each by itself."""

OF_THE_CONSUMER_PROTOCOL = tuple({one.title: one for bugs in MODERN_MUTATIONS.values() for one in bugs}.values())
