"""The files of a segment, in Kafka's format: NNN.log, .index, .timeindex and, after an abort, .txnindex.

Appends are one write. Reads are slices of a memory map; only what was written after the map was made, and is small,
is read with pread, which is cheaper than a new map up to some 128 KB (1.4 us against 13 us for 1 KB). What the bytes
mean is in local_segment.py.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence

from kohort.storage.errors import StorageError, advice
from kohort.storage.handles import Handles
from kohort.storage.log import Buffer
from kohort.storage.segment import Segment

LOG, INDEX, TIME_INDEX, TXN_INDEX = ".log", ".index", ".timeindex", ".txnindex"
SUFFIXES = (LOG, INDEX, TIME_INDEX, TXN_INDEX)
CLEANED, SWAP, DELETED = ".cleaned", ".swap", ".deleted"

_PREAD_BYTES = 128 * 1024
_UNMAPPED_BYTES = 1024 * 1024  # a map may lag that far behind the end of the active segment
_JOIN_BYTES = 32 * 1024
_MAX_PARTS = 512
_RETRIES_FOR_SHORT_WRITES = 1000


def file_name(base_offset: int) -> str:
    return f"{base_offset:020d}"


class SegmentFiles(Segment):
    """Opens its files when they are needed; `Handles` closes those of segments that have not been used for long."""

    __slots__ = ("_fd", "_map", "_torn", "directory", "handles", "sealed", "suffix", "used")

    def __init__(self, directory: str, base_offset: int, *, handles: Handles, created_ms: int, suffix: str) -> None:
        super().__init__(base_offset, created_ms)
        self.directory = directory
        self.suffix = suffix
        self.handles = handles
        self.sealed = False
        self.used = False  # since Handles last looked
        self._fd: int | None = None
        self._map: memoryview | None = None
        self._torn = False  # bytes of a failed write may follow the last good batch

    def path(self, kind: str) -> str:
        return f"{self.directory}/{self.base_offset:020d}{kind}{self.suffix}"

    # --- writing

    def create(self) -> None:
        """Make the empty log file: its name carries the end of the log across a restart."""
        self.fd(os.O_CREAT)

    def fd(self, flags: int = 0) -> int:
        """A descriptor for appending and reading; stays open until `release`."""
        if self._fd is None:
            try:
                self._fd = os.open(self.path(LOG), os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | flags, 0o644)
            except OSError as error:
                raise self._storage_error("open", error) from error
            self.handles.opened(self)
        self.used = True
        return self._fd

    def write(self, parts: Sequence[Buffer], size: int) -> None:
        fd = self.fd()
        try:
            if self._torn:
                os.ftruncate(fd, self.size)
                self._torn = False
            if size <= _JOIN_BYTES:
                written = os.write(fd, b"".join(parts))
            elif len(parts) <= _MAX_PARTS:
                written = os.writev(fd, parts)
            else:
                written = os.write(fd, b"".join(parts))
            if written < size:
                self._write_rest(fd, b"".join(parts), written)
        except OSError as error:
            self._torn = True
            self._drop_torn_bytes(fd)
            raise self._storage_error("append to", error) from error

    def _write_rest(self, fd: int, data: bytes, written: int) -> None:
        """A short write: a disk that fills up (the next write says so), or a signal."""
        for _ in range(_RETRIES_FOR_SHORT_WRITES):
            written += os.write(fd, memoryview(data)[written:])
            if written == len(data):
                return
        raise OSError("the file system keeps cutting writes short")

    def _drop_torn_bytes(self, fd: int) -> None:
        try:
            os.ftruncate(fd, self.size)
            self._torn = False
        except OSError:
            pass  # tried again before the next write; recovery would drop them too

    def cut(self, size: int) -> None:
        """Nothing is kept behind `size`."""
        os.ftruncate(self.fd(), size)
        self.size = size
        self._map = None

    def keep_only(self, kept: Sequence[memoryview]) -> None:
        """The log file has these bytes from now on, all at once or not at all."""
        path = self.path(LOG)
        with open(f"{path}.tmp", "wb") as file:
            for part in kept:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        SegmentFiles.release(self)
        os.replace(f"{path}.tmp", path)
        self.size = sum(map(len, kept))

    # --- reading

    def view(self, start: int, end: int) -> memoryview:
        """The bytes of the log file between two positions; valid for as long as it is held."""
        mapped = self._map
        if mapped is None or end > len(mapped):
            if end - start <= _PREAD_BYTES and self.size - (0 if mapped is None else len(mapped)) <= _UNMAPPED_BYTES:
                return self._pread(start, end)
            mapped = self._remap()
        self.used = True
        return mapped[start:end]

    def _pread(self, start: int, end: int) -> memoryview:
        try:
            data = os.pread(self.fd(), end - start, start)
        except OSError as error:
            raise self._storage_error("read", error) from error
        if len(data) < end - start:
            raise StorageError(f"{self.path(LOG)} is shorter than it was: has it been changed by hand?")
        return memoryview(data)

    def _remap(self) -> memoryview:
        """Map the whole file. Maps in use by earlier reads live on until those views are dropped."""
        try:
            fd = os.open(self.path(LOG), os.O_RDONLY | os.O_CLOEXEC) if self._fd is None else self._fd
            try:
                mapped = memoryview(mmap.mmap(fd, self.size, prot=mmap.PROT_READ))
            finally:
                if fd != self._fd:
                    os.close(fd)
        except (OSError, ValueError) as error:
            raise self._storage_error("map", error) from error
        self._map = mapped
        self.handles.opened(self)
        return mapped

    def last_modified_ms(self) -> int:
        try:
            return os.stat(self.path(LOG)).st_mtime_ns // 1_000_000
        except OSError:
            return self.created_ms

    # --- all files

    def sync(self, kinds: Sequence[str] = SUFFIXES) -> None:
        """Bring the segment's files to the disk."""
        for kind in kinds:
            try:
                fd = os.open(self.path(kind), os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            try:
                os.fdatasync(fd)
            finally:
                os.close(fd)

    def rename(self, suffix: str) -> None:
        for kind in SUFFIXES:
            old = self.path(kind)
            new = old[: len(old) - len(self.suffix)] + suffix
            try:
                os.rename(old, new)
            except FileNotFoundError:
                pass
        self.suffix = suffix

    def delete(self) -> None:
        """Remove the files. Views of the map stay valid, since the kernel keeps an unlinked file that is mapped."""
        self.release()
        for kind in SUFFIXES:
            try:
                os.unlink(self.path(kind))
            except FileNotFoundError:
                pass

    def release(self) -> None:
        """Let go of descriptors and maps; they are opened again when needed."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
        self._map = None

    def _storage_error(self, what: str, error: Exception) -> StorageError:
        reason = getattr(error, "strerror", None) or str(error)
        todo = advice(error) if isinstance(error, OSError) else "retry"
        return StorageError(f"cannot {what} {self.path(LOG)}: {reason}; nothing was kept of it, {todo}")
