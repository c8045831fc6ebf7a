"""Whether bytes of a file are in memory, and getting them there: so that an event loop never waits for a disk."""

from __future__ import annotations

import os

_PROBE_BYTES = 128 * 1024  # the kernel reads ahead in such stretches


def is_cached(fd: int, start: int, end: int) -> bool:
    """Asks for a byte here and there without waiting for it. True where the system cannot tell."""
    if not hasattr(os, "RWF_NOWAIT"):
        return True
    byte = [bytearray(1)]
    for position in (*range(start, end, _PROBE_BYTES), end - 1):
        try:
            os.preadv(fd, byte, position, os.RWF_NOWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True
    return True


def read_through(path: str, start: int, end: int) -> None:
    """Read a stretch of a file for the sake of the page cache; runs on any thread."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        while start < end and (data := os.pread(fd, min(end - start, 1024 * 1024), start)):
            start += len(data)
    finally:
        os.close(fd)
