"""Which partition a record goes to, as Kafka's default partitioner decides: murmur2 of the key, else sticky. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import unpack_from

from kohort.records import kernel

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The unsigned 32-bit murmur2 with Kafka's seed."""
    length = len(data)
    h = _SEED ^ length
    words = length >> 2
    for k in unpack_from(f"<{words}I", data):
        k = k * _M & _MASK
        k ^= k >> 24
        h = (h * _M & _MASK) ^ (k * _M & _MASK)
    tail = data[words << 2 :]
    if tail:
        h = (h ^ int.from_bytes(tail, "little")) * _M & _MASK
    h ^= h >> 13
    h = h * _M & _MASK
    return h ^ h >> 15


def partition_for_key(key: bytes, partitions: int) -> int:
    """The partition of a keyed record: equal keys, equal partitions, in every Kafka client."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def key_partitioner() -> Callable[[bytes, int], int]:
    """`partition_for_key`, in C where the kernel was built."""
    loaded = kernel.load()
    of_key = None if loaded is None else loaded.partition_of
    if of_key is None:
        return partition_for_key
    return lambda key, partitions: of_key(key, len(key), partitions)


class Sticky:
    """Records of a topic without a key stay on one partition until a batch is full, then move on (KIP-794)."""

    __slots__ = ("_batch_size", "_bytes", "_partition", "_uniform")

    def __init__(self, batch_size: int, uniform: Callable[[], float]) -> None:
        self._batch_size = max(batch_size, 1)
        self._uniform = uniform
        self._partition: int | None = None
        self._bytes = 0

    def partition(self, available: Sequence[int], size: int) -> int:
        """`available`: partitions that have a leader, or all where none has."""
        if self._partition is None or self._bytes >= self._batch_size or self._partition not in available:
            others = [p for p in available if p != self._partition] or list(available)
            self._partition = others[int(self._uniform() * len(others))]
            self._bytes = 0
        self._bytes += size
        return self._partition
