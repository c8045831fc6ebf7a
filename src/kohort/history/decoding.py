"""Records of `__consumer_offsets` to plain rows, with the coordinator's own decoder. No Spark and no Arrow in here.

What cannot be read becomes a row that says why under `problem`: a history has gaps, it never fails.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kohort.coordinator.causes import Cause, CauseKind
from kohort.coordinator.event_json import TYPES, UnknownEvent, from_json
from kohort.coordinator.records import (
    GROUP_METADATA_KEY_TYPE,
    GroupMetadata,
    OffsetCommit,
    UnknownRecord,
    decode,
    group_key,
)
from kohort.insight.generations import GenerationMember

_WHO = "struct<member_id: string, instance_id: string, client_id: string, client_host: string>"
CAUSE_FIELDS = {
    "kind": "string",
    "members": f"array<{_WHO}>",
    "by": _WHO,
    "said": "string",
    "state": "string",
    "generation": "int",
    "timeout_ms": "bigint",
    "size": "int",
    "limit": "bigint",
    "error": "string",
    "raw": "string",
}
"""The fields of a Cause. `raw` has what is not known to this version, as it was written."""

EVENT_FIELDS = {
    "group_id": "string",
    "generation": "int",
    "type": "string",
    "member_id": "string",
    "instance_id": "string",
    "client_id": "string",
    "client_host": "string",
    "cause": f"struct<{', '.join(f'{name}: {kind}' for name, kind in CAUSE_FIELDS.items())}>",
    "from_state": "string",
    "to_state": "string",
    "members": "int",
    "duration_ms": "bigint",
    "rebalance_timeout_ms": "bigint",
    "initial_delay_ms": "bigint",
    "protocol": "string",
    "leader_id": "string",
    "replaced_member_id": "string",
    "operation": "string",
    "error": "string",
    "state": "string",
    "offsets": "int",
    "topics": "array<string>",
    "partitions": "int",
    "assignor": "string",
    "from_type": "string",
    "to_type": "string",
    "member_epoch": "int",
    "assigned": "int",
    "pending": "int",
}
"""The columns of an event beside its time: the fields of every kind of GroupEvent."""

COMMIT_KEYS = (b"\x00\x00", b"\x00\x01")
GENERATION_KEYS = (GROUP_METADATA_KEY_TYPE.to_bytes(2, "big"),)

COMMIT_COLUMNS = (
    "group_id",
    "topic",
    "partition",
    "offset",
    "leader_epoch",
    "metadata",
    "commit_ms",
    "expire_ms",
    "tombstone",
    "problem",
)


def key_prefixes(kinds: Sequence[bytes], group_ids: Iterable[str]) -> list[bytes]:
    """How the keys of these kinds begin, and of these groups where some are named."""
    named = [group_key(group_id)[2:] for group_id in group_ids]
    return [kind + name for kind in kinds for name in named] if named else list(kinds)


def commit_columns(keys: Iterable[bytes], values: Iterable[bytes | None]) -> dict[str, list[Any]]:
    """One entry a record in each of COMMIT_COLUMNS."""
    rows = [_commit(key, value) for key, value in zip(keys, values, strict=True)]
    columns = zip(*rows, strict=True) if rows else ([] for _ in COMMIT_COLUMNS)
    return {name: list(column) for name, column in zip(COMMIT_COLUMNS, columns, strict=True)}


def _commit(key: bytes, value: bytes | None) -> tuple[Any, ...]:
    try:
        change = decode(key, value)
    except UnknownRecord as error:
        return (None,) * 8 + (value is None, str(error))
    if not isinstance(change, OffsetCommit):
        return (None,) * 8 + (value is None, "not an offset commit")
    stored = change.value
    where = (change.group_id, change.topic, change.partition)
    if stored is None:
        return (*where, None, None, None, None, None, True, None)
    return (
        *where,
        stored.committed_offset,
        _known(stored.leader_epoch),
        stored.metadata,
        _known(stored.commit_timestamp_ms),
        _known(stored.expire_timestamp_ms),
        False,
        None,
    )


def commit_row(key: bytes, value: bytes | None) -> dict[str, Any]:
    return dict(zip(COMMIT_COLUMNS, _commit(key, value), strict=True))


def _known(number: int) -> int | None:
    """-1 is how these records say that there is none."""
    return None if number < 0 else number


def generation_row(key: bytes, value: bytes | None) -> dict[str, Any]:
    """The columns of a stored generation; a tombstone has its group alone."""
    try:
        change = decode(key, value)
    except UnknownRecord as error:
        return {"tombstone": value is None, "problem": str(error)}
    if not isinstance(change, GroupMetadata):
        return {"tombstone": value is None, "problem": "not a group's metadata"}
    stored = change.value
    if stored is None:
        return {"group_id": change.group_id, "tombstone": True}
    return {
        "group_id": change.group_id,
        "generation": stored.generation,
        "protocol_type": stored.protocol_type,
        "protocol": stored.protocol,
        "leader_id": stored.leader_id,
        "state_ms": _known(stored.state_timestamp_ms),
        "members": [_member(GenerationMember.of(member, stored.protocol_type)) for member in stored.members],
        "tombstone": False,
    }


def _member(member: GenerationMember) -> dict[str, Any]:
    assigned: dict[str, list[int]] = {}
    for topic, partition in sorted(member.partitions):
        assigned.setdefault(topic, []).append(partition)
    return {
        "member_id": member.who.member_id,
        "instance_id": member.who.instance_id,
        "client_id": member.who.client_id,
        "client_host": member.who.client_host,
        "session_timeout_ms": member.session_timeout_ms,
        "rebalance_timeout_ms": member.rebalance_timeout_ms,
        "topics": sorted(member.topics),
        "assignment": [{"topic": topic, "partitions": numbers} for topic, numbers in assigned.items()],
    }


def event_row(value: bytes | None) -> tuple[dict[str, Any], str | None]:
    """The columns of an event and `at_ms`, and what is wrong with it; what is of another version is kept raw."""
    event = from_json(value)
    if isinstance(event, UnknownEvent):
        if event.type in TYPES or not event.at_ms or not event.group_id:
            return {}, "not a group event, or not a whole one"
        row: dict[str, Any] = {"group_id": event.group_id, "generation": event.generation, "type": event.type}
    else:
        row = event.to_dict()
    if event.cause is not None:
        row["cause"] = _cause(event.cause, row.get("cause", {}))
    if not _fits(row, EVENT_FIELDS) or not _fits(row.get("cause") or {}, CAUSE_FIELDS):
        return {}, "a number or a text that no table can hold"
    return {"at_ms": event.at_ms} | {name: row.get(name) for name in EVENT_FIELDS}, None


def _cause(cause: Cause, plain: Mapping[str, Any]) -> dict[str, Any]:
    if cause.kind is CauseKind.UNKNOWN:
        plain = {"kind": str(plain.get("kind", cause.kind.value)), "raw": cause.raw}
    return {name: plain.get(name) for name in CAUSE_FIELDS}


def _fits(row: Mapping[str, Any], types: Mapping[str, str]) -> bool:
    """JSON has numbers of any size, and texts that are no Unicode."""
    bits = {"int": 31, "bigint": 63}
    for name, value in row.items():
        limit = 1 << bits[types.get(name, "bigint")] if isinstance(value, int) else 0
        if limit and not -limit <= value < limit:
            return False
    try:
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True
