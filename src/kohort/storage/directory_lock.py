"""One process at a time works on a data directory: Kafka's lock file, which names its holder."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from kohort.storage import checkpoints
from kohort.storage.errors import DataDirInUse

_held: set[str] = set()  # POSIX locks do not exclude the own process


class DirectoryLock:
    """Taken when it is made; DataDirInUse where somebody else has it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._key = os.path.realpath(directory)
        if self._key in _held:
            raise self._in_use(os.getpid())
        fd = os.open(directory / checkpoints.LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.read(fd, 32).decode(errors="replace").strip()
            os.close(fd)
            raise self._in_use(holder or "unknown") from None
        os.ftruncate(fd, 0)
        os.write(fd, f"{os.getpid()}\n".encode())
        _held.add(self._key)
        self.fd = fd

    @property
    def is_held(self) -> bool:
        return self._key in _held

    def release(self) -> None:
        _held.discard(self._key)
        os.close(self.fd)

    def _in_use(self, pid: int | str) -> DataDirInUse:
        return DataDirInUse(
            f"data directory {self._directory} is in use by another broker (pid {pid}): "
            "stop it or choose another --data-dir"
        )
