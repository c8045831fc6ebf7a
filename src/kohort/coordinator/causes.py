"""Why something happened to a group, as a value: its kind, who it was, and the numbers. No words, and no decisions.

A kind is chosen from what the coordinator saw, never from what a client wrote: client ids, member ids and the reasons
that members give (KIP-800) are data, kept as they came. What a cause reads like is made from it in one place,
insight/sentences.py; logs, events, metrics, `explain` and the history all use the kind's value as its name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import Enum
from functools import lru_cache
from typing import Any, NamedTuple

from kohort.protocol.errors import ErrorCode

MOST_SAID = 255
"""KIP-800: clients cut their reasons here; a broker should not keep more for those that do not."""


class CauseKind(Enum):
    """The value is the name in events, metrics and tables."""

    # a member comes
    JOINED = "joined"
    REJOINED = "rejoined"  # in a rebalance that others began
    LEADER_REJOINED = "leader_rejoined"
    METADATA_CHANGED = "metadata_changed"
    HANDED_OVER = "handed_over"  # cooperative: it owns less than when it joined before, the rest is for others
    REPLACED = "replaced"
    # a member goes
    LEFT = "left"
    REMOVED = "removed"  # another client asked for it
    TIMED_OUT = "timed_out"
    TIMED_OUT_IN_FIRST_JOIN = "timed_out_in_first_join"
    DID_NOT_REJOIN = "did_not_rejoin"
    DID_NOT_SYNC = "did_not_sync"
    NEVER_CAME_BACK = "never_came_back"
    OVER_MAX_SIZE = "over_group_max_size"
    DID_NOT_REVOKE = "did_not_revoke"  # KIP-848: it kept partitions that it was to give up
    LEFT_FOR_A_WHILE = "left_for_a_while"  # KIP-848: a static member that means to come back
    # the group goes on
    MEMBERS_JOINED = "members_joined"
    ASSIGNMENT_STORED = "assignment_stored"
    STORE_FAILED = "store_failed"
    ALL_LEFT = "all_left"
    LEADER_LATE = "leader_late"
    # KIP-848: a new epoch, a new target
    TOPICS_CHANGED = "topics_changed"
    REGEX_RESOLVED = "regex_resolved"
    ASSIGNOR_FAILED = "assignor_failed"
    UPGRADED = "upgraded"  # to the consumer protocol
    DOWNGRADED = "downgraded"  # to the classic one
    # the group as such
    NOT_STORED = "not_stored"
    LOADED = "loaded"
    MOVED = "moved"
    DELETED = "deleted"
    EMPTY_AND_EXPIRED = "empty_and_expired"
    # offsets go
    OFFSETS_DELETED = "offsets_deleted"
    TOPIC_DELETED = "topic_deleted"
    RETENTION_OVER = "retention_over"
    # a request is refused
    UNKNOWN_MEMBER = "unknown_member"
    FENCED = "fenced"
    OTHER_GENERATION = "other_generation"
    OTHER_EPOCH = "other_epoch"
    OTHER_PROTOCOL = "other_protocol"
    REBALANCING = "rebalancing"
    GROUP_FULL = "group_full"
    NOT_ACCEPTED = "not_accepted"
    # seen from outside, where nobody told
    GONE = "gone"
    BEGAN = "began"
    FIRST_KNOWN = "first_known"
    PARTITIONS_CAME = "partitions_came"
    PARTITIONS_MOVED = "partitions_moved"
    MEMBERS_REJOINED = "members_rejoined"
    UNKNOWN = "unknown"  # of another version: kept raw


class Who(NamedTuple):
    member_id: str
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""

    @property
    def identity(self) -> str:
        """The same for a client that comes back under a new member id."""
        return self.instance_id or (f"{self.client_id}@{self.client_host}" if self.client_id else self.member_id)

    def __str__(self) -> str:
        name = self.instance_id or self.client_id or self.member_id
        return f"{name} ({self.client_host.lstrip('/')})" if self.client_host else name


class Cause(NamedTuple):
    """What does not belong to the kind stays empty."""

    kind: CauseKind
    members: tuple[Who, ...] = ()
    """Whom it is about. In the event of a member, that member."""
    by: Who | None = None
    """Who else has a part in it: who asked for a removal, who holds the fenced id."""
    said: str = ""
    """The member's own reason (KIP-800), as it came."""
    state: str = ""
    """The state that the group was in."""
    generation: int | None = None
    """The generation that a refused request named."""
    timeout_ms: int | None = None
    """The time that passed."""
    size: int | None = None
    """How many members, or partitions where it is about those."""
    limit: int | None = None
    error: str = ""
    raw: str = ""
    """Of an unknown kind: the JSON as it was read."""

    @property
    def who(self) -> Who | None:
        return self.members[0] if self.members else None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, what is empty left out."""
        if self.kind is CauseKind.UNKNOWN:
            return _raw(self.raw)
        plain: dict[str, Any] = {"kind": self.kind.value}
        if self.members:
            plain["members"] = [_plain_who(who) for who in self.members]
        if self.by is not None:
            plain["by"] = _plain_who(self.by)
        for name in (*_TEXTS, *_NUMBERS):
            value = getattr(self, name)
            if value is not None and value != "":
                plain[name] = value
        return plain

    @classmethod
    def from_dict(cls, plain: Any, about: Who | None = None) -> Cause:
        """Never fails: what this version does not know, or what is no cause at all, is kept as it came.

        `about` is the member of the event, which its cause need not repeat.
        """
        if not isinstance(plain, Mapping):
            return cls(CauseKind.UNKNOWN, raw=_as_json(plain))
        kind = _KINDS.get(str(plain.get("kind")))
        if kind is None:
            raw = plain.get("raw")
            return cls(CauseKind.UNKNOWN, raw=raw if isinstance(raw, str) else _as_json(plain))
        data: dict[str, Any] = {name: value for name in _TEXTS if isinstance(value := plain.get(name), str)}
        data |= {name: value for name in _NUMBERS if type(value := plain.get(name)) is int}
        named = plain.get("members")
        members = tuple(filter(None, map(_who, named))) if isinstance(named, list | tuple) else ()
        if not members and about is not None:
            members = (about,)
        return cls(kind, members, _who(plain.get("by")), **data)


@lru_cache(maxsize=1_024)
def members_joined(size: int) -> Cause:
    """The same in many groups, which share it."""
    return Cause(CauseKind.MEMBERS_JOINED, size=size)


ASSIGNMENT_STORED = Cause(CauseKind.ASSIGNMENT_STORED)
"""Whose assignment it is tells the event that follows, RebalanceCompleted."""

_TEXTS = ("said", "state", "error")
_NUMBERS = ("generation", "timeout_ms", "size", "limit")
_KINDS = {kind.value: kind for kind in CauseKind if kind is not CauseKind.UNKNOWN}


def _plain_who(who: Who) -> dict[str, str]:
    return {name: value for name, value in who._asdict().items() if value}


def _who(plain: Any) -> Who | None:
    if not isinstance(plain, Mapping):
        return None
    found = {name: value for name in Who._fields if isinstance(value := plain.get(name), str)}
    return Who(found.pop("member_id", ""), **found)


def _as_json(plain: Any) -> str:
    return json.dumps(plain, default=str, sort_keys=True)


def _raw(text: str) -> dict[str, Any]:
    try:
        plain = json.loads(text)
    except ValueError:
        plain = None
    return plain if isinstance(plain, dict) else {"kind": CauseKind.UNKNOWN.value, "raw": text}


def said(reason: str | None) -> str:
    return reason[:MOST_SAID] if reason else ""


# ---- refusals

_REFUSALS = {
    ErrorCode.UNKNOWN_MEMBER_ID: CauseKind.UNKNOWN_MEMBER,
    ErrorCode.FENCED_INSTANCE_ID: CauseKind.FENCED,
    ErrorCode.ILLEGAL_GENERATION: CauseKind.OTHER_GENERATION,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: CauseKind.OTHER_PROTOCOL,
    ErrorCode.REBALANCE_IN_PROGRESS: CauseKind.REBALANCING,
    ErrorCode.GROUP_MAX_SIZE_REACHED: CauseKind.GROUP_FULL,
    ErrorCode.FENCED_MEMBER_EPOCH: CauseKind.OTHER_EPOCH,
    ErrorCode.STALE_MEMBER_EPOCH: CauseKind.OTHER_EPOCH,
    ErrorCode.UNRELEASED_INSTANCE_ID: CauseKind.FENCED,
}


def refusal(error: ErrorCode, who: Who, state: str, **data: Any) -> Cause:
    """Why a request is answered with an error."""
    return Cause(_REFUSALS.get(error, CauseKind.NOT_ACCEPTED), (who,), state=state, error=error.name, **data)
