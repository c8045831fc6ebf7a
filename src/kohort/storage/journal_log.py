"""A partition whose records are safe in a journal that all brokers can read; its leader has them in memory.

The high watermark is what the journal has. What is read back at a take-over comes in through `restore`. Of the journal
only its writer's interface is known here.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any, Protocol

from kohort.protocol.errors import ErrorCode
from kohort.records.batch import iter_batches
from kohort.storage.config import LogConfig
from kohort.storage.errors import StorageError
from kohort.storage.log import Buffer, FlushCallback
from kohort.storage.memory_log import MemoryLog

_EVERYTHING = 1 << 62


class Journal(Protocol):
    def add(self, log: Any) -> None:
        """The log has something to store."""


def not_led(topic: str, partition: int) -> StorageError:
    return StorageError(f"{topic}-{partition} is led by another broker", ErrorCode.NOT_LEADER_OR_FOLLOWER)


class JournalLog(MemoryLog):
    """Without a journal it is the place of a partition that another broker leads: nothing can be appended."""

    def __init__(
        self, topic: str, partition: int, config: LogConfig, *, topic_id: str, epoch: int = -1, now_ms: int = 0
    ) -> None:
        super().__init__(topic, partition, _journaled(config), now_ms=now_ms)
        self.topic_id = topic_id
        self.epoch = epoch
        self.manifest: Any = None  # the last one, as cluster/ knows it
        self.is_settled = True  # whether no journal of an earlier leader is needed any more
        self.was_compacted = False  # since the last manifest
        self.stored_seq = -1  # the last slot of the journal that has something of this log
        self.first_seq: int | None = None  # the first slot that has something which no manifest covers
        self._journal: Journal | None = None
        self._journaled_offset = 0
        self._journaled_start = 0
        self._waiting: deque[tuple[int, FlushCallback | None]] = deque()
        self.failure = not_led(topic, partition)

    def lead(self, journal: Journal) -> None:
        """Appends go to this journal from now on; what is there is safe already."""
        self._journal = journal
        self.failure = None
        self.durable_offset = self._journaled_offset = self.end_offset
        self._journaled_start = self.start_offset

    def configure(self, config: LogConfig) -> None:
        self.config = _journaled(config)
        self._use(self.config)

    # --- what comes back at a take-over

    def restore(self, data: Buffer, epoch: int | None = None) -> None:
        """Batches as they were written, with their offsets; gaps are compaction's."""
        view = memoryview(data)
        stamps, self._stamps = self._stamps, False
        failure, self.failure = self.failure, None
        try:
            for pos, header in iter_batches(view):
                if header.last_offset < self.end_offset:
                    continue
                self.end_offset = header.base_offset
                self.append(
                    view[pos : pos + header.size],
                    leader_epoch=header.partition_leader_epoch if epoch is None else epoch,
                    now_ms=header.max_timestamp,
                )
        finally:
            self._stamps, self.failure = stamps, failure
        self.durable_offset = self.end_offset

    def restore_start(self, start_offset: int) -> None:
        if start_offset > self.start_offset:
            self._move_start(start_offset)
            self.end_offset = max(self.end_offset, start_offset)

    # --- durability

    @property
    def high_watermark(self) -> int:
        return self.durable_offset

    def flush(self) -> None:
        """Nobody can wait here for a store; whoever needs it durable asks with flush_async."""
        self.flush_async()

    def flush_async(self, callback: FlushCallback | None = None) -> None:
        self._unflushed_records = 0
        if self.failure is not None or self._journal is None or self.durable_offset >= self.end_offset:
            if callback is not None:
                callback(self.failure)
            return
        if callback is not None:
            self._waiting.append((self.end_offset, callback))
        self._journal.add(self)

    def take_unjournaled(self, max_bytes: int) -> tuple[int, int, list[Any]]:
        base_offset = self._journaled_offset
        if base_offset >= self.end_offset:
            return base_offset, base_offset, []
        views = self.read(max(base_offset, self.start_offset), _EVERYTHING)
        self._journaled_offset = self.end_offset
        return base_offset, self.end_offset, views

    def take_start(self) -> int | None:
        if self._journaled_start == self.start_offset:
            return None
        self._journaled_start = self.start_offset
        return self.start_offset

    def stored_to(self, offset: int, seq: int) -> None:
        self.stored_seq = seq
        if self.first_seq is None:
            self.first_seq = seq
        self.durable_offset = max(self.durable_offset, offset)
        while self._waiting and self._waiting[0][0] <= offset:
            _, callback = self._waiting.popleft()
            if callback is not None:
                callback(None)

    def stored_batches(self, offset: int) -> list[tuple[memoryview, int]]:
        """What is stored from an offset on: bytes of whole batches, and the offset that follows each."""
        found = []
        if offset < self.durable_offset:
            for view in self.read(max(offset, self.start_offset), _EVERYTHING, max_offset=self.durable_offset):
                for pos, header in iter_batches(view):
                    found.append((view[pos : pos + header.size], header.next_offset))
        return found

    def give_up(self, error: StorageError) -> None:
        """Led elsewhere, or the journal is over: what was not stored was never acknowledged."""
        self.failure = error
        self._journal = None
        waiting, self._waiting = self._waiting, deque()
        for _, callback in waiting:
            if callback is not None:
                callback(error)

    def _compacted(self) -> None:
        self.was_compacted = True

    def _start_moved(self) -> None:
        if self._journal is not None:
            self._journal.add(self)

    def close(self) -> None:
        pass


def _journaled(config: LogConfig) -> LogConfig:
    """An append counts once it is stored."""
    return replace(config, flush_messages=1)
