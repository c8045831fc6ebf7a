"""Subscriptions by regular expression: what may be one, when they are resolved, and what that means for the group.

Resolving looks at every topic: no heartbeat waits for it. One that finds it due sets the group's deadline to now, the
broker comes to it between requests, and has it computed elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kohort.coordinator import expressions
from kohort.coordinator.causes import Cause, CauseKind
from kohort.coordinator.context import Context
from kohort.coordinator.effects import Decision
from kohort.coordinator.modern.group import ModernGroup
from kohort.coordinator.modern.refusing import Refused
from kohort.coordinator.modern.steps import Steps
from kohort.coordinator.modern.topics import metadata_hash
from kohort.coordinator.modern.work import Resolving
from kohort.coordinator.modern_records import Kind, ResolvedRegex
from kohort.protocol.errors import ErrorCode

MIN_INTERVAL_MS = 10_000  # fixed in Kafka
_VERSION = 0  # of Kafka's metadata, which there is none of here: a Kafka that reads this resolves again


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
    context, group = steps.context, steps.group
    if old != new and old and not group.regexes[old] and old in group.resolved:
        steps.put(Kind.REGEX, None, old)
    if group.regexes and _is_due(context, group):
        context.timers.set(group.resolve, context.now_ms)
    if old == new:
        return RegexUpdate(False, False)
    return RegexUpdate(True, new in group.resolved if new else bool(old))


def _is_due(context: Context, group: ModernGroup) -> bool:
    last_ms = max((known.timestamp_ms for known in group.resolved.values()), default=None)
    if last_ms is None:
        return True
    age_ms = context.now_ms - last_ms
    if age_ms < 0:  # by a coordinator whose clock is ahead
        return True
    if age_ms <= MIN_INTERVAL_MS:
        return False
    unresolved = len(group.regexes) != len(group.resolved)
    return unresolved or group.topics_came or age_ms > context.config.consumer_regex_refresh_interval_ms


def resolve(context: Context, group: ModernGroup) -> None:
    """All expressions of the group, elsewhere."""
    if group.resolving is None and group.regexes:
        group.topics_came = False
        group.resolving = Resolving(group.group_id, tuple(group.regexes), tuple(context.topics.names()))
        context.effects.work.append(group.resolving)


def resolved(
    context: Context, group: ModernGroup, work: Resolving, found: Mapping[str, frozenset[str]] | None
) -> Decision | None:
    """A new epoch where one of them stands for other topics now; None where nobody waits for it, or it failed."""
    if group.resolving is not work:
        return None
    group.resolving = None
    steps = Steps(context, group)
    changed = False
    for regex, topics in (found or {}).items():
        if not group.regexes[regex]:
            continue  # nobody subscribes by it any more
        known = group.resolved.get(regex)
        changed |= topics != (frozenset() if known is None else known.topics)
        steps.put(Kind.REGEX, ResolvedRegex(topics, _VERSION, context.now_ms), regex)
    if not steps.changes:
        return None
    if changed or metadata_hash(context.topics, group.subscribed_names()) != group.metadata_hash:
        steps.bump(Cause(CauseKind.REGEX_RESOLVED))
    return steps.decision(Cause(CauseKind.REGEX_RESOLVED))
