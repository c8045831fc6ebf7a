"""Every codec in Kafka's framing, foreign framings, broken streams and decompression bombs."""

import gzip
import struct

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.protocol.errors import ErrorCode
from kohort.records.compression import XERIAL_HEADER, Compression, compress, decompress
from kohort.records.errors import BatchTooLarge, CorruptBatch

CODECS = [codec for codec in Compression if codec != Compression.NONE]
TEXT = b"the quick brown fox jumps over the lazy dog " * 5000


@given(st.binary(max_size=3000), st.sampled_from(Compression))
def test_round_trip(data: bytes, codec: Compression) -> None:
    assert decompress(codec, compress(codec, data), 3000) == data


@pytest.mark.parametrize("codec", CODECS)
def test_large_data_through_any_kind_of_buffer(codec: Compression) -> None:
    small = compress(codec, memoryview(TEXT))
    assert len(small) < len(TEXT) / 4
    assert decompress(codec, memoryview(bytearray(small))) == TEXT


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_is_refused(codec: Compression) -> None:
    bomb = compress(codec, bytes(20_000_000))
    with pytest.raises(BatchTooLarge) as refusal:
        decompress(codec, bomb, 1_000_000)
    assert refusal.value.code == ErrorCode.MESSAGE_TOO_LARGE
    assert decompress(codec, compress(codec, TEXT), len(TEXT)) == TEXT
    with pytest.raises(BatchTooLarge):
        decompress(codec, compress(codec, TEXT), len(TEXT) - 1)


@pytest.mark.parametrize("codec", CODECS)
def test_a_truncated_stream_is_corrupt(codec: Compression) -> None:
    whole = compress(codec, b"".join(b"%d," % n for n in range(300)))
    # Cut right after its header, xerial's framing is that of no data: the only prefix that can be read.
    readable = {16} if codec == Compression.SNAPPY else set()
    for end in set(range(len(whole))) - readable:
        with pytest.raises((CorruptBatch, BatchTooLarge)):
            decompress(codec, whole[:end], 10_000)


@given(st.sampled_from(CODECS), st.binary(max_size=300))
def test_nonsense_never_escapes_as_another_error(codec: Compression, data: bytes) -> None:
    try:
        assert len(decompress(codec, data, 100_000)) <= 100_000
    except (CorruptBatch, BatchTooLarge):
        pass


def test_unknown_codecs() -> None:
    with pytest.raises(CorruptBatch, match="id 5"):
        decompress(5, b"")
    with pytest.raises(ValueError, match="id 6"):
        compress(6, b"")  # type: ignore[arg-type]


def test_snappy_is_written_in_xerial_framing_and_read_raw_too() -> None:
    framed = compress(Compression.SNAPPY, TEXT)
    assert framed.startswith(XERIAL_HEADER)
    assert decompress(Compression.SNAPPY, framed) == TEXT
    assert decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT))) == TEXT


def test_xerial_blocks_of_any_size_and_versions_in_the_wrong_byte_order() -> None:
    blocks = [bytes(cramjam.snappy.compress_raw(part)) for part in (b"one ", b"", b"two ", b"three" * 20_000)]
    body = b"".join(struct.pack(">i", len(block)) + block for block in blocks)
    for version in (b"\0\0\0\1\0\0\0\1", b"\1\0\0\0\1\0\0\0"):
        framed = XERIAL_HEADER[:8] + version + body
        assert decompress(Compression.SNAPPY, framed) == b"one two " + b"three" * 20_000


@pytest.mark.parametrize("tail", [b"\0", b"\0\0\0\5abc", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff" + bytes(20)])
def test_broken_xerial_framing(tail: bytes) -> None:
    with pytest.raises(CorruptBatch):
        decompress(Compression.SNAPPY, compress(Compression.SNAPPY, b"abc") + tail)


def test_lz4_blocks_are_independent_as_the_java_client_demands() -> None:
    frame = compress(Compression.LZ4, TEXT)
    assert frame[:4] == b"\x04\x22\x4d\x18"
    assert frame[4] & 0x20
    linked = bytes(cramjam.lz4.compress(TEXT))
    assert not linked[4] & 0x20
    assert decompress(Compression.LZ4, linked) == TEXT


def test_gzip_and_zstd_in_several_members() -> None:
    assert decompress(Compression.GZIP, gzip.compress(b"one ") + gzip.compress(b"two")) == b"one two"
    double = compress(Compression.ZSTD, b"one ") + compress(Compression.ZSTD, b"two")
    assert decompress(Compression.ZSTD, double) == b"one two"


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
def test_levels(codec: Compression) -> None:
    data = b"".join(b"%d " % (n * 7919 % 10007) for n in range(20_000))
    fast, small = compress(codec, data, 1), compress(codec, data, 9)
    assert len(small) < len(fast)
    assert decompress(codec, small) == decompress(codec, fast) == data
