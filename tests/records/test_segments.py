"""How compressed batches share an arena: more than it holds, a batch larger than it, two decoders at once."""

import pytest

from kohort.records import kernel
from kohort.records.batch import Compression, Record, build_batch
from kohort.records.columns import decode_batches
from kohort.records.fetch import decode_lists
from records.batches import plain_records

pytestmark = pytest.mark.skipif(kernel.load() is None, reason="no compiler was there to build the kernel")

MB = 1024 * 1024


def batch_of(offset: int, count: int, size: int, compression: Compression) -> bytes:
    records = [Record(offset + n, 0, b"%d" % (offset + n), bytes([(offset + n) % 256]) * size) for n in range(count)]
    return build_batch(records, base_offset=offset, compression=compression)


@pytest.mark.parametrize("compression", [Compression.LZ4, Compression.SNAPPY])
def test_more_than_an_arena_holds_with_plain_and_huge_batches_between(compression: Compression) -> None:
    fetch, offset = b"", 0
    for count, size, codec in [
        (3, MB, compression),
        (4, MB, compression),
        (5, 10, Compression.NONE),
        (3, MB, compression),
        (10, MB, compression),
        (1, 5, compression),
        (2, 7, Compression.NONE),
        (9, MB, Compression.ZSTD),
        (6, 100, compression),
    ]:
        fetch += batch_of(offset, count, size, codec)
        offset += count
    lists = decode_lists(fetch)
    assert lists.offsets == list(range(offset))
    assert lists.keys == [b"%d" % n for n in range(offset)]
    assert lists == decode_lists(fetch, use_kernel=False)
    values = [value for part in decode_batches(fetch) for value in part["value"].to_pylist()]
    assert values == lists.values


def test_decoders_that_run_side_by_side_do_not_share_memory() -> None:
    def fetch(letter: bytes) -> bytes:
        return b"".join(
            build_batch(plain_records(100, 100 * n, letter * 50), base_offset=100 * n, compression=Compression.LZ4)
            for n in range(20)
        )

    decode_lists(fetch(b"x"))  # leaves an arena behind for one of the two
    a = decode_batches(fetch(b"a"), columns=("value",), max_rows=100)
    b = decode_batches(fetch(b"b"), columns=("value",), max_rows=100)
    for left, right in zip(a, b, strict=True):
        assert set(left["value"].to_pylist()) == {b"a" * 50}
        assert set(right["value"].to_pylist()) == {b"b" * 50}


def test_what_was_decoded_outlives_the_arena() -> None:
    first = list(decode_batches(batch_of(0, 50, 100, Compression.LZ4)))
    before = [part.to_pylist() for part in first]
    list(decode_batches(batch_of(7000, 50, 100, Compression.LZ4)))
    assert [part.to_pylist() for part in first] == before
