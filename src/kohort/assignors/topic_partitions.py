"""Partitions by topic, in memory and on the wire: an array of (topic, array of int32).

Members of a group mostly have as many partitions of the same topics as others. Such a pattern is a `Shape`; what comes
in a known shape is one tuple of numbers and takes one `struct` call, not a Python step for each topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from struct import Struct, pack, unpack_from
from typing import Any

_INT16 = Struct(">h").unpack_from
_INT32 = Struct(">i").unpack_from


class ConsumerProtocolError(ValueError):
    """Bytes that are no subscription or assignment, or a value that does not fit into one."""


class Shape:
    """Topics and how many partitions of each. Compiled when it is used for the second time."""

    def __init__(self, topics: tuple[str, ...], counts: tuple[int, ...]) -> None:
        self.topics = topics
        self.counts = counts
        self.total = sum(counts)
        self._spans: dict[str, tuple[int, int]] | None = None
        self._heads: tuple[bytes, ...] | None = None
        self._layout: _Layout | None = None

    def span(self, topic: str) -> tuple[int, int]:
        """Where the numbers of a topic start and end."""
        if self._spans is None:
            self._spans = {}
            start = 0
            for name, count in zip(self.topics, self.counts, strict=True):
                self._spans[name] = start, start + count
                start += count
        return self._spans[topic]

    def encode(self, numbers: Sequence[int]) -> bytes:
        heads = self._heads
        if heads is None:
            heads = self._heads = self._make_heads()
        elif self._layout is None and self._worth_compiling():
            self._layout = _Layout(heads, self.counts)
        layout = self._layout
        if layout is not None:
            return layout.struct.pack(*layout.interleave((*heads, *numbers)))
        data = pack(f">{self.total}i", *numbers)
        if len(heads) == 1:
            return heads[0] + data
        chunks = []
        start = 0
        for head, count in zip(heads, self.counts, strict=True):
            chunks.append(head)
            chunks.append(data[start : start + 4 * count])
            start += 4 * count
        return b"".join(chunks) or b"\0\0\0\0"

    def decode(self, data: bytes, pos: int) -> tuple[tuple[int, ...], int] | None:
        """The numbers at `pos` and the position after them, or None if what is there has another shape."""
        layout = self._layout
        if layout is None:
            if not self._worth_compiling():
                return None
            layout = self._layout = _Layout(self._make_heads(), self.counts)
        end = pos + layout.struct.size
        if end > len(data) or not data.startswith(layout.heads[0], pos):
            return None
        values = layout.struct.unpack_from(data, pos)
        return (layout.pick_numbers(values), end) if layout.pick_heads(values) == layout.heads else None

    def _worth_compiling(self) -> bool:
        return len(self.topics) > 1 and self.total > 1

    def _make_heads(self) -> tuple[bytes, ...]:
        heads = [encode_string(t) + count.to_bytes(4, "big") for t, count in zip(self.topics, self.counts, strict=True)]
        if heads:
            heads[0] = len(heads).to_bytes(4, "big") + heads[0]
        return tuple(heads)


class _Layout:
    """A shape as one struct: the bytes before each topic's numbers, and where both are among its values."""

    __slots__ = ("heads", "interleave", "pick_heads", "pick_numbers", "struct")

    def __init__(self, heads: tuple[bytes, ...], counts: tuple[int, ...]) -> None:
        self.heads = heads
        pairs = zip(heads, counts, strict=True)
        self.struct = Struct(">" + "".join(f"{len(head)}s{count}i" for head, count in pairs))
        heads_at: list[int] = []
        numbers_at: list[int] = []
        order: list[int] = []
        for i, count in enumerate(counts):
            heads_at.append(len(order))
            order.append(i)
            for _ in range(count):
                order.append(len(counts) + len(numbers_at))
                numbers_at.append(len(order) - 1)
        self.pick_heads: Callable[[tuple[Any, ...]], Any] = itemgetter(*heads_at)
        self.pick_numbers: Callable[[tuple[Any, ...]], Any] = itemgetter(*numbers_at)
        self.interleave: Callable[[tuple[Any, ...]], Any] = itemgetter(*order)


