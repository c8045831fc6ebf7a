"""The one thread of a store that waits for disks: group commit, and file removal that would hold up the owner."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable
from typing import Protocol

from kohort.storage.errors import StorageError
from kohort.storage.log import FlushCallback

logger = logging.getLogger(__name__)


class Flushable(Protocol):
    def synced(self, offset: int, error: StorageError | None) -> None:
        """Everything below `offset` is on disk (or cannot be brought there)."""


class _Request:
    __slots__ = ("callbacks", "files", "offset")

    def __init__(self) -> None:
        self.files: dict[str, None] = {}
        self.offset = 0
        self.callbacks: list[FlushCallback] = []


class Committer:
    """Whatever asks for a sync of a log while another one is under way shares the next one."""

    def __init__(self, sync: Callable[[int], None] = os.fdatasync) -> None:
        self._sync = sync
        self._condition = threading.Condition()
        self._pending: dict[Flushable, _Request] = {}
        self._tasks: list[Callable[[], None]] = []
        self._thread: threading.Thread | None = None
        self._busy = False
        self._stopped = False

    def submit(self, log: Flushable, files: Iterable[str], offset: int, callback: FlushCallback | None) -> None:
        """Sync `files`, tell `log` that it is durable up to `offset`, then call back from the committer's thread."""
        with self._condition:
            request = self._pending.get(log)
            if request is None:
                request = self._pending[log] = _Request()
            request.files.update(dict.fromkeys(files))
            request.offset = max(request.offset, offset)
            if callback is not None:
                request.callbacks.append(callback)
            self._wake()

    def defer(self, task: Callable[[], None]) -> None:
        """Run `task` on the committer's thread; its OSErrors are of no interest."""
        with self._condition:
            self._tasks.append(task)
            self._wake()

    def _wake(self) -> None:
        if self._stopped:
            raise StorageError("the data directory is closed")
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="kohort-committer", daemon=True)
            self._thread.start()
        self._condition.notify_all()

    def drain(self) -> None:
        """Wait until nothing is left to do."""
        with self._condition:
            self._condition.wait_for(lambda: not (self._pending or self._tasks or self._busy))

    def stop(self) -> None:
        self.drain()
        with self._condition:
            self._stopped = True
            self._condition.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._condition:
                self._busy = False
                self._condition.notify_all()
                self._condition.wait_for(lambda: self._pending or self._tasks or self._stopped)
                if self._stopped:
                    return
                pending, self._pending = self._pending, {}
                tasks, self._tasks = self._tasks, []
                self._busy = True
            for log, request in pending.items():
                self._commit(log, request)
            for task in tasks:
                try:
                    task()
                except OSError:
                    pass

    def _commit(self, log: Flushable, request: _Request) -> None:
        error = None
        for path in request.files:
            try:
                self._sync_file(path)
            except OSError as cause:
                error = StorageError(
                    f"cannot sync {path}: {cause.strerror or cause}; the log is offline, check the disk"
                )
                break
        log.synced(request.offset, error)
        for callback in request.callbacks:
            try:
                callback(error)
            except Exception:
                logger.exception("the callback of a flush failed")

    def _sync_file(self, path: str) -> None:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return  # deleted by retention or compaction: nothing to keep
        try:
            self._sync(fd)
        finally:
            os.close(fd)
