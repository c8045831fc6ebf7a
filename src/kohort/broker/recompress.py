"""A batch in the codec its topic wants (`compression.type` other than producer)."""

from __future__ import annotations

from typing import Any

from kohort.records.batch import BatchHeader, build_batch, read_header, read_records
from kohort.records.compression import Compression
from kohort.storage.config import LogConfig

_CODECS = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}


def recompressed(records: Any, header: BatchHeader, config: LogConfig) -> tuple[Any, BatchHeader]:
    """The same records and producer, in the topic's codec; untouched where it is that already."""
    codec = _CODECS[config.compression_type]
    if header.compression == codec:
        return records, header
    batch = build_batch(
        read_records(records, 0, header),
        compression=codec,
        compression_level=_level(codec, config),
        timestamp_type=header.timestamp_type,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
    )
    return batch, read_header(batch)


def _level(codec: Compression, config: LogConfig) -> int | None:
    levels = {
        Compression.GZIP: config.compression_gzip_level,
        Compression.LZ4: config.compression_lz4_level,
        Compression.ZSTD: config.compression_zstd_level,
    }
    level = levels.get(codec)
    return None if codec == Compression.GZIP and level == -1 else level
