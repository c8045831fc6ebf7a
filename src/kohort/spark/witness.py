"""A process that tells of another one's violent end: kill -9 and want of memory leave no time for words.

It is a fork that sleeps in one read of a pipe, opens nothing and holds nothing of its parent's but stderr.
"""

from __future__ import annotations

import contextlib
import os
import signal
import warnings
from collections.abc import Callable

_GOODBYE = b"!"
_FIRST_OTHER = 3
"""File descriptors after stdin, stdout and stderr."""


def watch(last_words: str) -> Callable[[], None]:
    """`last_words` go to stderr if this process ends without calling the function that is returned."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python warns of forks beside threads; the child calls the kernel and no more
        child = os.fork()
    if child == 0:
        _wait_and_tell(reading, last_words.encode() + b"\n")
    os.close(reading)

    def goodbye() -> None:
        with contextlib.suppress(OSError):
            os.write(writing, _GOODBYE)
            os.close(writing)
            os.waitpid(child, 0)

    return goodbye


def _wait_and_tell(reading: int, text: bytes) -> None:
    try:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        os.dup2(reading, 0)
        os.close(1)
        os.closerange(_FIRST_OTHER, os.sysconf("SC_OPEN_MAX"))
        if os.read(0, 1) != _GOODBYE:
            os.write(2, text)
    finally:
        os._exit(0)
