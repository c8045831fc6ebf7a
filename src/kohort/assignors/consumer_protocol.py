"""Kafka's ConsumerProtocol, versions 0 to 3: the bytes of subscriptions and assignments inside JoinGroup and SyncGroup.

Written by hand and not with the message codec: a leader decodes and encodes one of these for every member at every
rebalance, and the assignors depend on nothing else. Newer versions are read as version 3, which Kafka promises to work.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct, error, pack

from kohort.assignors.topic_partitions import (
    NOTHING,
    ConsumerProtocolError,
    Decoder,
    Encoder,
    decode_string,
    encode_string,
    encode_topic_partitions,
)
from kohort.assignors.types import DEFAULT_GENERATION, Assignment, Subscription

__all__ = [
    "HIGHEST_VERSION",
    "LOWEST_VERSION",
    "PROTOCOL_TYPE",
    "ConsumerProtocolError",
    "decode_assignment",
    "decode_subscription",
    "decode_subscriptions",
    "encode_assignment",
    "encode_subscription",
]

PROTOCOL_TYPE = "consumer"
LOWEST_VERSION = 0
HIGHEST_VERSION = 3

_VERSIONS = [version.to_bytes(2, "big") for version in range(HIGHEST_VERSION + 1)]
_INT16 = Struct(">h").unpack_from
_INT32 = Struct(">i").unpack_from


def encode_subscription(subscription: Subscription, version: int = HIGHEST_VERSION) -> bytes:
    version = _known_version(version)
    topics = sorted(subscription.topics)
    parts = [pack(">hi", version, len(topics)), *map(encode_string, topics), _encode_bytes(subscription.user_data)]
    if version >= 1:
        parts.append(encode_topic_partitions(subscription.owned_partitions))
    if version >= 2:
        parts.append(pack(">i", subscription.generation_id))
    if version >= 3:
        rack_id = subscription.rack_id
        parts.append(b"\xff\xff" if rack_id is None else encode_string(rack_id))
    return b"".join(parts)


def decode_subscription(data: bytes) -> Subscription:
    return next(iter(decode_subscriptions({"": data}).values()))


def decode_subscriptions(metadata: Mapping[str, bytes]) -> dict[str, Subscription]:
    """The subscriptions of a whole group by member id. Members with the same topics share one tuple of them."""
    decoded = {}
    decoder = Decoder()
    head: bytes | None = None
    topics: tuple[str, ...] = ()
    version = 0
    for member_id, data in metadata.items():
        data = bytes(data)
        try:
            if head is None or not data.startswith(head):
                version = _known_version(_INT16(data, 0)[0])
                topics, pos = _decode_strings(data, 2)
                head = data[:pos]
            decoded[member_id] = _decode_after_topics(data, len(head), version, topics, decoder)
        except (error, UnicodeDecodeError) as e:
            raise ConsumerProtocolError(f"malformed subscription of member {member_id!r}: {e}") from None
    return decoded


def _decode_after_topics(
    data: bytes, pos: int, version: int, topics: tuple[str, ...], decoder: Decoder
) -> Subscription:
    user_data, pos = _decode_bytes(data, pos)
    owned, generation_id, rack_id = NOTHING, DEFAULT_GENERATION, None
    if version >= 1:
        owned, pos = decoder.decode(data, pos)
    if version >= 2:
        (generation_id,) = _INT32(data, pos)
        pos += 4
    if version >= 3 and _INT16(data, pos)[0] >= 0:
        rack_id, pos = decode_string(data, pos)
    return Subscription(topics, user_data, owned, generation_id, rack_id or None)


def encode_assignment(assignment: Assignment, version: int = HIGHEST_VERSION, encoder: Encoder | None = None) -> bytes:
    """With one `encoder` for the whole group, members that get alike are encoded faster."""
    partitions = (encoder or Encoder()).encode(assignment.partitions)
    return _VERSIONS[_known_version(version)] + partitions + _encode_bytes(assignment.user_data)


def decode_assignment(data: bytes) -> Assignment:
    """An empty buffer is an empty assignment: what a member gets that joined after the leader had assigned."""
    data = bytes(data)
    if not data:
        return Assignment({})
    try:
        _known_version(_INT16(data, 0)[0])
        partitions, pos = Decoder().decode(data, 2)
        user_data, _ = _decode_bytes(data, pos)
    except (error, UnicodeDecodeError) as e:
        raise ConsumerProtocolError(f"malformed assignment: {e}") from None
    return Assignment(partitions, user_data)


def _decode_strings(data: bytes, pos: int) -> tuple[tuple[str, ...], int]:
    (count,) = _INT32(data, pos)
    pos += 4
    if not 0 <= count <= len(data):
        raise ConsumerProtocolError(f"an array of {count} topics")
    strings = []
    for _ in range(count):
        string, pos = decode_string(data, pos)
        strings.append(string)
    return tuple(strings), pos


def _encode_bytes(value: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if value is None else len(value).to_bytes(4, "big") + value


def _decode_bytes(data: bytes, pos: int) -> tuple[bytes | None, int]:
    (size,) = _INT32(data, pos)
    pos += 4
    if size < 0:
        return None, pos
    if pos + size > len(data):
        raise ConsumerProtocolError(f"{size} bytes of user data at {pos} in {len(data)} bytes")
    return data[pos : pos + size], pos + size


def _known_version(version: int) -> int:
    if version < LOWEST_VERSION:
        raise ConsumerProtocolError(f"unsupported version {version} of the consumer protocol")
    return min(version, HIGHEST_VERSION)
