"""The logs of a broker in a cluster: one for every partition, most of them places of what another broker leads."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kohort.protocol.uuids import to_base64
from kohort.storage.config import LogConfig
from kohort.storage.errors import StorageError
from kohort.storage.journal_log import JournalLog
from kohort.storage.store import ConfigFor, Store


class JournalStore(Store):
    """Which logs there are, and which of them are led, is the cluster's to say."""

    def __init__(self, *, cluster_id: str, node_id: int) -> None:
        self.cluster_id = cluster_id
        self.node_id = node_id
        self.logs: dict[tuple[str, int], JournalLog] = {}  # type: ignore[assignment]
        self.topic_ids = {}
        self.documents: Mapping[str, str] = {}
        self.keep: Callable[[str, bytes], None] | None = None

    def load(self, config_for: ConfigFor, *, now_ms: int) -> None:
        pass

    def create(self, topic: str, partition: int, topic_id: bytes, config: LogConfig, *, now_ms: int) -> JournalLog:
        log = JournalLog(topic, partition, config, topic_id=to_base64(topic_id), now_ms=now_ms)
        self.topic_ids[topic] = topic_id
        self.logs[topic, partition] = log
        return log

    def put(self, log: JournalLog) -> None:
        """Another log in the place of one."""
        self.logs[log.topic, log.partition] = log

    def delete(self, topic: str, partition: int, *, last: bool = True) -> None:
        self._forget(topic, partition)

    def write_file(self, name: str, data: bytes) -> None:
        """What is kept for all brokers; it is there when it comes back through the meta log."""
        if self.keep is None:
            raise StorageError(f"{name} cannot be written before the broker is a member of the cluster")
        self.keep(name, data)

    def read_file(self, name: str) -> bytes | None:
        found = self.documents.get(name)
        return found.encode() if found is not None else None

    def checkpoint(self) -> None:
        pass

    def close(self) -> None:
        pass
