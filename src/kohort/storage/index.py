"""The sparse indexes of one segment, in memory and in Kafka's byte form. No files here.

An entry of the offset index is (relative offset, file position), 8 bytes; of the time index (timestamp, relative
offset), 12 bytes; both big-endian and increasing. They are kept as parallel arrays and searched with bisect.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right

_TIME_ENTRY = struct.Struct(">qi")
OFFSET_ENTRY_SIZE = 8
TIME_ENTRY_SIZE = _TIME_ENTRY.size
_SWAP = sys.byteorder == "little"


class OffsetIndex:
    """Where to start looking for an offset. Positions are those of whole batches; offsets their *last* offsets."""

    __slots__ = ("base_offset", "offsets", "positions")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.offsets = array("I")  # relative to base_offset
        self.positions = array("I")

    def __len__(self) -> int:
        return len(self.offsets)

    def append(self, last_offset: int, position: int) -> None:
        self.offsets.append(last_offset - self.base_offset)
        self.positions.append(position)

    def lookup(self, offset: int) -> int:
        """A batch position at or before the batch that holds `offset`."""
        slot = bisect_right(self.offsets, max(offset - self.base_offset, 0)) - 1
        return self.positions[slot] if slot >= 0 else 0

    def floor_position(self, position: int) -> int:
        """The last indexed batch position that is not beyond `position`; 0 where there is none."""
        slot = bisect_right(self.positions, position) - 1
        return self.positions[slot] if slot >= 0 else 0

    def encode(self, first_slot: int = 0) -> bytes:
        pairs = array("I", bytes(OFFSET_ENTRY_SIZE * (len(self.offsets) - first_slot)))
        pairs[::2] = self.offsets[first_slot:]
        pairs[1::2] = self.positions[first_slot:]
        if _SWAP:
            pairs.byteswap()
        return pairs.tobytes()

    @classmethod
    def decode(cls, base_offset: int, data: bytes) -> OffsetIndex:
        """Reads a file; ValueError where it cannot be one (the caller rebuilds it from the log)."""
        if len(data) % OFFSET_ENTRY_SIZE:
            raise ValueError(f"an offset index of {len(data)} bytes")
        pairs = array("I")
        pairs.frombytes(data)
        if _SWAP:
            pairs.byteswap()
        index = cls(base_offset)
        index.offsets, index.positions = pairs[::2], pairs[1::2]
        # Kafka preallocates the active segment's index: after its crash zeroes follow the entries.
        while len(index.positions) and not index.positions[-1]:
            index.offsets.pop()
            index.positions.pop()
        return index


class TimeIndex:
    """The largest timestamp seen up to an offset."""

    __slots__ = ("base_offset", "offsets", "timestamps")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.timestamps = array("q")
        self.offsets = array("I")

    def __len__(self) -> int:
        return len(self.timestamps)

    def maybe_append(self, timestamp: int, offset: int) -> None:
        if timestamp > (self.timestamps[-1] if self.timestamps else -1):
            self.timestamps.append(timestamp)
            self.offsets.append(offset - self.base_offset)

    def lookup(self, timestamp: int) -> int:
        """An offset before which every record is older than `timestamp`."""
        slot = bisect_left(self.timestamps, timestamp) - 1
        return self.base_offset + self.offsets[slot] if slot >= 0 else self.base_offset

    def last(self) -> tuple[int, int]:
        """The last entry (timestamp, offset); (-1, base offset) where there is none."""
        if not self.timestamps:
            return -1, self.base_offset
        return self.timestamps[-1], self.base_offset + self.offsets[-1]

    def encode(self, first_slot: int = 0) -> bytes:
        pack = _TIME_ENTRY.pack
        return b"".join(pack(self.timestamps[i], self.offsets[i]) for i in range(first_slot, len(self.timestamps)))

    @classmethod
    def decode(cls, base_offset: int, data: bytes) -> TimeIndex:
        if len(data) % TIME_ENTRY_SIZE:
            raise ValueError(f"a time index of {len(data)} bytes")
        index = cls(base_offset)
        last = -1
        for timestamp, offset in _TIME_ENTRY.iter_unpack(data):
            if timestamp <= last or offset < 0:
                if timestamp == 0 and offset == 0:
                    break
                raise ValueError("a time index whose timestamps do not increase")
            index.timestamps.append(timestamp)
            index.offsets.append(offset)
            last = timestamp
        return index
