"""Which bytes of a fetch hold wanted records: batches found, checked, filtered and decompressed, ready to be indexed.

One plan per decoder: `plan_groups` with the C kernel, where plain batches never become Python objects, and
`wanted_batches` without it. Both keep the same batches and raise the same errors.
"""

from collections.abc import Iterator
from ctypes import Array, addressof, byref, sizeof
from typing import NamedTuple

from kohort.records.batch import (
    COMPRESSION_MASK,
    CONTROL_FLAG,
    HEADER_SIZE,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    check_crc,
    iter_batches,
    read_header,
    read_records,
)
from kohort.records.compression import Buffer, OutputTooSmall, decompress_into, decompress_view
from kohort.records.errors import CorruptBatch
from kohort.records.kernel import MAX_SOURCE, Batch, Kernel, Scan, error
from kohort.records.transactions import AbortedTransactions

MAX_OFFSET = 2**63 - 1
MIN_RECORD_SIZE = 7

_SCAN_CAPACITY = 1024
_FIELDS = len(Batch._fields_)
_SIZE, _DATA_POS, _DATA_LEN, _COUNT, _ATTRIBUTES = 1, 2, 3, 4, 5
GROUP_BYTES = 32 * 1024 * 1024


class Wanted(NamedTuple):
    """What to take of a fetch."""

    from_offset: int = 0
    to_offset: int = MAX_OFFSET
    aborted: tuple[tuple[int, int], ...] = ()
    check_crc: bool = True
    max_rows: int = 65536
    max_size: int = 256 * 1024 * 1024


class Segment(NamedTuple):
    """`count` kernel batches at `batches` whose records are in `source`, at most `rows` of them."""

    source: Buffer
    batches: int
    count: int
    rows: int


