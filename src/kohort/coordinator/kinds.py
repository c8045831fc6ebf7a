"""The kinds of groups there are: what each does in its shard, and which records are its own.

The one place that knows them all; replay, homing and the coordinator know groups by `group.py` and by these tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import NoneType
from typing import Any, NamedTuple, TypeVar

from kohort.coordinator.causes import Cause
from kohort.coordinator.classic import join as classic_join
from kohort.coordinator.classic import life, session
from kohort.coordinator.classic import replay as classic_replay
from kohort.coordinator.classic.group import ClassicGroup
from kohort.coordinator.context import Context
from kohort.coordinator.effects import Decision, Request
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


T = TypeVar("T")
Answering = Callable[[Context, Request], Decision | None]


class _Rows(dict[type, T]):
    """Rows by the type of a group or of a record. Those of the consumer protocol join them with the first group that
    speaks it: a process whose groups are all classic never imports it."""

    def __init__(self, rows: Mapping[type, T], modern: Callable[[], Mapping[type, T]]) -> None:
        super().__init__(rows)
        self._modern = modern

    def __missing__(self, kind: type) -> T:
        rows = self._modern()
        self.update(rows)
        return rows[kind]


def _modern_kinds() -> Mapping[type, GroupKind]:
    from kohort.coordinator.modern import leaving
    from kohort.coordinator.modern.group import ModernGroup

    return {ModernGroup: GroupKind(leaving.loaded, leaving.due, leaving.close)}


def _modern_apply() -> Mapping[type, Callable[[Context, Any], None]]:
    from kohort.coordinator.modern import replay

    return {ModernChange: replay.apply}


def _classic_members(name: str) -> Callable[[], Mapping[type, Any]]:
    def rows() -> Mapping[type, Any]:
        from kohort.coordinator.modern import classic_members
        from kohort.coordinator.modern.group import ModernGroup

        return {ModernGroup: getattr(classic_members, name)}

    return rows


KINDS: Mapping[type, GroupKind] = _Rows({ClassicGroup: GroupKind(life.loaded, life.due, life.close)}, _modern_kinds)

APPLY: Mapping[type, Callable[[Context, Any], None]] = _Rows({GroupMetadata: classic_replay.apply}, _modern_apply)
"""What a record of a kind of groups does."""


def _of_classic_members(name: str, classic: Any) -> Mapping[type, Any]:
    return _Rows({NoneType: classic, ClassicGroup: classic}, _classic_members(name))


HEARTBEAT: Mapping[type, Callable[[Context, Request], None]] = _of_classic_members("heartbeat", session.heartbeat)
"""Heartbeat requests are so many that they go to the kind of their group at once."""
_JOIN: Mapping[type, Answering] = _of_classic_members("join", classic_join.join)
_SYNC: Mapping[type, Answering] = _of_classic_members("sync", session.sync)
_LEAVE: Mapping[type, Answering] = _of_classic_members("leave", session.leave)


def join(context: Context, request: Request) -> Decision | None:
    """Requests of the classic protocol, answered by the kind of their group."""
    return _JOIN[type(context.groups.get(request.message.group_id))](context, request)


def sync(context: Context, request: Request) -> Decision | None:
    return _SYNC[type(context.groups.get(request.message.group_id))](context, request)


def leave(context: Context, request: Request) -> Decision | None:
    return _LEAVE[type(context.groups.get(request.message.group_id))](context, request)


SimpleGroup = ClassicGroup
"""Commits alone, until somebody joins: what is made for a commit of a group that nobody knows."""
