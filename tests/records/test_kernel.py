"""The kernel itself: checksums in hardware and software, its structs, and what it refuses when called wrongly."""

import ctypes
from collections.abc import Iterator

import pytest
from crc32c import crc32c
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kohort.records import kernel
from kohort.records.batch import CorruptBatch, UnsupportedMagic, build_batch
from kohort.records.kernel import Batch, Index, Kernel, Scan, error, pinned
from records.batches import plain_records

pytestmark = pytest.mark.skipif(kernel.load() is None, reason="no compiler was there to build the kernel")


@pytest.fixture(params=["hardware", "software"])
def library(request: pytest.FixtureRequest) -> Iterator[Kernel]:
    loaded = kernel.load()
    assert loaded is not None
    loaded.init(request.param == "hardware")
    yield loaded
    loaded.init(True)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=200), repeat=st.sampled_from([1, 1, 40, 400]))
def test_crc32c(library: Kernel, data: bytes, repeat: int) -> None:
    data *= repeat
    with pinned(data) as address:
        assert library.crc32c(address, len(data)) == crc32c(data)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 3071, 3072, 3073, 9216, 9999])
def test_crc32c_around_the_size_of_its_lanes(library: Kernel, size: int) -> None:
    data = bytes(n * 131 % 251 for n in range(size + 3))
    for start in range(3):
        with pinned(memoryview(data)[start : start + size]) as address:
            assert library.crc32c(address, size) == crc32c(data[start : start + size])


def test_pinned_gives_the_address_of_any_buffer() -> None:
    for buf in (b"abcdef", bytearray(b"abcdef"), memoryview(b"xabcdefx")[1:7]):
        with pinned(buf) as address:
            assert ctypes.string_at(address, 6) == b"abcdef"
    growing = bytearray(b"abc")
    with pinned(growing), pytest.raises(BufferError):
        growing.append(0)
    growing.append(0)


def test_scan_stops_at_its_limits_and_goes_on() -> None:
    library = kernel.load()
    assert library is not None
    fetch = b"".join(build_batch(plain_records(3, 3 * n), base_offset=3 * n) for n in range(5))
    batches, scan, seen, pos = (Batch * 2)(), Scan(), [], 0
    with pinned(fetch) as address:
        while not scan.done:
            found = library.scan(address, len(fetch), pos, 0, 2**62, 2**40, 2**40, True, batches, 2, ctypes.byref(scan))
            seen += [(batch.base_offset, batch.last_offset, batch.count) for batch in batches[:found]]
            pos = scan.next_pos
    assert seen == [(0, 2, 3), (3, 5, 3), (6, 8, 3), (9, 11, 3), (12, 14, 3)]


def test_index_refuses_batches_outside_its_source_and_arrays_too_small() -> None:
    library = kernel.load()
    assert library is not None
    fetch = build_batch(plain_records(3))
    body = len(fetch) - 61

    def index(capacity: int, data_pos: int, data_len: int, count: int) -> int:
        kept = {
            name: ((ctypes.c_int64 if code == "q" else ctypes.c_int32) * max(capacity, 1))()
            for name, code in kernel.INDEX_COLUMNS.items()
        }
        columns = Index(capacity=capacity, **{name: ctypes.addressof(column) for name, column in kept.items()})
        batch = Batch(data_pos=data_pos, data_len=data_len, count=count)
        with pinned(fetch) as address:
            return library.index(address, len(fetch), ctypes.addressof(batch), 1, 0, 2**62, ctypes.byref(columns))

    assert index(3, 61, body, 3) == 0
    assert index(2, 61, body, 3) == -9
    for data_pos, data_len in ((61, body + 1), (-1, 5), (61, -1), (len(fetch) + 1, 0), (2**62, 2**62)):
        assert index(3, data_pos, data_len, 0) == -1
    assert index(3, 61, body, 2**40) == -6
    assert index(3, 61, body, -1) == -6
    assert index(3, 61, body, 2) == -8


def test_errors_become_exceptions() -> None:
    assert isinstance(error(-2), UnsupportedMagic)
    assert isinstance(error(-5), CorruptBatch)
    assert "checksum" in str(error(-5))
    assert "-77" in str(error(-77))
