"""All logs of a broker: what any store of them does, and one in memory. Which topics exist is the broker's to say.

A data directory is disk_store.py's, several brokers over one store journal_store.py's; neither is needed for memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from kohort.storage.config import LogConfig
from kohort.storage.log import Compaction, Log
from kohort.storage.memory_log import MemoryLog

if TYPE_CHECKING:
    from kohort.storage.inventory import Lost

ConfigFor = Callable[[str], LogConfig]


class Store(ABC):
    """Logs by topic and partition, topic ids, and a few small files of the broker's own."""

    cluster_id: str
    node_id: int
    logs: dict[tuple[str, int], Log]
    topic_ids: dict[str, bytes]
    lost: dict[tuple[str, int], list[Lost]]
    """What was stored once and is not there any more, found at the start."""

    @abstractmethod
    def load(self, config_for: ConfigFor, *, now_ms: int) -> None:
        """Open every log that is there."""

    @abstractmethod
    def create(self, topic: str, partition: int, topic_id: bytes, config: LogConfig, *, now_ms: int) -> Log:
        """A new, empty log; ValueError where there is one."""

    @abstractmethod
    def delete(self, topic: str, partition: int, *, last: bool = True) -> None:
        """Remove a log and all its records; `last` is false where more of the topic go right after it."""

    @abstractmethod
    def write_file(self, name: str, data: bytes) -> None:
        """Keep a small file of the broker (topic configs and the like), atomically and durably."""

    @abstractmethod
    def read_file(self, name: str) -> bytes | None: ...

    @abstractmethod
    def close(self) -> None: ...

    def get(self, topic: str, partition: int) -> Log | None:
        return self.logs.get((topic, partition))

    def partitions(self, topic: str) -> list[int]:
        return sorted(partition for name, partition in self.logs if name == topic)

    def claim(self) -> None:  # noqa: B027
        """From now on what is here is known for this program's."""

    @property
    def has_logs(self) -> bool:
        """Whether there are logs that this program wrote; asked before `load`."""
        return False

    def maintain(self, now_ms: int) -> None:
        """Retention, expiry, flush.ms of all logs; to be called every few seconds."""
        for log in self.logs.values():
            log.maintain(now_ms)

    def compactions(self, now_ms: int) -> Iterator[tuple[Log, Compaction]]:
        """Rounds that are due: `run` each on any thread, then `finish_compaction` on this one."""
        for log in list(self.logs.values()):
            compaction = log.start_compaction(now_ms) if log.config.compact else None
            if compaction is not None:
                yield log, compaction

    @abstractmethod
    def checkpoint(self) -> None:
        """Note recovery points, so that a start after a crash has less to check."""

    def _forget(self, topic: str, partition: int) -> Log:
        log = self.logs.pop((topic, partition), None)
        if log is None:
            raise ValueError(f"there is no log of {topic}-{partition}")
        if (topic, partition + 1) in self.logs or (topic, partition - 1) in self.logs:
            return log  # found without a look at every log of the store
        if not any(name == topic for name, _ in self.logs):
            self.topic_ids.pop(topic, None)
        return log

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class MemoryStore(Store):
    """Everything is gone with the object; `crash` loses what was not flushed, the object then serves the next start."""

    def __init__(self, *, cluster_id: str = "kohort-memory-cluster", node_id: int = 1) -> None:
        self.cluster_id = cluster_id
        self.node_id = node_id
        self.logs = {}
        self.topic_ids = {}
        self._files: dict[str, bytes] = {}

    def load(self, config_for: ConfigFor, *, now_ms: int) -> None:
        for (topic, _), log in self.logs.items():
            log.configure(config_for(topic))

    def create(self, topic: str, partition: int, topic_id: bytes, config: LogConfig, *, now_ms: int) -> MemoryLog:
        if (topic, partition) in self.logs:
            raise ValueError(f"there is a log of {topic}-{partition} already")
        log = self.logs[topic, partition] = MemoryLog(topic, partition, config, now_ms=now_ms)
        self.topic_ids[topic] = topic_id
        return log

    def delete(self, topic: str, partition: int, *, last: bool = True) -> None:
        self._forget(topic, partition)

    def write_file(self, name: str, data: bytes) -> None:
        self._files[name] = data

    def read_file(self, name: str) -> bytes | None:
        return self._files.get(name)

    def crash(self, *, lose_unflushed: bool = True) -> None:
        """A power cut, or with `lose_unflushed=False` a killed process, whose writes the system still holds."""
        for log in self.logs.values():
            assert isinstance(log, MemoryLog)
            log.crash(end_offset=None if lose_unflushed else log.end_offset)

    def checkpoint(self) -> None:
        pass

    def close(self) -> None:
        for log in self.logs.values():
            log.close()