class TopicPartitions(Mapping[str, tuple[int, ...]]):
    """Partition numbers by topic: a read-only mapping, kept as one flat tuple."""

    __slots__ = ("numbers", "shape")

    def __init__(self, shape: Shape, numbers: tuple[int, ...]) -> None:
        self.shape = shape
        self.numbers = numbers

    def __getitem__(self, topic: str) -> tuple[int, ...]:
        start, end = self.shape.span(topic)
        return self.numbers[start:end]

    def __iter__(self) -> Iterator[str]:
        return iter(self.shape.topics)

    def __len__(self) -> int:
        return len(self.shape.topics)

    def __repr__(self) -> str:
        return repr(dict(self))

    def __reduce__(self) -> tuple[object, ...]:
        return flat, (dict(self),)


class Shapes:
    """The shapes met so far, so that the same one is one object."""

    def __init__(self) -> None:
        self._known: dict[tuple[tuple[str, ...], tuple[int, ...]], Shape] = {}

    def get(self, topics: Iterable[str], counts: Iterable[int]) -> Shape:
        """The one object for these topics and counts."""
        key = tuple(topics), tuple(counts)
        shape = self._known.get(key)
        if shape is None:
            shape = self._known[key] = Shape(*key)
        return shape

    def flat(self, partitions: Mapping[str, Sequence[int]]) -> TopicPartitions:
        """Any mapping in the flat form."""
        if isinstance(partitions, TopicPartitions):
            return partitions
        numbers = partitions.values()
        return TopicPartitions(self.get(partitions, map(len, numbers)), tuple(chain.from_iterable(numbers)))


def flat(partitions: Mapping[str, Sequence[int]]) -> TopicPartitions:
    return Shapes().flat(partitions)


NOTHING = TopicPartitions(Shape((), ()), ())


class Decoder:
    """Decodes one after the other, and tries the shape that came last first."""

    def __init__(self) -> None:
        self._shapes = Shapes()
        self._last: Shape | None = None
        self._guess: Shape | None = None

    def decode(self, data: bytes, pos: int) -> tuple[TopicPartitions, int]:
        """The partitions at `pos` and the position after them."""
        guess = self._guess
        if guess is not None:
            found = guess.decode(data, pos)
            if found is not None:
                return TopicPartitions(guess, found[0]), found[1]
        (size,) = _INT32(data, pos)
        if size == 0:
            return NOTHING, pos + 4
        partitions, end = self._decode_plainly(data, pos + 4, size)
        if partitions.shape is self._last:
            self._guess = self._last
        self._last = partitions.shape
        return partitions, end

    def _decode_plainly(self, data: bytes, pos: int, size: int) -> tuple[TopicPartitions, int]:
        if size < 0:
            raise ConsumerProtocolError(f"an array of {size} topics")
        topics, counts = [], []
        numbers: list[int] = []
        for _ in range(size):
            topic, pos = decode_string(data, pos)
            (count,) = _INT32(data, pos)
            pos += 4
            if not 0 <= count <= (len(data) - pos) // 4:
                raise ConsumerProtocolError(f"an array of {count} partitions of topic {topic!r}")
            topics.append(topic)
            counts.append(count)
            numbers += _INT32(data, pos) if count == 1 else unpack_from(f">{count}i", data, pos)
            pos += 4 * count
        if len(set(topics)) < len(topics):
            return self._merged(topics, counts, numbers), pos
        return TopicPartitions(self._shapes.get(topics, counts), tuple(numbers)), pos

    def _merged(self, topics: list[str], counts: list[int], numbers: list[int]) -> TopicPartitions:
        """A topic may come more than once."""
        partitions: dict[str, list[int]] = {topic: [] for topic in topics}
        left = iter(numbers)
        for topic, count in zip(topics, counts, strict=True):
            partitions[topic] += [next(left) for _ in range(count)]
        return self._shapes.flat(partitions)


class Encoder:
    """Encodes one after the other, faster where shapes come again."""

    def __init__(self) -> None:
        self._shapes = Shapes()
        self._single_heads: dict[str, bytes] = {}

    def encode(self, partitions: Mapping[str, Sequence[int]]) -> bytes:
        if not isinstance(partitions, TopicPartitions):
            if len(partitions) == 1:
                return self._encode_single(partitions)
            partitions = self._shapes.flat(partitions)
        return partitions.shape.encode(partitions.numbers)

    def _encode_single(self, partitions: Mapping[str, Sequence[int]]) -> bytes:
        ((topic, numbers),) = partitions.items()
        if topic not in self._single_heads:
            self._single_heads[topic] = b"\0\0\0\1" + encode_string(topic)
        count = len(numbers)
        return self._single_heads[topic] + pack(f">{count + 1}i", count, *numbers)


def encode_topic_partitions(partitions: Mapping[str, Sequence[int]]) -> bytes:
    return Encoder().encode(partitions)


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
