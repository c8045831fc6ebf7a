"""Partitions by topic on the wire: an array of (topic, array of int32), in subscriptions, assignments and sticky data.

Members of a group mostly have the same number of partitions of the same topics. A `Shape` is such a pattern compiled to
one `struct` call, so that all members after the second cost no Python step per topic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from struct import Struct, pack, unpack_from

Partitions = Mapping[str, Sequence[int]]

_INT16 = Struct(">h").unpack_from
_INT32 = Struct(">i").unpack_from
_ONE = Struct(">ii").pack


class ConsumerProtocolError(ValueError):
    """Bytes that are no subscription or assignment, or a value that does not fit into one."""


class Shape:
    """Topics and how many partitions of each."""

    def __init__(self, topics: tuple[str, ...], counts: tuple[int, ...]) -> None:
        self.topics = topics
        self.counts = counts
        heads = [encode_string(t) + count.to_bytes(4, "big") for t, count in zip(topics, counts, strict=True)]
        heads[0] = len(topics).to_bytes(4, "big") + heads[0]
        self._heads = tuple(heads)
        self._struct = Struct(">" + "".join(f"{len(h)}s{count}i" for h, count in zip(heads, counts, strict=True)))
        self._even = counts[0] if len(set(counts)) == 1 else None

    def decode(self, data: bytes, pos: int) -> tuple[dict[str, tuple[int, ...]], int] | None:
        """None if what is at `pos` has another shape."""
        end = pos + self._struct.size
        if end > len(data) or not data.startswith(self._heads[0], pos):
            return None
        values = self._struct.unpack_from(data, pos)
        if self._even:
            step = self._even + 1
            if values[::step] != self._heads:
                return None
            return dict(
                zip(self.topics, zip(*[values[i::step] for i in range(1, step)], strict=True), strict=True)
            ), end
        partitions = {}
        at = 0
        for topic, count, head in zip(self.topics, self.counts, self._heads, strict=True):
            if values[at] != head:
                return None
            partitions[topic] = values[at + 1 : at + 1 + count]
            at += 1 + count
        return partitions, end

    def encode(self, numbers: Sequence[Sequence[int]]) -> bytes:
        if self._even:
            step = self._even + 1
            values: list[object] = [None] * (step * len(self.topics))
            values[::step] = self._heads
            flat = list(chain.from_iterable(numbers))
            for i in range(1, step):
                values[i::step] = flat[i - 1 :: step - 1]
        else:
            values = []
            for head, ones in zip(self._heads, numbers, strict=True):
                values.append(head)
                values += ones
        return self._struct.pack(*values)


class Decoder:
    """Decodes one after the other, and tries the shape that was seen last first."""

    def __init__(self) -> None:
        self._shape: Shape | None = None
        self._seen: tuple[tuple[str, ...], tuple[int, ...]] | None = None

    def decode(self, data: bytes, pos: int) -> tuple[dict[str, tuple[int, ...]], int]:
        """The partitions at `pos` and the position after them."""
        if self._shape is not None:
            decoded = self._shape.decode(data, pos)
            if decoded is not None:
                return decoded
        partitions, end = decode_topic_partitions(data, pos)
        if len(partitions) > 1:
            seen = tuple(partitions), tuple(map(len, partitions.values()))
            if seen == self._seen and encoded_size(partitions) == end - pos:
                self._shape = Shape(*seen)
            self._seen = seen
        return partitions, end


class Encoder:
    """Encodes one after the other; a shape that comes again is compiled."""

    def __init__(self) -> None:
        self._shapes: dict[tuple[tuple[str, ...], tuple[int, ...]], Shape | None] = {}
        self._names: dict[str, bytes] = {}

    def encode(self, partitions: Partitions) -> bytes:
        if len(partitions) > 1:
            topics, numbers = tuple(partitions), partitions.values()
            key = topics, tuple(map(len, numbers))
            if key in self._shapes:
                shape = self._shapes[key]
                if shape is None:
                    shape = self._shapes[key] = Shape(*key)
                return shape.encode(numbers)
            self._shapes[key] = None
        return self._encode_plainly(partitions)

    def _encode_plainly(self, partitions: Partitions) -> bytes:
        names = self._names
        chunks = [pack(">i", len(partitions))]
        for topic, numbers in partitions.items():
            name = names.get(topic)
            if name is None:
                name = names[topic] = encode_string(topic)
            chunks.append(name)
            count = len(numbers)
            chunks.append(_ONE(1, numbers[0]) if count == 1 else pack(f">{count + 1}i", count, *numbers))
        return b"".join(chunks)


def encode_topic_partitions(partitions: Partitions) -> bytes:
    return Encoder().encode(partitions)


def encoded_size(partitions: Partitions) -> int:
    return 4 + sum(6 + len(topic.encode()) + 4 * len(numbers) for topic, numbers in partitions.items())


def decode_topic_partitions(data: bytes, pos: int) -> tuple[dict[str, tuple[int, ...]], int]:
    """The partitions at `pos` and the position after them. A topic that is listed twice has its partitions joined."""
    (topics,) = _INT32(data, pos)
    pos += 4
    if topics < 0:
        raise ConsumerProtocolError(f"an array of {topics} topics")
    partitions: dict[str, tuple[int, ...]] = {}
    for _ in range(topics):
        topic, pos = decode_string(data, pos)
        (count,) = _INT32(data, pos)
        pos += 4
        if not 0 <= count <= (len(data) - pos) // 4:
            raise ConsumerProtocolError(f"an array of {count} partitions of topic {topic!r}")
        numbers = _INT32(data, pos) if count == 1 else unpack_from(f">{count}i", data, pos)
        partitions[topic] = partitions[topic] + numbers if topic in partitions else numbers
        pos += 4 * count
    return partitions, pos


def encode_string(value: str) -> bytes:
    data = value.encode()
    if len(data) > 0x7FFF:
        raise ConsumerProtocolError(f"a string of {len(data)} bytes, at most 32767 fit")
    return len(data).to_bytes(2, "big") + data


def decode_string(data: bytes, pos: int) -> tuple[str, int]:
    (size,) = _INT16(data, pos)
    start = pos + 2
    end = start + size
    if size < 0 or end > len(data):
        raise ConsumerProtocolError(f"a string of {size} bytes at {pos} in {len(data)} bytes")
    return data[start:end].decode(), end