def plan_groups(kernel: Kernel, buf: Buffer, address: int, wanted: Wanted) -> Iterator[list[Segment]]:
    """Groups of segments of about max_rows records. A group is only valid until the next is asked for."""
    if len(buf) > MAX_SOURCE:
        raise CorruptBatch(f"a fetch of {len(buf)} bytes is larger than any response can be")
    batches, scan = (Batch * _SCAN_CAPACITY)(), Scan()
    transactions = AbortedTransactions(wanted.aborted)
    pos = 0
    while True:
        found = kernel.scan(
            address,
            len(buf),
            pos,
            wanted.from_offset,
            wanted.to_offset,
            wanted.max_rows,
            GROUP_BYTES,
            wanted.check_crc,
            batches,
            _SCAN_CAPACITY,
            byref(scan),
        )
        if found < 0:
            raise error(found)
        if found and _plain(scan.attributes, transactions):
            yield [Segment(buf, addressof(batches), found, min(scan.rows, scan.bytes // MIN_RECORD_SIZE))]
        elif found:
            yield from _sorted_out(buf, batches, found, transactions, wanted)
        if scan.done:
            return
        pos = scan.next_pos


def _plain(attributes: int, transactions: AbortedTransactions) -> bool:
    return not attributes & (COMPRESSION_MASK | CONTROL_FLAG) and not (transactions and attributes & TRANSACTIONAL_FLAG)


def _sorted_out(
    buf: Buffer, batches: Array[Batch], found: int, transactions: AbortedTransactions, wanted: Wanted
) -> Iterator[list[Segment]]:
    """Batch by batch: markers and aborted batches emptied, compressed ones decompressed side by side."""
    view = memoryview(buf)
    numbers = memoryview(batches).cast("B").cast("q")
    runs = _Runs(buf, addressof(batches), found, sum(numbers[_SIZE : found * _FIELDS : _FIELDS]))
    limit = min(wanted.max_size, MAX_SOURCE // 2)
    for number in range(found):
        at = number * _FIELDS
        attributes, count = numbers[at + _ATTRIBUTES], numbers[at + _COUNT]
        if attributes & (CONTROL_FLAG | TRANSACTIONAL_FLAG) and _hidden(buf, batches[number], transactions, wanted):
            count = numbers[at + _COUNT] = 0
        if count and attributes & COMPRESSION_MASK:
            pos = numbers[at]
            body = view[pos + HEADER_SIZE : pos + numbers[at + _SIZE]]
            start, length = runs.decompress(number, attributes & COMPRESSION_MASK, body, limit)
            numbers[at + _DATA_POS], numbers[at + _DATA_LEN] = start, length
        elif count:
            runs.switch_to(number, buf)
        else:
            numbers[at + _DATA_POS] = numbers[at + _DATA_LEN] = 0
        if count * MIN_RECORD_SIZE > numbers[at + _DATA_LEN]:
            raise CorruptBatch(f"{numbers[at + _DATA_LEN]} bytes cannot hold {count} records")
        runs.rows += count
        if runs.bytes >= GROUP_BYTES:
            yield runs.take(number + 1)
    yield runs.take(found)


def _hidden(buf: Buffer, batch: Batch, transactions: AbortedTransactions, wanted: Wanted) -> bool:
    if batch.attributes & CONTROL_FLAG:
        transactions.marker(batch, read_records(buf, batch.pos, read_header(buf, batch.pos), wanted.max_size))
        return True
    return transactions.hides(batch)


class _Runs:
    """Consecutive batches whose records are in one buffer become one segment: a single call into the kernel."""

    def __init__(self, buf: Buffer, batches: int, count: int, compressed_size: int) -> None:
        self.rows = self.bytes = 0
        self._batches = batches
        self._segments: list[Segment] = []
        self._source: Buffer = buf
        self._first = 0
        self._arena = memoryview(bytearray(min(compressed_size * 8, GROUP_BYTES) + 65536))
        self._used = 0

    def switch_to(self, number: int, source: Buffer) -> None:
        """Batches from `number` on are in `source`."""
        if source is not self._source:
            self._close(number)
            self._source = source

    def decompress(self, number: int, codec: int, body: memoryview, limit: int) -> tuple[int, int]:
        """Position and length of the decompressed records in what is the source from now on."""
        try:
            start = self._used
            length = decompress_into(codec, body, self._arena[start : start + limit])
        except OutputTooSmall:
            source = decompress_view(codec, body, limit)
            self._arena = memoryview(bytearray(min(len(source) * 8, GROUP_BYTES) + 65536))
            self._used = start = 0
            length = len(source)
            self.switch_to(number, source)
        else:
            self._used += length
            self.switch_to(number, self._arena)
        self.bytes += length
        return start, length

    def take(self, number: int) -> list[Segment]:
        """The segments of all batches before `number`. The arena is free again once the next group is asked for."""
        self._close(number)
        segments, self._segments = self._segments, []
        self.bytes = self._used = 0
        return segments

    def _close(self, number: int) -> None:
        source = self._source[: self._used] if self._source is self._arena else self._source
        if number > self._first:
            batches = self._batches + self._first * sizeof(Batch)
            self._segments.append(Segment(source, batches, number - self._first, self.rows))
        self._first, self.rows = number, 0


def wanted_batches(buf: Buffer, wanted: Wanted) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of every batch with wanted records, checked; what `plan_groups` keeps, in pure Python."""
    transactions = AbortedTransactions(wanted.aborted)
    for pos, header in iter_batches(buf):
        if header.last_offset < wanted.from_offset:
            continue
        if header.base_offset >= wanted.to_offset:
            return
        if wanted.check_crc and not check_crc(buf, pos, header):
            raise CorruptBatch(f"the batch at offset {header.base_offset} fails its checksum")
        if header.record_count < 0:
            raise CorruptBatch(f"a batch cannot have {header.record_count} records")
        if header.is_control:
            transactions.marker(header, read_records(buf, pos, header, wanted.max_size))
        elif not transactions.hides(header) and header.record_count:
            yield pos, header
