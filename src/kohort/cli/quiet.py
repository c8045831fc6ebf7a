"""A command that starts Spark: what the JVM and its workers write to standard error is kept from the reader.

It goes to a file, of which the end is shown if the command fails; `Progress` says what is going on meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from typing import IO

from kohort.cli.failures import Failed

SHOWN_LINES = 40


@contextlib.contextmanager
def quiet_processes() -> Iterator[None]:
    """Descriptor 2 leads to a file, for this process's children too; sys.stderr stays where it was."""
    sys.stderr.flush()
    try:
        real = os.dup(2)
    except OSError:  # there is none: nothing to be quiet about
        yield
        return
    shown, before = os.fdopen(os.dup(real), "w", buffering=1, encoding="utf-8", errors="replace"), sys.stderr
    with tempfile.TemporaryFile() as kept, shown:
        os.dup2(kept.fileno(), 2)
        if before is sys.__stderr__:
            sys.stderr = shown
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield
        except Exception as error:
            if not isinstance(error, Failed):  # which has a sentence of its own
                _tell(kept, shown)
            raise
        finally:
            sys.stderr = before
            os.dup2(real, 2)
            os.close(real)


def _tell(kept: IO[bytes], shown: IO[str]) -> None:
    kept.seek(0)
    lines = kept.read().decode(errors="replace").splitlines()[-SHOWN_LINES:]
    shown.write("".join(f"{line}\n" for line in lines))


class Progress:
    """One line on a terminal that says what is being done; nothing in a pipe."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()

    def say(self, text: str) -> None:
        if self._live:
            sys.stderr.write(f"\r\x1b[K{text} ...")
            sys.stderr.flush()

    def clear(self) -> None:
        if self._live:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
