"""Every kind of record in `__consumer_offsets` of Kafka 4.3, told by its key: classic, consumer, share, streams groups.

A key opens with its type, a value with its version. Reading never fails: what is unknown or damaged says why. Pure.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from kohort.coordinator.records import UnknownRecord
from kohort.coordinator.records import decode as decode_classic
from kohort.protocol import messages
from kohort.protocol.uuids import to_base64
from kohort.protocol.wire import DecodeError

CLASSIC, CONSUMER, SHARE, STREAMS, UNKNOWN = "classic", "consumer", "share", "streams", "unknown"
_FAMILIES = {"Consumer": CONSUMER, "Share": SHARE, "Streams": STREAMS}


class RecordKind(NamedTuple):
    key_type: int
    name: str
    family: str
    key: Any = None  # message classes, of the groups that came after the classic ones
    value: Any = None


def _modern() -> list[RecordKind]:
    found = []
    for family_name, family in _FAMILIES.items():
        for name in dir(messages):
            if name.startswith(f"{family_name}Group") and name.endswith("Key"):
                kind = name.removesuffix("Key")
                key = getattr(messages, name)
                found.append(RecordKind(key.API_KEY, kind, family, key, getattr(messages, f"{kind}Value")))
    return found


KINDS: dict[int, RecordKind] = {
    0: RecordKind(0, "OffsetCommit", CLASSIC),  # before Kafka 0.8.2
    1: RecordKind(1, "OffsetCommit", CLASSIC),
    2: RecordKind(2, "GroupMetadata", CLASSIC),
} | {kind.key_type: kind for kind in sorted(_modern(), key=lambda kind: kind.key_type)}
MODERN_KEYS = tuple(kind.key_type.to_bytes(2, "big") for kind in KINDS.values() if kind.key is not None)


class KindOfRecord(NamedTuple):
    """`problem` says why a record cannot be read; then its kind is what its key claims to be."""

    key_type: int | None
    kind: str
    family: str
    problem: str | None = None


def kind_of(key: bytes | None, value: bytes | None) -> KindOfRecord:
    """What a record is, and whether all of it can be read."""
    if key is None or len(key) < 2:
        return KindOfRecord(None, "Unknown", UNKNOWN, "a key without a type")
    key_type = int.from_bytes(key[:2], "big")
    kind = KINDS.get(key_type)
    if kind is None:
        return KindOfRecord(key_type, "Unknown", UNKNOWN, f"key type {key_type}")
    problem = _problem_of_classic(key, value) if kind.key is None else modern_row(key, value).get("problem")
    return KindOfRecord(key_type, kind.name, kind.family, problem)


def _problem_of_classic(key: bytes, value: bytes | None) -> str | None:
    try:
        decode_classic(key, value)
    except UnknownRecord as error:
        return str(error)
    return None


def modern_row(key: bytes, value: bytes | None) -> dict[str, Any]:
    """The columns of a record of a consumer, share or streams group; `data` is its value as JSON."""
    kind = KINDS[int.from_bytes(key[:2], "big")]
    row: dict[str, Any] = {"family": kind.family, "kind": kind.name, "tombstone": value is None}
    try:
        named = kind.key.decode(key, 0, 2)
        row |= {"group_id": named.group_id, "member_id": getattr(named, "member_id", None)}
        if value is None:
            return row
        version = int.from_bytes(value[:2], "big", signed=True)
        if len(value) < 2 or not kind.value.MIN_VERSION <= version <= kind.value.MAX_VERSION:
            raise DecodeError(f"version {version}")
        stored = kind.value.decode(value, version, 2)
    except (DecodeError, ValueError, IndexError) as error:
        return row | {"problem": f"{kind.name} cannot be read: {error}"}
    plain = to_plain(stored)
    if (regex := getattr(named, "regular_expression", None)) is not None:
        plain["regular_expression"] = regex  # the key has it alone
    epoch = next((plain[name] for name in ("epoch", "assignment_epoch", "member_epoch") if name in plain), None)
    return row | {"epoch": epoch, "data": json.dumps(plain)}


def to_plain(value: Any, name: str = "") -> Any:
    """A message as JSON values: uuids as Kafka writes them, other bytes as hexadecimal digits."""
    if isinstance(value, bytes | bytearray | memoryview):
        return to_base64(bytes(value)) if name.endswith("_id") else bytes(value).hex()
    if isinstance(value, list | tuple):
        return [to_plain(item, name) for item in value]
    if isinstance(value, messages.Struct):
        return {field: to_plain(getattr(value, field), field) for field in value.__slots__}
    return value
