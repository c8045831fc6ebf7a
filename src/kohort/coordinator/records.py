"""The records of `__consumer_offsets`: their keys and values to and from bytes, byte for byte as Kafka 4.3 writes them.

A key opens with its type (0 and 1 an offset commit, 2 a classic group's metadata, 3 to 8 and 16 groups of KIP-848: see
modern_records.py), a value with its version (offset commits 4, or 1 with an expiry of their own; group metadata 3).
What a record does to the state is replay.py's business.
"""

from dataclasses import dataclass
from functools import lru_cache
from struct import Struct
from struct import error as StructError
from sys import intern
from typing import Any, NamedTuple

from kohort.coordinator.modern_records import (
    MODERN_KINDS,
    OTHER_GROUPS,
    ModernChange,
    decode_modern,
    encode_modern,
)
from kohort.protocol.messages import GroupMetadataKey, GroupMetadataValue, OffsetCommitValue
from kohort.protocol.uuids import ZERO_UUID
from kohort.protocol.wire import DecodeError, short_string, uvarint_bytes

OFFSETS_TOPIC = "__consumer_offsets"
OFFSET_COMMIT_VALUE_VERSION = 4
OFFSET_COMMIT_VALUE_VERSION_WITH_EXPIRY = 1
GROUP_METADATA_VALUE_VERSION = 3
GROUP_METADATA_KEY_TYPE = 2

_SHORT = Struct(">h")
pack_int, unpack_int = Struct(">i").pack, Struct(">i").unpack_from
_OFFSET_V4 = Struct(">hqi")  # version, offset, leader epoch; the metadata follows
_PLAIN_V4 = Struct(">hqiBqBBB16s")  # the same whole, with empty metadata and a topic id: nearly every commit there is
_GROUP_TAIL = Struct(">qi")  # the time of the state, how many members
_MEMBER_TIMEOUTS = Struct(">iii")  # rebalance and session timeout, the length of the subscription
_TAIL_V4 = Struct(">qBBB16s")  # commit time, one tagged field: tag 0, 16 bytes


class UnknownRecord(Exception):
    """A type that this coordinator does not know: to be skipped and counted, never to stop a load."""


class UnreadableRecord(UnknownRecord):
    """A record of a type that this coordinator knows, and that makes no sense: nothing to be skipped in silence."""


class OffsetAndMetadata:
    """A committed offset. -1 stands for no leader epoch and for no expiry of its own."""

    __slots__ = (
        "commit_timestamp_ms",
        "committed_offset",
        "expire_timestamp_ms",
        "leader_epoch",
        "metadata",
        "record_offset",
        "topic_id",
    )

    def __init__(
        self,
        committed_offset: int,
        leader_epoch: int,
        metadata: str,
        commit_timestamp_ms: int,
        expire_timestamp_ms: int,
        topic_id: bytes,
    ) -> None:
        self.committed_offset = committed_offset
        self.leader_epoch = leader_epoch
        self.metadata = metadata
        self.commit_timestamp_ms = commit_timestamp_ms
        self.expire_timestamp_ms = expire_timestamp_ms
        self.topic_id = topic_id
        self.record_offset = -1

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OffsetAndMetadata):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__ if name != "record_offset")

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"OffsetAndMetadata({self.committed_offset}, epoch={self.leader_epoch}, metadata={self.metadata!r})"


