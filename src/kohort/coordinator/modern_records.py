"""The records of KIP-848 groups in `__consumer_offsets`, keys 3 to 8 and 16: to and from bytes, as Kafka 4.3 has them.

What a record does to the state is replay.py's business. Topics and partitions are written in their order, which Kafka
leaves to its hashes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from enum import Enum
from functools import lru_cache
from struct import Struct, pack
from sys import intern
from typing import Any, NamedTuple

from kohort.assignors.numbers import Numbers
from kohort.protocol.messages import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from kohort.protocol.wire import DecodeError, short_string, uvarint_bytes

Partitions = Mapping[bytes, Set[int]]
"""Partition numbers by topic id."""
Epochs = Mapping[bytes, Mapping[int, int]]
"""By topic id and partition, the epoch in which the member was given it."""
NOTHING: Any = {}
_CURRENT = Struct(">hiib")


class MemberState(Enum):
    """Where a member is on its way from what it has to its target."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1  # it has to give up partitions, and has not said yet that it did
    UNRELEASED_PARTITIONS = 2  # it waits for partitions that others have not given up
    UNKNOWN = 127  # written by a later version

    __hash__ = object.__hash__


class ClassicMetadata(NamedTuple):
    """Of a member that speaks the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class MemberMetadata(NamedTuple):
    """What a member says of itself."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    regex: str | None = ""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicMetadata | None = None


class CurrentAssignment(NamedTuple):
    """What a member has, and what it is to give up."""

    member_epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Epochs = NOTHING
    pending: Epochs = NOTHING


class GroupEpoch(NamedTuple):
    epoch: int
    metadata_hash: int  # signed


class TargetEpoch(NamedTuple):
    epoch: int
    timestamp_ms: int  # 0: not known


class ResolvedRegex(NamedTuple):
    topics: frozenset[str]
    version: int
    timestamp_ms: int


class ModernChange(NamedTuple):
    """`name` is the member id, or the expression; `value` None is a tombstone."""

    kind: Kind
    group_id: str
    name: str
    value: Any


class Kind(Enum):
    """By the type of their keys."""

    GROUP = 3
    PARTITION_METADATA = 4  # of versions before 4.1: read, and removed
    MEMBER = 5
    TARGET = 6
    TARGET_MEMBER = 7
    CURRENT_MEMBER = 8
    REGEX = 16

    __hash__ = object.__hash__


# ---- values, both ways


def _group_to(value: GroupEpoch) -> Any:
    return ConsumerGroupMetadataValue(epoch=value.epoch, metadata_hash=value.metadata_hash)


def _group_from(v: Any) -> GroupEpoch:
    return GroupEpoch(v.epoch, v.metadata_hash)


def _member_to(value: MemberMetadata) -> Any:
    message = ConsumerGroupMemberMetadataValue(
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        subscribed_topic_names=sorted(value.topics),
        subscribed_topic_regex=value.regex,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        server_assignor=value.server_assignor,
        classic_member_metadata=None,
    )
    if value.classic is not None:
        make = ConsumerGroupMemberMetadataValue.ClassicProtocol
        message.classic_member_metadata = ConsumerGroupMemberMetadataValue.ClassicMemberMetadata(
            session_timeout_ms=value.classic.session_timeout_ms,
            supported_protocols=[make(name=name, metadata=metadata) for name, metadata in value.classic.protocols],
        )
    return message


def _member_from(v: Any) -> MemberMetadata:
    classic = v.classic_member_metadata
    return MemberMetadata(
        v.instance_id,
        v.rack_id,
        v.client_id,
        v.client_host,
        shared_topics(frozenset(v.subscribed_topic_names)),
        v.subscribed_topic_regex,
        v.rebalance_timeout_ms,
        v.server_assignor,
        None
        if classic is None
        else ClassicMetadata(
            classic.session_timeout_ms, tuple((p.name, p.metadata) for p in classic.supported_protocols)
        ),
    )


@lru_cache(maxsize=4_096)
def shared_topics(topics: frozenset[str]) -> frozenset[str]:
    """Members of a group subscribe alike: they share one set."""
    return frozenset(map(intern, topics))


def _target_to(value: TargetEpoch) -> Any:
    return ConsumerGroupTargetAssignmentMetadataValue(
        assignment_epoch=value.epoch, assignment_timestamp=value.timestamp_ms
    )


def _target_from(v: Any) -> TargetEpoch:
    return TargetEpoch(v.assignment_epoch, v.assignment_timestamp)


def _target_member_to(value: Partitions) -> Any:
    make = ConsumerGroupTargetAssignmentMemberValue.TopicPartition
    return ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[make(topic_id=topic_id, partitions=sorted(value[topic_id])) for topic_id in sorted(value)]
    )


def _target_member_from(v: Any) -> Partitions:
    return {row.topic_id: Numbers.of(row.partitions) for row in v.topic_partitions}


def _current_bytes(value: CurrentAssignment) -> bytes:
    """By hand, as it is written for every member whenever a group has a new epoch."""
    head = _CURRENT.pack(0, value.member_epoch, value.previous_epoch, value.state.value)
    return head + _epochs_bytes(value.assigned) + _epochs_bytes(value.pending) + b"\x00"


