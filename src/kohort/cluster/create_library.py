"""The C library that creates objects of a directory, where it was built (_create.c): how it is called, nothing else.

in_one_call()     a function that creates one object, all of its steps in one call, or None
delete()          many files in one call, where the library is there
Creates           creates without a thread that waits: the library has its own, and tells through a pipe
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from struct import Struct
from typing import Any

_VERSION = 2
_TAKEN = -1
_ANSWER = Struct("=qq")  # which, and how it ended
_READ_BYTES = 256 * _ANSWER.size

Create = Callable[[str, str, str, bytes], bool]
"""(path aside, path, folder, data) -> whether the name was free. On disk in any case; OSError where it may not be."""


@cache
def _library() -> Any:
    """If it was built and loads here, else None."""
    try:
        library = ctypes.CDLL(str(Path(__file__).with_name("_create.so")))
        library.kohort_create_version.restype = ctypes.c_int64
        if library.kohort_create_version() != _VERSION:
            return None
        text, number = ctypes.c_char_p, ctypes.c_int64
        library.kohort_create.argtypes = [text, text, text, text, number]
        library.kohort_begin.argtypes = [number, number, text, text, text, text, number]
        library.kohort_delete.argtypes = [text, number]
        for function in (library.kohort_create, library.kohort_begin, library.kohort_delete):
            function.restype = number
    except (OSError, AttributeError):
        return None
    return library


@cache
def in_one_call() -> Create | None:
    library = _library()
    if library is None:
        return None

    def create(aside: str, path: str, folder: str, data: bytes) -> bool:
        result = library.kohort_create(os.fsencode(aside), os.fsencode(path), os.fsencode(folder), data, len(data))
        return _was_free(result)

    return create


def _was_free(result: int) -> bool:
    if result > 0:
        raise OSError(result, os.strerror(result))
    return result != _TAKEN


def delete(paths: Sequence[str]) -> bool:
    """False without the library; OSError where one of them may still be there, the others are tried."""
    library = _library()
    if library is None:
        return False
    result = library.kohort_delete(b"".join(os.fsencode(path) + b"\0" for path in paths), len(paths))
    if result:
        raise OSError(result, os.strerror(result))
    return True


class Creates:
    """What is under way, each with a key of whoever asked. `fd` can be read when something has ended."""

    def __init__(self) -> None:
        self.fd, self._out = os.pipe()
        os.set_blocking(self.fd, False)
        self._library = _library()
        self._keys: dict[int, Any] = {}
        self._next = 0

    def begin(self, key: object, aside: str, path: str, folder: str, data: bytes) -> bool:
        """Whether it is under way; else nothing was done."""
        names = os.fsencode(aside), os.fsencode(path), os.fsencode(folder)
        if self._library.kohort_begin(self._next, self._out, *names, data, len(data)):
            return False
        self._keys[self._next] = key
        self._next += 1
        return True

    def ended(self) -> list[tuple[Any, bool | OSError]]:
        """In the order in which they ended: the key, and whether the name was free, or what went wrong."""
        found: list[tuple[Any, bool | OSError]] = []
        with contextlib.suppress(BlockingIOError):
            for number, result in _ANSWER.iter_unpack(os.read(self.fd, _READ_BYTES)):
                try:
                    outcome: bool | OSError = _was_free(result)
                except OSError as error:
                    outcome = error
                found.append((self._keys.pop(number), outcome))
        return found

    def close(self) -> None:
        """The library writes to the pipe whatever happens here: as long as something is under way it stays."""
        if not self._keys:
            os.close(self.fd)
            os.close(self._out)
