"""What one fetch brought of one partition: raw record batches, decoded when the application takes them. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

from kohort.client.errors import RecordError
from kohort.client.types import ConsumerRecord, TopicPartition
from kohort.records.batch import HEADER_SIZE, LOG_OVERHEAD
from kohort.records.errors import RecordsError
from kohort.records.fetch import RecordLists, decode_lists
from kohort.records.fetch_plan import MAX_OFFSET

if TYPE_CHECKING:
    import pyarrow as pa

Deserializer = Callable[[bytes], Any] | None

_HEAD = Struct(">qii")
_LAST_OFFSET_DELTA = Struct(">i")
_LAST_OFFSET_DELTA_AT = 23
_COUNT = Struct(">i")
_COUNT_AT = 57
WINDOW = 50_000
"""Records that become objects at once; more only of transactions."""


class Extent(NamedTuple):
    """A run of whole batches of one leader epoch."""

    start: int
    end: int
    next_offset: int
    leader_epoch: int


def extents(data: memoryview, by_epoch: bool) -> list[Extent]:
    """Runs of whole batches in fetched bytes, split where the leader epoch changes; a cut-off tail is left out."""
    found: list[Extent] = []
    size, pos = len(data), 0
    start, epoch, next_offset = 0, None, -1
    while size - pos >= HEADER_SIZE:
        base_offset, length, batch_epoch = _HEAD.unpack_from(data, pos)
        end = pos + LOG_OVERHEAD + length
        if end > size or length < HEADER_SIZE - LOG_OVERHEAD:
            break
        if epoch is not None and batch_epoch != epoch and by_epoch:
            found.append(Extent(start, pos, next_offset, epoch))
            start = pos
        epoch = batch_epoch
        next_offset = base_offset + _LAST_OFFSET_DELTA.unpack_from(data, pos + _LAST_OFFSET_DELTA_AT)[0] + 1
        pos = end
    if epoch is not None:
        found.append(Extent(start, pos, next_offset, epoch))
    return found


def record_count(data: memoryview) -> int:
    """How many records the batches say they have."""
    count, pos = 0, 0
    while len(data) - pos >= HEADER_SIZE:
        count += _COUNT.unpack_from(data, pos + _COUNT_AT)[0]
        pos += LOG_OVERHEAD + max(_HEAD.unpack_from(data, pos)[1], HEADER_SIZE - LOG_OVERHEAD)
    return count


class Chunk:
    """Whole batches of one partition, from `from_offset` on."""

    __slots__ = (
        "_decoded_to",
        "_failure",
        "_records",
        "_taken",
        "_window",
        "aborted",
        "check_crc",
        "data",
        "from_offset",
        "leader_epoch",
        "next_offset",
        "tp",
    )

    def __init__(
        self,
        tp: TopicPartition,
        data: memoryview,
        from_offset: int,
        next_offset: int,
        leader_epoch: int,
        aborted: Sequence[tuple[int, int]] = (),
        check_crc: bool = True,
    ) -> None:
        self.tp = tp
        self.data = data
        self.from_offset = from_offset
        self.next_offset = next_offset
        self.leader_epoch = leader_epoch
        self.aborted = aborted
        self.check_crc = check_crc
        self._records: list[ConsumerRecord] = []
        self._taken = 0
        self._decoded_to = from_offset
        self._window = 0
        self._failure: Exception | None = None

    def take(self, count: int, key_of: Deserializer, value_of: Deserializer) -> list[ConsumerRecord]:
        """The next records, at most `count`; raises when the next one cannot be decoded."""
        while self._taken >= len(self._records) and self._failure is None and self._decoded_to < self.next_offset:
            self._records, self._taken = self._decode(key_of, value_of), 0
        records = self._records[self._taken : self._taken + count]
        if not records and self._failure is not None:
            raise self._failure
        self._taken += len(records)
        return records

    @property
    def exhausted(self) -> bool:
        is_decoded = self._decoded_to >= self.next_offset
        return is_decoded and self._taken >= len(self._records) and self._failure is None

    def _window_end(self) -> int:
        """Up to where to decode now: to the end, unless a few bytes hold more records than anybody wants at once. Where
        nothing was found in the last window the next one is larger."""
        if not self._window:
            self._window = WINDOW
            if self.aborted or record_count(self.data) <= WINDOW:
                self._window = MAX_OFFSET
        elif not self._records:
            self._window *= 2
        return min(self._decoded_to + self._window, MAX_OFFSET)

    def _decode(self, key_of: Deserializer, value_of: Deserializer) -> list[ConsumerRecord]:
        start, end = self._decoded_to, self._window_end()
        try:
            lists = decode_lists(self.data, start, end, aborted=self.aborted, check_crc=self.check_crc)
        except RecordsError as error:
            raise RecordError(self.tp, start, str(error)) from error
        self._decoded_to = end
        count = len(lists.offsets)
        if key_of is not None or value_of is not None:
            count, keys, values = self._deserialize(lists, key_of, value_of)
        else:
            keys, values = lists.keys, lists.values
        fields = zip(
            repeat(self.tp.topic, count),
            repeat(self.tp.partition),
            lists.offsets,
            lists.timestamps,
            lists.timestamp_types,
            keys,
            values,
            lists.headers,
            repeat(self.leader_epoch),
        )
        return list(map(tuple.__new__, repeat(ConsumerRecord), fields))

    def _deserialize(
        self, lists: RecordLists, key_of: Deserializer, value_of: Deserializer
    ) -> tuple[int, list[Any], list[Any]]:
        """Keys and values up to the first that fails; the failure is raised once those before it were taken."""
        keys: list[Any] = []
        values: list[Any] = []
        for offset, key, value in zip(lists.offsets, lists.keys, lists.values, strict=True):
            try:
                new_key = key if key is None or key_of is None else key_of(key)
                new_value = value if value is None or value_of is None else value_of(value)
            except Exception as error:
                self._failure = RecordError(self.tp, offset, f"the deserializer failed: {error!r}")
                self._failure.__cause__ = error
                break
            keys.append(new_key)
            values.append(new_value)
        return len(keys), keys, values

    def arrow(self, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        """The records as Arrow; without a Python object per record."""
        from kohort.records.columns import DEFAULT_COLUMNS, decode_batches

        try:
            yield from decode_batches(
                self.data,
                self.from_offset,
                topic=self.tp.topic,
                partition=self.tp.partition,
                columns=columns or DEFAULT_COLUMNS,
                aborted=self.aborted,
                check_crc=self.check_crc,
            )
        except RecordsError as error:
            raise RecordError(self.tp, self.from_offset, str(error)) from error


def up_to(max_bytes: int) -> Callable[[Chunk], bool]:
    """Whether the chunks taken so far are enough."""
    size = 0

    def enough(chunk: Chunk) -> bool:
        nonlocal size
        size += len(chunk.data)
        return size >= max_bytes

    return enough
