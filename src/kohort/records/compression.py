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
    """Like `decompress`, without the last copy."""
    if codec == Compression.NONE:
        if len(data) > max_size:
            raise _too_large(max_size)
        return data if isinstance(data, bytes) else memoryview(data)
    if codec == Compression.SNAPPY:
        return _decompress_snappy(memoryview(data), max_size)
    if codec == Compression.LZ4:
        return _inflate(cramjam.lz4.decompress_into, data, max_size)
    if codec == Compression.ZSTD:
        return _inflate(cramjam.zstd.decompress_into, data, max_size)
    if codec == Compression.GZIP:
        return _inflate(cramjam.gzip.decompress_into, data, max_size)
    raise CorruptBatch(f"no compression codec has the id {codec}")


def _inflate(decompress_into: Callable[[Any, Any], int], data: Buffer, max_size: int) -> memoryview:
    """Decompress into a buffer of guessed size, grown until it fits: twice as fast as an unbounded decompression."""
    size = min(max(len(data) * _FIRST_GUESS, 4096), max_size)
    while True:
        out = bytearray(size)
        try:
            length = decompress_into(data, out)
        except cramjam.DecompressionError as error:
            if _OUTPUT_TOO_SMALL not in str(error):
                raise CorruptBatch(f"the compressed records cannot be read: {error}") from None
            if size >= max_size:
                raise _too_large(max_size) from None
            size = min(size * 4, max_size)
        else:
            return memoryview(out)[:length]


def _compress_xerial(data: memoryview) -> bytes:
    parts = [XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK]))
        parts += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: memoryview, max_size: int) -> memoryview:
    if not data:
        raise CorruptBatch("the snappy stream is empty")
    blocks = _xerial_blocks(data) if data[:8] == _XERIAL_MAGIC else [data]
    try:
        sizes = [cramjam.snappy.decompress_raw_len(block) for block in blocks]
        total = sum(sizes)
        if total > max_size:
            raise _too_large(max_size)
        out = memoryview(bytearray(total))
        end = 0
        for block, size in zip(blocks, sizes, strict=True):
            start, end = end, end + size
            if size and cramjam.snappy.decompress_raw_into(block, out[start:end]) != size:
                raise CorruptBatch("a snappy block is shorter than it says")
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"the compressed records cannot be read: {error}") from None
    return out


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
