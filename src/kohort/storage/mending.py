"""Where a segment goes on behind bytes that are no batch, and a segment without such bytes; a copy of them is kept.

Used by a start after a crash (recovery.py) and by `kohort log` (checkup.py), so that both judge alike.
"""

from __future__ import annotations

from pathlib import Path
from struct import error as struct_error

from kohort.protocol.errors import KafkaError
from kohort.records.batch import HEADER_SIZE, BatchHeader, check_crc, read_header
from kohort.storage import checkpoints
from kohort.storage.segment_files import file_name

KEPT = "damaged"
"""The folder in the data directory that keeps what was taken out."""

_MAGIC_POSITION = 16
_MAGIC = b"\x02"
_SEARCH_BYTES = 1024 * 1024


def good_header(view: memoryview, position: int, offset: int, limit: int) -> tuple[BatchHeader | None, str]:
    """The header, if it can be read, and what is wrong with the batch; its offsets lie in [offset, limit)."""
    try:
        header = read_header(view, position)
    except KafkaError as error:
        return None, error.message or "no batch begins here"
    except struct_error:
        return None, f"{len(view) - position} bytes are left, less than a batch has"
    if position + header.size > len(view):
        return None, f"the batch says it has {header.size} bytes, {len(view) - position} are left"
    if not check_crc(view, position, header):
        return header, "the checksum of the batch is wrong"
    if not offset <= header.base_offset <= header.last_offset < limit:
        return header, f"its offsets {header.base_offset} to {header.last_offset} are out of order"
    return header, ""


def goes_on(
    view: memoryview, position: int, offset: int, limit: int, header: BatchHeader | None
) -> tuple[int, BatchHeader | None]:
    """Where the next good batch begins: behind this one if its length can be trusted, else wherever one is found."""
    if header is not None:
        end = position + header.size
        following, reason = good_header(view, end, offset, limit) if end < len(view) else (None, "")
        if not reason:
            return end, following
    candidate = position + 1
    while (candidate := _next_candidate(view, candidate)) + HEADER_SIZE <= len(view):
        following, reason = good_header(view, candidate, offset, limit)
        if following is not None and not reason:
            return candidate, following
        candidate += 1
    return len(view), None


def _next_candidate(view: memoryview, position: int) -> int:
    """The first position from here on where a batch has its magic number."""
    at = position + _MAGIC_POSITION
    while at < len(view):
        found = bytes(view[at : at + _SEARCH_BYTES]).find(_MAGIC)
        if found >= 0:
            return at + found - _MAGIC_POSITION
        at += _SEARCH_BYTES
    return len(view)


def keep_copy(data_directory: Path, partition: str, segment: int, position: int, data: bytes | memoryview) -> Path:
    """Whoever knows better may want what was taken out."""
    folder = data_directory / KEPT / partition
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{file_name(segment)}.{position}"
    checkpoints.write_atomically(path, bytes(data), sync=True)
    return path
