"""Records that are encoded already, and wait for the header of their batch: a producer's id and numbers come last."""

from __future__ import annotations

from typing import NamedTuple

from kohort.records.batch import (
    CREATE_TIME,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Record,
    frame_batch,
    frame_in_place,
    iter_records,
)
from kohort.records.compression import Buffer, Compression, compress, decompress


class EncodedRecords(NamedTuple):
    """The records of one batch, offsets from 0 on, compressed by `codec`."""

    record_count: int
    base_timestamp: int
    max_timestamp: int
    codec: Compression
    body: Buffer
    frame: memoryview | None = None
    """The body with room for a header before it, where there is some."""

    @property
    def size(self) -> int:
        return len(self.body)

    def compressed(self, codec: Compression) -> EncodedRecords:
        if codec == Compression.NONE:
            return self
        return self._replace(codec=codec, body=compress(codec, self.body), frame=None)

    def framed(self, producer_id: int, epoch: int, base_sequence: int, transactional: bool) -> Buffer:
        """The whole batch. Its memory may be that of the last call's."""
        attributes = self.codec | (TRANSACTIONAL_FLAG if transactional else 0)
        times = self.base_timestamp, self.max_timestamp
        fields = attributes, self.record_count - 1, *times, producer_id, epoch, base_sequence, self.record_count
        if self.frame is None:
            return frame_batch(self.body, fields)
        frame_in_place(self.frame, fields)
        return self.frame

    def records(self) -> list[Record]:
        """One by one, for a batch that has to be divided."""
        times = self.base_timestamp, self.max_timestamp
        header = BatchHeader(0, 0, -1, 2, 0, CREATE_TIME, self.record_count - 1, *times, -1, -1, -1, self.record_count)
        return list(iter_records(decompress(self.codec, self.body), header))
