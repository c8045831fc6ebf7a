"""Records of `__consumer_offsets` to plain rows, with the coordinator's own decoder. No Spark and no Arrow in here.

What cannot be read becomes a row that says why under `problem`: a history has gaps, it never fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

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
    "protocol": "string",
    "leader_id": "string",
    "replaced_member_id": "string",
    "operation": "string",
    "error": "string",
    "state": "string",
    "offsets": "int",
    "topics": "array<string>",
    "partitions": "int",
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
