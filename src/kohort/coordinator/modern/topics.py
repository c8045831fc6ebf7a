"""Topics as groups of KIP-848 see them: the hash of what a group reads, so that it knows when that has changed."""

from __future__ import annotations

from collections.abc import Iterable
from struct import pack

from kohort.coordinator.context import Topics
from kohort.coordinator.modern.xxh3 import xxh3_64

_HASHES: dict[tuple[str, bytes, int, str], int] = {}
_MOST_HASHES = 10_000


def metadata_hash(topics: Topics, names: Iterable[str]) -> int:
    """Kafka's, signed: over the hashes of the topics that exist, in the order of their names; 0 where there is none."""
    hashes = []
    for name in sorted(set(names)):
        found = topics.by_name(name)
        if found is not None:
            hashes.append(topic_hash(name, found[0], found[1], topics.rack))
    if not hashes:
        return 0
    return _signed(xxh3_64(pack(f"<{len(hashes)}Q", *hashes)))


def topic_hash(name: str, topic_id: bytes, partitions: int, rack: str = "") -> int:
    """Of its id, its name, its partitions and the racks of their replicas."""
    known = _HASHES.get((name, topic_id, partitions, rack))
    if known is not None:
        return known
    if len(_HASHES) >= _MOST_HASHES:
        _HASHES.clear()
    data = bytearray(b"\x00" + topic_id[7::-1] + topic_id[:7:-1] + _text(name) + pack("<i", partitions))
    racks = pack("<i", len(rack)) + _text(rack) if rack else b""
    for number in range(partitions):
        data += pack("<i", number) + racks
    made = _HASHES[name, topic_id, partitions, rack] = xxh3_64(bytes(data))
    return made


def _text(text: str) -> bytes:
    data = text.encode("utf-16-le")
    return data + pack("<i", len(data) // 2)


def _signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number
