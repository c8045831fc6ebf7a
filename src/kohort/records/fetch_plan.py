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
_ARENA_BYTES = 8 * 1024 * 1024


class Wanted(NamedTuple):
    """What to take of a fetch."""

    from_offset: int = 0
    to_offset: int = MAX_OFFSET
    aborted: tuple[tuple[int, int], ...] = ()
    check_crc: bool = True
    max_rows: int = 32768
    max_size: int = 256 * 1024 * 1024


class Run(NamedTuple):
    """`batch_count` kernel batches at `batches` whose records are in `source`, at most `rows` of them."""

    source: Buffer
    batches: int
    batch_count: int
    rows: int


def plan_groups(kernel: Kernel, buf: Buffer, address: int, wanted: Wanted) -> Iterator[list[Run]]:
    """Groups of runs of about max_rows records. A group is only valid until the next is asked for."""
    if len(buf) > MAX_SOURCE:
        raise CorruptBatch(f"a fetch of {len(buf)} bytes is larger than any response can be")
    batches, scan = (Batch * _SCAN_CAPACITY)(), Scan()
    transactions = AbortedTransactions(wanted.aborted)
    runs = _Runs(buf, addressof(batches))
    limits = (wanted.from_offset, wanted.to_offset, wanted.max_rows, GROUP_BYTES, wanted.check_crc)
    pos = 0
    try:
        while not scan.done:
            found = kernel.scan(address, len(buf), pos, *limits, batches, _SCAN_CAPACITY, byref(scan))
            if found < 0:
                raise error(found)
            if found and _plain(scan.attributes, transactions):
                yield [Run(buf, addressof(batches), found, min(scan.rows, scan.bytes // MIN_RECORD_SIZE))]
            elif found:
                yield from _sorted_out(buf, batches, found, transactions, wanted, runs)
            pos = scan.next_pos
    finally:
        runs.release()


def _plain(attributes: int, transactions: AbortedTransactions) -> bool:
    return not attributes & (COMPRESSION_MASK | CONTROL_FLAG) and not (transactions and attributes & TRANSACTIONAL_FLAG)


def _sorted_out(
    buf: Buffer, batches: Array[Batch], found: int, transactions: AbortedTransactions, wanted: Wanted, runs: "_Runs"
) -> Iterator[list[Run]]:
    """Batch by batch: markers and aborted batches emptied, compressed ones decompressed side by side."""
    view = memoryview(buf)
    numbers = memoryview(batches).cast("B").cast("q")
    limit = min(wanted.max_size, MAX_SOURCE // 2)
    for number in range(found):
        at = number * _FIELDS
        attributes, count = numbers[at + _ATTRIBUTES], numbers[at + _COUNT]
        if attributes & (CONTROL_FLAG | TRANSACTIONAL_FLAG) and _hidden(buf, batches[number], transactions, wanted):
            count = numbers[at + _COUNT] = 0
        codec = attributes & COMPRESSION_MASK
        if count and codec:
            pos = numbers[at]
            body = view[pos + HEADER_SIZE : pos + numbers[at + _SIZE]]
            placed = runs.decompress(number, codec, body, limit)
            if placed is None:
                yield runs.take(number)
                placed = runs.decompress(number, codec, body, limit) or runs.decompress_apart(
                    number, codec, body, limit
                )
            numbers[at + _DATA_POS], numbers[at + _DATA_LEN] = placed
        elif count:
            runs.switch_to(number, buf)
        else:
            numbers[at + _DATA_POS] = numbers[at + _DATA_LEN] = 0
        if count * MIN_RECORD_SIZE > numbers[at + _DATA_LEN]:
            raise CorruptBatch(f"{numbers[at + _DATA_LEN]} bytes cannot hold {count} records")
        runs.rows += count
    yield runs.take(found)
    runs.rewind()


def _hidden(buf: Buffer, batch: Batch, transactions: AbortedTransactions, wanted: Wanted) -> bool:
    if batch.attributes & CONTROL_FLAG:
        transactions.marker(batch, read_records(buf, batch.pos, read_header(buf, batch.pos), wanted.max_size))
        return True
    return transactions.hides(batch)


_spare_arenas: list[memoryview] = []


class _Runs:
    """Consecutive batches whose records are in one buffer become one run: a single call into the kernel.

    Batches are decompressed side by side into an arena. One arena is kept for the next fetch: memory that has been in
    use is much cheaper than fresh memory.
    """

    def __init__(self, buf: Buffer, batches: int) -> None:
        self.rows = 0
        self._buf = buf
        self._batches = batches
        self._closed: list[Run] = []
        self._source: Buffer = buf
        self._first = 0
        self._arena: memoryview | None = None
        self._used = 0

    def switch_to(self, number: int, source: Buffer) -> None:
        """Batches from `number` on are in `source`."""
        if source is not self._source:
            self._close(number)
            self._source = source

    def decompress(self, number: int, codec: int, body: memoryview, limit: int) -> tuple[int, int] | None:
        """Position and length of the records in the arena, which then is the source; None where they do not fit."""
        if self._arena is None:
            self._arena = _spare_arenas.pop() if _spare_arenas else memoryview(bytearray(_ARENA_BYTES))
        start = self._used
        try:
            length = decompress_into(codec, body, self._arena[start : start + limit])
        except OutputTooSmall:
            return None
        self.switch_to(number, self._arena)
        self._used += length
        return start, length

    def decompress_apart(self, number: int, codec: int, body: memoryview, limit: int) -> tuple[int, int]:
        """The same for a batch that is larger than the arena, into a buffer of its own."""
        source = decompress_view(codec, body, limit)
        self.switch_to(number, source)
        return 0, len(source)

    def take(self, number: int) -> list[Run]:
        """The runs of all batches before `number`. Their part of the arena is free once more is decompressed."""
        self._close(number)
        self._source = self._buf
        ready, self._closed = self._closed, []
        self._used = 0
        return ready

    def rewind(self) -> None:
        """The array of batches is about to be filled anew."""
        self._first = 0

    def release(self) -> None:
        """Nothing decompressed is needed any more."""
        if self._arena is not None and not _spare_arenas:
            _spare_arenas.append(self._arena)
        self._arena = None

    def _close(self, number: int) -> None:
        source = self._source[: self._used] if self._source is self._arena else self._source
        if number > self._first and self.rows:
            batches = self._batches + self._first * sizeof(Batch)
            self._closed.append(Run(source, batches, number - self._first, self.rows))
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
