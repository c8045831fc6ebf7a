"""A store in a directory that all brokers see: processes of one machine, or a shared file system with hard links.

An object is written aside, brought to the disk and then linked to its name: `link` fails where the name is taken, so of
all who create a name one succeeds, and nobody ever sees half of an object. The steps are one call of a C library where
it was built (_create.c), so that a busy interpreter does not come between them.

What a process that was killed had aside stays there until a broker starts that finds it old. Whoever was only slow, and
loses it so, does not know how its write ended, and writes again: that is safe, and rare.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from kohort.cluster import create_library
from kohort.cluster.create_library import in_one_call
from kohort.cluster.engine import Creating, Engine, EngineError, Exists, Missing

_ASIDE = ".tmp"
_ABANDONED_S = 600
"""Nobody takes that long to write an object."""
_FULL = "; make room there, and the brokers go on by themselves"
_CLOSED = "; give this user the right to read, write and delete there, and the brokers go on by themselves"
_WHAT_TO_DO = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EACCES: _CLOSED,
    errno.EPERM: _CLOSED,
    errno.EROFS: "; mount it writable, and the brokers go on by themselves",
    errno.EIO: "; look after the disk, and the brokers go on by themselves",
}


class DirectoryEngine(Engine):
    poll_ms = 100

    def __init__(self, path: str | os.PathLike[str], *, create: bool = True) -> None:
        self.root = Path(path).absolute()
        self.name = str(self.root)
        self._known: set[str] = set()
        self._create = in_one_call() or in_steps
        if not create:
            if not self.root.is_dir():
                raise EngineError(f"there is no directory {self.root}: is it the one that the brokers were given?")
            return
        try:
            (self.root / _ASIDE).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise EngineError(
                f"the directory {self.root} cannot be used, {error.strerror}: make it writable for this user, or "
                "choose another one"
            ) from None
        self._clean_up()

    def _clean_up(self) -> None:
        """What is old aside, by the clock of the file system, which all machines share. Whatever fails is tried at the
        next start."""
        with suppress(OSError), os.scandir(f"{self.root}/{_ASIDE}") as rows:
            found = list(rows)
            if not found:
                return
            now = self._aside()
            _write(now, b"")
            try:
                now_s = os.stat(now).st_mtime
            finally:
                os.unlink(now)
            for row in found:
                with suppress(FileNotFoundError):
                    if now_s - row.stat().st_mtime > _ABANDONED_S:
                        os.unlink(row.path)

    def _aside(self) -> str:
        return f"{self.root}/{_ASIDE}/{os.getpid()}-{os.urandom(8).hex()}"

    def create(self, name: str, data: bytes) -> None:
        parent, _, _ = name.rpartition("/")
        try:
            self._make(parent)
            is_new = self._create(self._aside(), f"{self.root}/{name}", f"{self.root}/{parent}", data)
        except OSError as error:
            raise self._failed("write", name, error) from None
        if not is_new:
            raise Exists(name)

    def creating(self) -> Creating | None:
        return CreatingFiles(self) if self._create is in_one_call() else None

    def _make(self, folder: str) -> None:
        if folder in self._known:
            return
        whole = self.root
        for part in folder.split("/"):
            above, whole = whole, whole / part
            if not whole.is_dir():
                whole.mkdir(exist_ok=True)
                _sync(str(above))
        self._known.add(folder)

    def get(self, name: str) -> bytes:
        try:
            with open(f"{self.root}/{name}", "rb", buffering=0) as file:
                return file.read()
        except FileNotFoundError:
            raise Missing(name) from None
        except OSError as error:
            raise self._failed("read", name, error) from None

    def get_range(self, name: str, position: int, size: int) -> bytes:
        try:
            with open(f"{self.root}/{name}", "rb", buffering=0) as file:
                file.seek(position)
                parts, left = [], size
                while left and (part := file.read(left)):
                    parts.append(part)
                    left -= len(part)
                return b"".join(parts)
        except FileNotFoundError:
            raise Missing(name) from None
        except OSError as error:
            raise self._failed("read", name, error) from None

    def list(self, prefix: str) -> list[str]:
        try:
            return sorted(f"{prefix}{name}" for name in os.listdir(f"{self.root}/{prefix}"))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._failed("list", prefix, error) from None

    def delete(self, name: str) -> None:
        try:
            os.unlink(f"{self.root}/{name}")
        except FileNotFoundError:
            pass
        except OSError as error:
            raise self._failed("delete", name, error) from None

    def delete_all(self, names: Sequence[str]) -> None:
        try:
            if create_library.delete([f"{self.root}/{name}" for name in names]):
                return
        except OSError as error:
            raise self._failed("delete", f"one of {len(names)} objects", error) from None
        super().delete_all(names)

    def _failed(self, verb: str, name: str, error: OSError) -> EngineError:
        what = _WHAT_TO_DO.get(error.errno or 0, "")
        return EngineError(f"cannot {verb} {name} in {self.root}: {error.strerror or error}{what}")


class CreatingFiles(Creating):
    """By threads of the library: none of the interpreter waits for the disk."""

    def __init__(self, engine: DirectoryEngine) -> None:
        self._engine = engine
        self._creates = create_library.Creates()
        self.fd = self._creates.fd

    def begin(self, key: object, name: str, data: bytes) -> bool:
        engine = self._engine
        folder, _, _ = name.rpartition("/")
        if folder not in engine._known:
            return False
        path = f"{engine.root}/{name}"
        return self._creates.begin((key, name), engine._aside(), path, f"{engine.root}/{folder}", data)

    def ended(self) -> list[tuple[Any, Exception | None]]:
        return [(key, self._error(name, outcome)) for (key, name), outcome in self._creates.ended()]

    def _error(self, name: str, outcome: bool | OSError) -> Exception | None:
        if isinstance(outcome, OSError):
            return self._engine._failed("write", name, outcome)
        return None if outcome else Exists(name)

    def close(self) -> None:
        self._creates.close()


def in_steps(aside: str, path: str, folder: str, data: bytes) -> bool:
    """Without the library."""
    _write(aside, data)
    try:
        os.link(aside, path)
    except FileExistsError:
        is_new = False
    else:
        is_new = True
    finally:
        os.unlink(aside)
    # Also where the name was taken: whoever finds the object there rests on it, and who linked it may not be so far.
    _sync(folder)
    return is_new


def _write(path: str, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(fd, rest) :]
        os.fdatasync(fd)
    except BaseException:
        os.unlink(path)
        raise
    finally:
        os.close(fd)


def _sync(directory: str) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
