"""Kafka's compression codecs and their framings, through cramjam. Every decompression is bounded by `max_size`.

snappy: xerial's framing as the Java client writes it; raw snappy (librdkafka, older clients) is read too.
lz4: the frame format with independent blocks, the only kind the Java client reads. gzip and zstd: plain frames.
"""

from collections.abc import Callable
from enum import IntEnum
from struct import Struct
from typing import Any, TypeAlias

import cramjam

from kohort.records.errors import BatchTooLarge, CorruptBatch

Buffer: TypeAlias = bytes | bytearray | memoryview

DEFAULT_MAX_SIZE = 256 * 1024 * 1024


class Compression(IntEnum):
    """The codec in the low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


XERIAL_HEADER = b"\x82SNAPPY\x00" + b"\x00\x00\x00\x01" * 2
_XERIAL_MAGIC = XERIAL_HEADER[:8]
_XERIAL_BLOCK = 32 * 1024
_BLOCK_LENGTH = Struct(">i")
_ZSTD_LEVEL = 3
_FIRST_GUESS = 8
_OUTPUT_TOO_SMALL = "failed to write whole buffer"
_INTO: dict[int, Callable[[Any, Any], int]] = {
    Compression.GZIP: cramjam.gzip.decompress_into,
    Compression.LZ4: cramjam.lz4.decompress_into,
    Compression.ZSTD: cramjam.zstd.decompress_into,
}


class OutputTooSmall(Exception):
    """The output buffer cannot hold what was compressed."""


def compress(codec: Compression, data: Buffer, level: int | None = None) -> bytes:
    """`data` in Kafka's framing of `codec`. `level` is the codec's own scale; snappy has none."""
    if codec == Compression.NONE:
        return bytes(data)
    if codec == Compression.GZIP:
        return bytes(cramjam.gzip.compress(data, level=level))
    if codec == Compression.SNAPPY:
        return _compress_xerial(memoryview(data))
    if codec == Compression.LZ4:
        compressor = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
        compressor.compress(bytes(data))
        return bytes(compressor.finish())
    if codec == Compression.ZSTD:
        return bytes(cramjam.zstd.compress(data, level=_ZSTD_LEVEL if level is None else level))
    raise ValueError(f"no compression codec has the id {codec}")


def decompress(codec: int, data: Buffer, max_size: int = DEFAULT_MAX_SIZE) -> bytes:
    """What was compressed. CorruptBatch on a broken stream, BatchTooLarge past `max_size` bytes."""
    view = decompress_view(codec, data, max_size)
    return view if isinstance(view, bytes) else bytes(view)


def decompress_view(codec: int, data: Buffer, max_size: int = DEFAULT_MAX_SIZE) -> bytes | memoryview:
    """Like `decompress`, without the last copy: into a buffer of guessed size, grown until it fits."""
    if codec == Compression.NONE:
        if len(data) > max_size:
            raise _too_large(max_size)
        return data if isinstance(data, bytes) else memoryview(data)
    size = min(max(len(data) * _FIRST_GUESS, 4096), max_size)
    while True:
        out = memoryview(bytearray(size))
        try:
            return out[: decompress_into(codec, data, out)]
        except OutputTooSmall:
            if size >= max_size:
                raise _too_large(max_size) from None
            size = min(size * 4, max_size)


def decompress_into(codec: int, data: Buffer, out: memoryview) -> int:
    """How many bytes of `out` were filled; OutputTooSmall where it cannot hold everything."""
    if codec == Compression.SNAPPY:
        return _decompress_snappy(memoryview(data), out)
    function = _INTO.get(codec)
    if function is None:
        raise CorruptBatch(f"no compression codec has the id {codec}")
    try:
        return function(data, out)
    except cramjam.DecompressionError as error:
        if _OUTPUT_TOO_SMALL in str(error):
            raise OutputTooSmall from None
        raise CorruptBatch(f"the compressed records cannot be read: {error}") from None


def _compress_xerial(data: memoryview) -> bytes:
    parts = [XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK]))
        parts += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: memoryview, out: memoryview) -> int:
    if not data:
        raise CorruptBatch("the snappy stream is empty")
    blocks = _xerial_blocks(data) if data[:8] == _XERIAL_MAGIC else [data]
    end = 0
    try:
        for block in blocks:
            start, end = end, end + cramjam.snappy.decompress_raw_len(block)
            if end > len(out):
                raise OutputTooSmall
            if end > start:
                cramjam.snappy.decompress_raw_into(block, out[start:end])
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"the compressed records cannot be read: {error}") from None
    return end


def _xerial_blocks(data: memoryview) -> list[memoryview]:
    # The version fields after the magic are not checked: some writers have them in the wrong byte order.
    blocks = []
    pos, end = len(XERIAL_HEADER), len(data)
    if end < pos:
        raise CorruptBatch("the snappy stream ends within its header")
    while pos < end:
        if end - pos < 4:
            raise CorruptBatch("the snappy stream ends within a block length")
        (length,) = _BLOCK_LENGTH.unpack_from(data, pos)
        pos += 4
        if length < 0 or length > end - pos:
            raise CorruptBatch(f"a snappy block of {length} bytes does not fit the {end - pos} bytes left")
        blocks.append(data[pos : pos + length])
        pos += length
    return blocks


def _too_large(max_size: int) -> BatchTooLarge:
    return BatchTooLarge(f"the records decompress to more than the {max_size} bytes allowed")