class StoredMember(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class StoredGroup(NamedTuple):
    """A group as it stands in the log: what survives the coordinator."""

    protocol_type: str | None
    generation: int
    protocol: str | None
    leader_id: str | None
    state_timestamp_ms: int  # -1 where an old version did not store it
    members: tuple[StoredMember, ...]


@dataclass(slots=True)
class OffsetCommit:
    group_id: str
    topic: str
    partition: int
    value: OffsetAndMetadata | None  # None: the offset is gone


class GroupMetadata(NamedTuple):
    group_id: str
    value: StoredGroup | None  # None: the group is gone


class TransactionalCommit(NamedTuple):
    """An offset that counts when its producer's transaction is committed."""

    commit: OffsetCommit
    producer_id: int


class TransactionEnd(NamedTuple):
    """What a producer has committed counts from here on, or is forgotten. A marker in the log, not a record."""

    producer_id: int
    committed: bool


Change = OffsetCommit | GroupMetadata | ModernChange


# ---- to bytes


def _nullable_string(text: str | None) -> bytes:
    return b"\xff\xff" if text is None else short_string(text)


@lru_cache(maxsize=65_536)
def offset_key_prefix(group_id: str, topic: str) -> bytes:
    return b"\x00\x01" + short_string(group_id) + short_string(topic)


def offset_key(group_id: str, topic: str, partition: int) -> bytes:
    return offset_key_prefix(group_id, topic) + pack_int(partition)


def group_key(group_id: str) -> bytes:
    return b"\x00\x02" + short_string(group_id)


def offset_value(value: OffsetAndMetadata) -> bytes:
    if value.expire_timestamp_ms != -1:
        return _offset_value_with_expiry(value)
    topic_id = value.topic_id
    if not value.metadata and topic_id != ZERO_UUID:
        return _PLAIN_V4.pack(
            4, value.committed_offset, value.leader_epoch, 1, value.commit_timestamp_ms, 1, 0, 16, topic_id
        )
    metadata = value.metadata.encode()
    head = _OFFSET_V4.pack(4, value.committed_offset, value.leader_epoch) + uvarint_bytes(len(metadata) + 1) + metadata
    if topic_id == ZERO_UUID:
        return head + value.commit_timestamp_ms.to_bytes(8, "big", signed=True) + b"\x00"
    return head + _TAIL_V4.pack(value.commit_timestamp_ms, 1, 0, 16, topic_id)


def _offset_value_with_expiry(value: OffsetAndMetadata) -> bytes:
    message = OffsetCommitValue(
        offset=value.committed_offset,
        metadata=value.metadata,
        commit_timestamp=value.commit_timestamp_ms,
        expire_timestamp=value.expire_timestamp_ms,
    )
    return _versioned(message, OFFSET_COMMIT_VALUE_VERSION_WITH_EXPIRY)


def group_value(group: StoredGroup) -> bytes:
    """By hand, as a rebalance of many members spends its time here."""
    protocol_type, generation, protocol, leader_id, timestamp_ms, members = group
    parts = [_SHORT.pack(GROUP_METADATA_VALUE_VERSION), short_string(protocol_type or ""), pack_int(generation)]
    parts += (_nullable_string(protocol), _nullable_string(leader_id), _GROUP_TAIL.pack(timestamp_ms, len(members)))
    for member_id, instance_id, client_id, client_host, rebalance_ms, session_ms, subscription, assignment in members:
        parts += (
            short_string(member_id),
            _nullable_string(instance_id),
            short_string(client_id),
            short_string(client_host),
            _MEMBER_TIMEOUTS.pack(rebalance_ms, session_ms, len(subscription)),
            subscription,
            pack_int(len(assignment)),
            assignment,
        )
    return b"".join(parts)


def encode(change: Change) -> tuple[bytes, bytes | None]:
    if isinstance(change, ModernChange):
        return encode_modern(change)
    value: Any = change.value
    if isinstance(change, OffsetCommit):
        key = offset_key_prefix(change.group_id, change.topic) + pack_int(change.partition)
        return key, None if value is None else offset_value(value)
    return group_key(change.group_id), None if value is None else group_value(value)


def _versioned(message: Any, version: int) -> bytes:
    body: bytes = message.encode(version)
    return _SHORT.pack(version) + body


# ---- from bytes


def decode(key: bytes, value: bytes | None) -> Change:
    """The change a record stands for; UnknownRecord for what belongs to somebody else or to the future."""
    try:
        kind = key[0] << 8 | key[1]
        if kind <= 1:
            group_id, topic, partition = _decode_offset_key(key)
            return OffsetCommit(group_id, topic, partition, None if value is None else _decode_offset_value(value))
        if kind == GROUP_METADATA_KEY_TYPE:
            group_id = GroupMetadataKey.decode(key, 0, 2).group
            return GroupMetadata(group_id, None if value is None else _decode_group_value(value))
        modern = MODERN_KINDS.get(kind)
        if modern is not None:
            return decode_modern(modern, key, value)
    except (IndexError, TypeError, StructError, DecodeError, UnicodeDecodeError) as error:
        raise UnreadableRecord(f"record with key {bytes(key or b'')[:40].hex()} cannot be read: {error}") from error
    whose = ", of share or streams groups" if kind in OTHER_GROUPS else ""
    raise UnknownRecord(f"key type {kind}{whose}")


def _decode_offset_key(key: bytes) -> tuple[str, str, int]:
    """By hand, as a load spends its time here."""
    middle = 4 + (key[2] << 8 | key[3])
    end = middle + 2 + (key[middle] << 8 | key[middle + 1])
    if len(key) != end + 4:
        raise DecodeError(f"an offset key of {len(key)} bytes, {end + 4} expected")
    return intern(str(key[4:middle], "utf-8")), intern(str(key[middle + 2 : end], "utf-8")), unpack_int(key, end)[0]


def _decode_offset_value(value: bytes) -> OffsetAndMetadata:
    if len(value) == 42 and value[1] == 4 and value[0] == 0 and value[14] == 1 and value[23:26] == b"\x01\x00\x10":
        _, offset, epoch, _, commit_ms, _, _, _, topic_id = _PLAIN_V4.unpack(value)
        return OffsetAndMetadata(offset, epoch, "", commit_ms, -1, topic_id)
    version = _SHORT.unpack_from(value)[0]
    if not 0 <= version <= OffsetCommitValue.MAX_VERSION:
        raise UnreadableRecord(f"offset commit value version {version}")
    v = OffsetCommitValue.decode(value, version, 2)
    return OffsetAndMetadata(v.offset, v.leader_epoch, v.metadata, v.commit_timestamp, v.expire_timestamp, v.topic_id)


def _decode_group_value(value: bytes) -> StoredGroup:
    version = _SHORT.unpack_from(value)[0]
    if not 0 <= version <= GroupMetadataValue.MAX_VERSION:
        raise UnreadableRecord(f"group metadata value version {version}")
    v = GroupMetadataValue.decode(value, version, 2)
    _check_group(v)
    members = tuple(
        StoredMember(
            m.member_id,
            m.group_instance_id,
            m.client_id,
            m.client_host,
            m.session_timeout if m.rebalance_timeout == -1 else m.rebalance_timeout,
            m.session_timeout,
            m.subscription,
            m.assignment,
        )
        for m in v.members
    )
    return StoredGroup(v.protocol_type or None, v.generation, v.protocol, v.leader, v.current_state_timestamp, members)


def _check_group(value: GroupMetadataValue) -> None:
    """A group that no coordinator can have written would break this one later, in the middle of a rebalance."""
    ids = [member.member_id for member in value.members]
    instance_ids = [m.group_instance_id for m in value.members if m.group_instance_id is not None]
    if len(set(ids)) < len(ids) or len(set(instance_ids)) < len(instance_ids):
        raise DecodeError("a member is there twice")
    if value.leader is not None and value.leader not in ids:
        raise DecodeError("the leader is not a member")
    if ids and (value.leader is None or value.protocol is None or not value.protocol_type):
        raise DecodeError("members without a leader or a protocol")
    if not 0 <= value.generation < 2**31 - 1:
        raise DecodeError(f"generation {value.generation}")


# ---- which partition


@lru_cache(maxsize=1_024)
def partition_for(group_id: str, partitions: int) -> int:
    """Kafka's `Utils.abs(groupId.hashCode) % partitions`, where abs of the smallest int is 0."""
    return abs_java_hash(group_id) % partitions


def abs_java_hash(text: str) -> int:
    h = java_hash(text)
    return 0 if h == -(1 << 31) else abs(h)


def java_hash(text: str) -> int:
    """Java's `String.hashCode`."""
    h = 0
    if text.isascii():
        for unit in text.encode():
            h = 31 * h + unit & 0xFFFFFFFF
    else:
        units = text.encode("utf-16-be", "surrogatepass")
        for i in range(0, len(units), 2):
            h = (31 * h + (units[i] << 8 | units[i + 1])) & 0xFFFFFFFF
    return h - (1 << 32) if h >= 0x80000000 else h
