"""Which bytes of a fetch hold wanted records: batches found, checked, filtered and decompressed, ready to be indexed.

One plan per decoder: `plan_groups` with the C kernel, where plain batches never become Python objects, and
`wanted_batches` without it. Both keep the same batches and raise the same errors.
"""

from collections.abc import Iterable, Iterator
from ctypes import addressof, byref, sizeof
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
from kohort.records.compression import Buffer, decompress_view
from kohort.records.errors import CorruptBatch
from kohort.records.kernel import MAX_SOURCE, Batch, Kernel, Scan, error
from kohort.records.transactions import AbortedTransactions

MAX_OFFSET = 2**63 - 1
MIN_RECORD_SIZE = 7

_SCAN_CAPACITY = 1024
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
    buf: Buffer, batches: "Iterable[Batch]", found: int, transactions: AbortedTransactions, wanted: Wanted
) -> Iterator[list[Segment]]:
    """Batch by batch: markers and aborted batches left out, compressed ones decompressed."""
    view = memoryview(buf)
    start = addressof(batches)
    group: list[Segment] = []
    size = 0
    for number in range(found):
        batch = batches[number]
        if batch.attributes & CONTROL_FLAG:
            transactions.marker(batch, read_records(buf, batch.pos, read_header(buf, batch.pos), wanted.max_size))
            continue
        if transactions.hides(batch) or batch.count == 0:
            continue
        source: Buffer = buf
        if codec := batch.attributes & COMPRESSION_MASK:
            body = view[batch.pos + HEADER_SIZE : batch.pos + batch.size]
            source = decompress_view(codec, body, min(wanted.max_size, MAX_SOURCE // 2))
            batch.data_pos, batch.data_len = 0, len(source)
        if batch.count * MIN_RECORD_SIZE > batch.data_len:
            raise CorruptBatch(f"{batch.data_len} bytes cannot hold {batch.count} records")
        group.append(Segment(source, start + number * sizeof(Batch), 1, batch.count))
        size += batch.data_len
        if size >= GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


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
