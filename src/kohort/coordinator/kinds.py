"""The kinds of groups there are: what each does in its shard, and which records are its own.

The one place that knows them all; replay, homing and the coordinator know groups by `group.py` and by these tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import NoneType
from typing import Any, NamedTuple

from kohort.coordinator.causes import Cause
from kohort.coordinator.classic import life, session
from kohort.coordinator.classic import replay as classic_replay
from kohort.coordinator.classic.group import ClassicGroup
from kohort.coordinator.context import Context
from kohort.coordinator.effects import Decision, Request
from kohort.coordinator.modern import classic_members, leaving
from kohort.coordinator.modern import replay as modern_replay
from kohort.coordinator.modern.group import ModernGroup
from kohort.coordinator.modern_records import ModernChange
from kohort.coordinator.records import GroupMetadata
from kohort.coordinator.timers import Deadline
from kohort.protocol.errors import ErrorCode


class GroupKind(NamedTuple):
    loaded: Callable[[Context, Any], Decision | None]
    """It has come out of the log and is served from here on."""
    due: Callable[[Context, Any, Deadline], Decision | None]
    """A deadline of it has passed."""
    close: Callable[[Context, Any, ErrorCode, Cause], None]
    """It is no longer served here: whoever is parked in it gets the error."""


KINDS: Mapping[type, GroupKind] = {
    ClassicGroup: GroupKind(life.loaded, life.due, life.close),
    ModernGroup: GroupKind(leaving.loaded, leaving.due, leaving.close),
}

APPLY: Mapping[type, Callable[[Context, Any], None]] = {
    GroupMetadata: classic_replay.apply,
    ModernChange: modern_replay.apply,
}
"""What a record of a kind of groups does."""

HEARTBEAT: Mapping[type, Callable[[Context, Request], None]] = {
    NoneType: session.heartbeat,
    ClassicGroup: session.heartbeat,
    ModernGroup: classic_members.heartbeat,
}
"""Heartbeat requests are so many that they go to the kind of their group at once."""

SimpleGroup = ClassicGroup
"""Commits alone, until somebody joins: what is made for a commit of a group that nobody knows."""
