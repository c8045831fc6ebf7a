"""The .txnindex file of a segment: its aborted transactions, 34 bytes each, in Kafka's format."""

from __future__ import annotations

import os
from struct import Struct

from kohort.storage.checkpoints import read_file
from kohort.storage.log import AbortedTxn

_ENTRY = Struct(">hqqqq")
_VERSION = 0


def read_aborted(path: str) -> list[AbortedTxn]:
    """The entries in the order of their markers; a torn last one is left out."""
    data = read_file(path) or b""
    whole = data[: len(data) - len(data) % _ENTRY.size]
    return [AbortedTxn(*entry[1:]) for entry in _ENTRY.iter_unpack(whole)]


def append_aborted(path: str, txn: AbortedTxn) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        os.write(fd, _ENTRY.pack(_VERSION, *txn))
    finally:
        os.close(fd)
