"""The end of all logs of a data directory: what is not on the disk yet is brought there, then their files are closed.

A sync of each of thousands of files makes a disk wait thousands of times: where many logs have something to sync, the
file system is told once to sync all that it holds. Only those are asked of which it is known that this is as good as a
sync of each file; where they fail, or anything is unusual, each log is synced by itself, and says what went wrong.
"""

from __future__ import annotations

import ctypes
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from kohort.storage.errors import StorageError
from kohort.storage.local_log import LocalLog

logger = logging.getLogger(__name__)

MANY = 64
"""Logs with something to sync, from which on the whole file system is synced."""
_THREADS = 8
_SAY_EVERY_S = 5.0
_TRUSTED = frozenset({"ext3", "ext4", "xfs"})
_TELLS_ERRORS = (5, 8)  # the first Linux whose syncfs does


def close_all(logs: Sequence[LocalLog], held_fd: int, sync: Callable[[int], bool] | None = None) -> bool:
    """Close all logs; False where one could not be. `held_fd` is of a file beside them, open since before they were:
    a file system tells it of every failure meanwhile."""
    unsynced = [log for log in logs if log.failure is None and log.durable_offset < log.end_offset]
    if unsynced:
        logger.info("closing %d logs, %d with records to bring to the disk", len(logs), len(unsynced))
    if len(unsynced) >= MANY:
        _sync_together(unsynced, held_fd, sync or sync_file_system)
    failed: list[LocalLog] = []
    waiting = iter(logs)
    threads = [threading.Thread(target=_close_some, args=(waiting, failed)) for _ in range(min(_THREADS, len(logs)))]
    for thread in threads:
        thread.start()
    say_at = time.monotonic() + _SAY_EVERY_S
    for thread in threads:
        while thread.is_alive():
            thread.join(max(say_at - time.monotonic(), 0))
            if time.monotonic() >= say_at:
                say_at += _SAY_EVERY_S
                logger.info("closing logs: %d of %d are left", sum(not log.closed for log in logs), len(logs))
    return not failed


def _close_some(waiting: Iterator[LocalLog], failed: list[LocalLog]) -> None:
    for log in waiting:
        try:
            log.close()
        except (OSError, StorageError):
            failed.append(log)
        if log.failure is not None:
            failed.append(log)


def _sync_together(logs: Sequence[LocalLog], held_fd: int, sync: Callable[[int], bool]) -> None:
    """Whatever is not known to be on the disk afterwards is left to the end of its log."""
    written: list[tuple[LocalLog, int]] = []
    device = os.fstat(held_fd).st_dev
    for log in logs:
        try:
            if os.stat(log.directory).st_dev == device:
                written.append((log, log.write_out()))
        except OSError:
            pass
    if sync(held_fd):
        for log, offset in written:
            log.synced_with_others(offset)


def sync_file_system(fd: int) -> bool:
    """Whether everything on the file system of this file is on the disk now, and nothing failed since it was opened."""
    syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if syncfs is None or not _is_trusted(os.fstat(fd).st_dev):
        return False
    return bool(syncfs(fd) == 0)


def _is_trusted(device: int) -> bool:
    try:
        major, minor = os.uname().release.split(".")[:2]
        if (int(major), int(minor)) < _TELLS_ERRORS:
            return False
        number = f"{os.major(device)}:{os.minor(device)}"
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as mounts:
            for line in mounts:
                if line.split()[2] == number:
                    return line.partition(" - ")[2].split()[0] in _TRUSTED
    except (OSError, ValueError, IndexError):
        pass
    return False