def _epochs_bytes(epochs: Epochs) -> bytes:
    """Rows of topic id, partitions, and as a tagged field their epochs."""
    if not epochs:
        return b"\x01"
    parts = [uvarint_bytes(len(epochs) + 1)]
    for topic_id in sorted(epochs) if len(epochs) > 1 else epochs:
        of_topic = epochs[topic_id]
        numbers = sorted(of_topic)
        count, layout = uvarint_bytes(len(numbers) + 1), f">{len(numbers)}i"
        since = pack(layout, *map(of_topic.__getitem__, numbers))
        size = uvarint_bytes(len(count) + len(since))
        parts += (topic_id, count, pack(layout, *numbers), b"\x01\x00", size, count, since)
    return b"".join(parts)


def _current_from(v: Any) -> CurrentAssignment:
    state = _STATES.get(v.state, MemberState.UNKNOWN)
    return CurrentAssignment(
        v.member_epoch,
        v.previous_member_epoch,
        state,
        _epochs_from(v.assigned_partitions, v.member_epoch),
        _epochs_from(v.partitions_pending_revocation, v.member_epoch),
    )


_STATES = {state.value: state for state in MemberState}


def _epochs_from(rows: list[Any], member_epoch: int) -> Epochs:
    """Before 4.2 partitions had no epochs of their own."""
    made: dict[bytes, dict[int, int]] = {}
    for row in rows:
        epochs = row.assignment_epochs
        if epochs is None or len(epochs) != len(row.partitions):
            epochs = [max(member_epoch, 0)] * len(row.partitions)
        made[row.topic_id] = dict(zip(row.partitions, epochs, strict=True))
    return made


def _regex_to(value: ResolvedRegex) -> Any:
    return ConsumerGroupRegularExpressionValue(
        topics=sorted(value.topics), version=value.version, timestamp=value.timestamp_ms
    )


def _regex_from(v: Any) -> ResolvedRegex:
    return ResolvedRegex(frozenset(v.topics), v.version, v.timestamp)


class _Codec(NamedTuple):
    key: Any
    named: str  # the second field of the key
    value: Any
    to_bytes: Callable[[Any], bytes]
    from_message: Callable[[Any], Any]


def _by(to_message: Callable[[Any], Any]) -> Callable[[Any], bytes]:
    """Version 0, as the message is defined."""
    return lambda value: b"\x00\x00" + to_message(value).encode(0)


_CODECS: dict[Kind, _Codec] = {
    Kind.GROUP: _Codec(ConsumerGroupMetadataKey, "", ConsumerGroupMetadataValue, _by(_group_to), _group_from),
    Kind.PARTITION_METADATA: _Codec(ConsumerGroupPartitionMetadataKey, "", None, bytes, bytes),
    Kind.MEMBER: _Codec(
        ConsumerGroupMemberMetadataKey, "member_id", ConsumerGroupMemberMetadataValue, _by(_member_to), _member_from
    ),
    Kind.TARGET: _Codec(
        ConsumerGroupTargetAssignmentMetadataKey,
        "",
        ConsumerGroupTargetAssignmentMetadataValue,
        _by(_target_to),
        _target_from,
    ),
    Kind.TARGET_MEMBER: _Codec(
        ConsumerGroupTargetAssignmentMemberKey,
        "member_id",
        ConsumerGroupTargetAssignmentMemberValue,
        _by(_target_member_to),
        _target_member_from,
    ),
    Kind.CURRENT_MEMBER: _Codec(
        ConsumerGroupCurrentMemberAssignmentKey,
        "member_id",
        ConsumerGroupCurrentMemberAssignmentValue,
        _current_bytes,
        _current_from,
    ),
    Kind.REGEX: _Codec(
        ConsumerGroupRegularExpressionKey,
        "regular_expression",
        ConsumerGroupRegularExpressionValue,
        _by(_regex_to),
        _regex_from,
    ),
}
MODERN_KINDS = {kind.value: kind for kind in Kind}
OTHER_GROUPS = frozenset((*range(10, 16), 17, *range(19, 24)))
"""Keys of share and of streams groups."""


@lru_cache(maxsize=4_096)
def _key_prefix(kind: Kind, group_id: str) -> bytes:
    return kind.value.to_bytes(2, "big") + short_string(group_id)


def encode_modern(change: ModernChange) -> tuple[bytes, bytes | None]:
    kind, group_id, name, value = change
    codec = _CODECS[kind]
    key = _key_prefix(kind, group_id)
    if codec.named:
        key += short_string(name)
    return key, None if value is None else codec.to_bytes(value)


def decode_modern(kind: Kind, key: bytes, value: bytes | None) -> ModernChange:
    codec = _CODECS[kind]
    decoded = codec.key.decode(key, 0, 2)
    name = getattr(decoded, codec.named) if codec.named else ""
    if value is None:
        return ModernChange(kind, decoded.group_id, name, None)
    if value[:2] != b"\x00\x00":
        raise DecodeError(f"version {int.from_bytes(value[:2], 'big', signed=True)} of key type {kind.value}")
    if codec.value is None:
        return ModernChange(kind, decoded.group_id, name, True)
    return ModernChange(kind, decoded.group_id, name, codec.from_message(codec.value.decode(value, 0, 2)))
