"""Logs and where they are kept: segment files in Kafka's format, or memory with injectable faults."""

from kohort.storage.config import CONFIG_KEYS, LogConfig
from kohort.storage.errors import DataDirInUse, InvalidConfig, OffsetOutOfRange, StorageError
from kohort.storage.local_log import LocalLog
from kohort.storage.log import AbortedTxn, Appended, Compaction, FoundOffset, Log
from kohort.storage.memory_log import DiskFaults, MemoryLog
from kohort.storage.producers import ProducerStates, Verdict
from kohort.storage.store import LogStore, MemoryStore, Store

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
