"""Logs and where they are kept: segment files in Kafka's format, or memory with injectable faults.

What is of data directories is imported on first use: a broker in memory needs none of it.
"""

from typing import TYPE_CHECKING

from kohort.lazy_names import imported_on_use
from kohort.storage.config import CONFIG_KEYS, LogConfig
from kohort.storage.errors import DataDirInUse, InvalidConfig, OffsetOutOfRange, StorageError
from kohort.storage.log import AbortedTxn, Appended, Compaction, FoundOffset, Log
from kohort.storage.memory_log import DiskFaults, MemoryLog
from kohort.storage.producers import ProducerStates, Verdict
from kohort.storage.store import MemoryStore, Store

if TYPE_CHECKING:
    from kohort.storage.disk_store import LogStore
    from kohort.storage.local_log import LocalLog

__all__ = [
    "CONFIG_KEYS",
    "AbortedTxn",
    "Appended",
    "Compaction",
    "DataDirInUse",
    "DiskFaults",
    "FoundOffset",
    "InvalidConfig",
    "LocalLog",
    "Log",
    "LogConfig",
    "LogStore",
    "MemoryLog",
    "MemoryStore",
    "OffsetOutOfRange",
    "ProducerStates",
    "StorageError",
    "Store",
    "Verdict",
]

_HOMES = {"LocalLog": "kohort.storage.local_log", "LogStore": "kohort.storage.disk_store"}

if not TYPE_CHECKING:  # a type checker knows the names above, and that there are no others
    __getattr__ = imported_on_use(globals(), _HOMES)
