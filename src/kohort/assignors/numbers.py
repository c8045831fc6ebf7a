"""Partition numbers of a topic as an immutable set that is kept in order: a range where they are one, else a tuple.

A target of 100,000 partitions is mostly ranges: making, cutting and comparing those costs next to nothing, where
as many hashed integers would be most of the work.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Set

_MOST_KEPT = 1 << 14
"""Masks of larger numbers are made anew each time: a member would keep kilobytes."""


class Numbers(Set[int]):
    """Equal to any set of the same numbers."""

    __slots__ = ("_mask", "ordered")

    def __init__(self, ordered: range | tuple[int, ...]) -> None:
        """`ordered` is ascending and without gaps where it is a range, ascending where it is a tuple."""
        if type(ordered) is tuple and ordered and ordered[-1] - ordered[0] == len(ordered) - 1:
            ordered = range(ordered[0], ordered[-1] + 1)
        self.ordered = ordered
        self._mask = -1

    @classmethod
    def of(cls, numbers: Iterable[int]) -> Numbers:
        return numbers if isinstance(numbers, Numbers) else cls(tuple(sorted(set(numbers))))

    @property
    def mask(self) -> int:
        """A bit for each number, of which none is negative."""
        ordered = self.ordered
        if type(ordered) is range:
            return ((1 << len(ordered)) - 1) << ordered.start
        if self._mask >= 0 or not ordered:
            return max(self._mask, 0)
        bits = bytearray((ordered[-1] >> 3) + 1)
        for number in ordered:
            bits[number >> 3] |= 1 << (number & 7)
        mask = int.from_bytes(bits, "little")
        if ordered[-1] < _MOST_KEPT:
            self._mask = mask
        return mask

    def with_these(self, others: Iterable[int]) -> Numbers:
        return Numbers(tuple(sorted({*self.ordered, *others})))

    def __contains__(self, number: object) -> bool:
        ordered = self.ordered
        if type(ordered) is range or not isinstance(number, int):
            return number in ordered
        place = bisect_left(ordered, number)
        return place < len(ordered) and ordered[place] == number

    def __iter__(self) -> Iterator[int]:
        return iter(self.ordered)

    def __len__(self) -> int:
        return len(self.ordered)

    def __eq__(self, other: object) -> bool:
        if type(other) is Numbers:
            return self.ordered == other.ordered
        return super().__eq__(other)

    def __hash__(self) -> int:
        return self._hash()

    @classmethod
    def _from_iterable(cls, it: Iterable[int]) -> Set[int]:  # type: ignore[override]
        return frozenset(it)

    def __repr__(self) -> str:
        return f"Numbers({list(self.ordered)})"


def numbers_in(mask: int) -> tuple[int, ...]:
    """The places of its bits, ascending."""
    return tuple(place for place, bit in enumerate(bin(mask)[:1:-1]) if bit == "1")
