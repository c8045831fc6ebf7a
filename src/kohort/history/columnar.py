"""Offset commits of `__consumer_offsets` from Arrow columns to Arrow columns, with no Python object a record.

Every record that is laid out as Kafka lays it out is decoded by numpy, whatever its version; what is odd in any way is
left to decoding.py, record by record, which also says what is wrong with it. The result is the same for both.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kohort.records import kernel as _kernel
from kohort.records.kernel import pinned

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_SHORTEST = 10  # bytes of a key: its type, two empty strings, a partition
_TOPIC_ID_TAIL = 27  # of a value of version 4: time, one tagged field, its tag and size, a topic id


class _Column:
    """A binary column: where its rows are in one buffer, and numbers at any place of that."""

    def __init__(self, array: pa.Array) -> None:
        array = array.cast(pa.binary())
        _, offsets, data = array.buffers()
        rows = len(array)
        bounds = np.frombuffer(offsets, np.int32, rows + 1, 4 * array.offset).astype(np.int64)
        self.start, self.end = bounds[:-1], bounds[1:]
        self.present: Flags = np.asarray(array.is_valid().to_numpy(zero_copy_only=False), np.bool_)
        self.data = data if data is not None and data.size else pa.py_buffer(b"")
        # Bytes beyond the end make every place readable; what is read there is never used.
        padded = np.zeros(self.data.size + 32, np.uint8)
        padded[: self.data.size] = np.frombuffer(self.data, np.uint8)
        self.bytes = padded

    def number(self, at: Ints, size: int) -> Ints:
        """Big-endian, signed; `at` lies within the buffer."""
        view = np.ndarray((len(self.bytes) - size + 1,), f">i{size}", self.bytes.data, strides=(1,))
        return view[at].astype(np.int64)

    def byte(self, at: Ints) -> Ints:
        return self.bytes[at].astype(np.int64)

    def texts(self, start: Ints, end: Ints, given: Flags) -> pa.Array:
        """Fields as an Arrow column of bytes, null where none is given."""
        sizes = np.where(given, end - start, 0)
        offsets = np.zeros(len(start) + 1, np.int32)
        np.cumsum(sizes, out=offsets[1:])
        data = self._gathered(np.where(given, start, 0), sizes, offsets)
        nulls = int(len(given) - given.sum())
        valid = pa.py_buffer(np.packbits(given, bitorder="little")) if nulls else None
        return pa.Array.from_buffers(pa.binary(), len(start), [valid, pa.py_buffer(offsets), pa.py_buffer(data)], nulls)

    def _gathered(self, start: Ints, sizes: Ints, offsets: npt.NDArray[np.int32]) -> npt.NDArray[np.uint8]:
        total = int(offsets[-1])
        kernel = _kernel.load()
        if kernel is None:
            shift = np.repeat(start - offsets[:-1], sizes)
            return self.bytes[shift + np.arange(total)]
        data, filled = np.empty(total, np.uint8), np.zeros(len(start) + 1, np.int32)
        first, last = start.astype(np.int32), (start + sizes).astype(np.int32)
        with pinned(self.bytes.data) as address:
            done = kernel.gather(
                address, len(self.bytes), first.ctypes.data, last.ctypes.data, len(start), 0,
                filled.ctypes.data, data.ctypes.data, 0, total, None,
            )  # fmt: skip
        assert done == total, done
        return data


class Commits(NamedTuple):
    """Columns of decoding.COMMIT_COLUMNS, but for `problem`; `odd` rows are not decoded and mean nothing."""

    key_type: Ints
    group_id: pa.Array
    topic: pa.Array
    partition: Ints
    offset: Ints
    leader_epoch: Ints
    metadata: pa.Array
    commit_ms: Ints
    expire_ms: Ints
    tombstone: Flags
    odd: Flags


def decode(keys: pa.Array, values: pa.Array) -> Commits:
    key, value = _Column(keys), _Column(values)
    where, fits = _keys(key)
    read, plain = _values(value)
    live = value.present
    fits &= plain | ~live
    group_id = key.texts(where["group_start"], where["group_end"], fits)
    topic = key.texts(where["topic_start"], where["topic_end"], fits)
    metadata = value.texts(read["metadata_start"], read["metadata_end"], fits & live)
    texts, fits = _texts([group_id, topic, metadata], fits)
    return Commits(
        where["key_type"], texts[0], texts[1], where["partition"],
        read["offset"], read["leader_epoch"], texts[2], read["commit_ms"], read["expire_ms"], ~live, ~fits,
    )  # fmt: skip


def _keys(key: _Column) -> tuple[dict[str, Ints], Flags]:
    """type int16, group string, topic string, partition int32, and nothing else."""
    start, end = key.start, key.end
    fits = key.present & (end - start >= _SHORTEST)
    start = np.where(fits, start, 0)
    kind, size = key.number(start, 2), key.number(start + 2, 2)
    fits &= (kind >= 0) & (kind <= 1) & (size >= 0) & (start + 4 + size + 6 <= end)
    group_end = np.where(fits, start + 4 + size, 0)
    size = key.number(group_end, 2)
    fits &= (size >= 0) & (group_end + 2 + size + 4 == end)
    topic_end = np.where(fits, group_end + 2 + size, 0)
    found = {
        "key_type": kind,
        "group_start": start + 4,
        "group_end": group_end,
        "topic_start": group_end + 2,
        "topic_end": topic_end,
        "partition": key.number(topic_end, 4),
    }
    return found, fits


def _values(value: _Column) -> tuple[dict[str, Ints], Flags]:
    """version int16, offset int64, from 3 on a leader epoch int32, metadata, commit time int64, in 1 an expiry int64.

    From 4 on the metadata is a compact string, and a tagged field may give the topic's id.
    """
    size = value.end - value.start
    fits = value.present & (size >= 20)
    start, end = np.where(fits, value.start, 0), value.end
    version = value.number(start, 2)
    fits &= (version >= 0) & (version <= 4)
    metadata = np.where(version >= 3, start + 14, start + 10)
    flexible = version == 4
    if flexible.any():
        first, second = value.byte(metadata), value.byte(metadata + 1)
        two = first >= 0x80
        length = np.where(two, (first & 0x7F) | second << 7, first) - 1
        fits &= ~(flexible & two & (second >= 0x80))
        length = np.where(flexible, length, value.number(metadata, 2))
        metadata = metadata + np.where(flexible, 1 + two, 2)
    else:
        length, metadata = value.number(metadata, 2), metadata + 2
    fits &= length >= 0
    after = metadata + length
    fits &= after + 8 <= end
    after = np.where(fits, after, 0)
    rest = end - after
    has_topic_id = (
        (rest == _TOPIC_ID_TAIL)
        & (value.byte(after + 8) == 1)
        & (value.byte(after + 9) == 0)
        & (value.byte(after + 10) == 16)
    )
    ends_well = np.where(
        flexible, (rest == 9) & (value.byte(after + 8) == 0) | has_topic_id, rest == np.where(version == 1, 16, 8)
    )
    fits &= ends_well
    expire = np.where(fits & (version == 1), after + 8, 0)
    found = {
        "offset": value.number(start + 2, 8),
        "leader_epoch": np.where(version >= 3, value.number(start + 10, 4), -1),
        "metadata_start": metadata,
        "metadata_end": after,
        "commit_ms": value.number(after, 8),
        "expire_ms": np.where(version == 1, value.number(expire, 8), -1),
    }
    return found, fits


def _texts(columns: list[pa.Array], fits: Flags) -> tuple[list[pa.Array], Flags]:
    """As text, and which rows fit: all where all is UTF-8, as nearly always; else those of nothing but ASCII."""
    try:
        return [column.cast(pa.string()) for column in columns], fits
    except pa.ArrowInvalid:
        good = fits & _plain(columns)
        return [_text(column, good) for column in columns], good


def _plain(columns: list[pa.Array]) -> Flags:
    """Rows that are not of a column with bytes that no text has, or have none but ASCII characters in it."""
    good = np.ones(len(columns[0]), np.bool_)
    for column in columns:
        try:
            column.cast(pa.string())
        except pa.ArrowInvalid:
            _, offsets, data = column.buffers()
            bounds = np.frombuffer(offsets, np.int32, len(column) + 1)
            wide = np.flatnonzero(np.frombuffer(data, np.uint8, bounds[-1]) >= 0x80)
            good[np.searchsorted(bounds, wide, side="right") - 1] = False
    return good


def _text(column: pa.Array, fits: Flags) -> pa.Array:
    """Arrow has checked the bytes; rows that do not fit are emptied, as theirs may be anything."""
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.compute.if_else(pa.array(fits), column, pa.scalar(None, pa.binary())).cast(pa.string())
