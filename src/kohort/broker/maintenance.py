"""Housekeeping on a schedule: retention, compaction, expiry of idle producers. Decides when; the logs know how.

Compaction is planned and swapped in by the owner of the core; only the reading and writing in between runs elsewhere.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kohort.config_key import LONG_MAX
from kohort.protocol.errors import KafkaError
from kohort.records.errors import RecordsError

if TYPE_CHECKING:
    from kohort.broker.core import Core
    from kohort.broker.topics import Partition
    from kohort.storage.log import Compaction, Log

RETENTION, CLEANING, FLUSHING, CHECKPOINT = _TASKS = ("retention", "compaction", "flushing", "the checkpoint")
KEYS = "the keys of bearer tokens"
KEYS_CHECK_MS = 1000
FLUSH_CHECK_MS = 1000
FLUSH_CHECK_IDLE_MS = 10_000
CHECKPOINT_MS = 60_000

logger = logging.getLogger("kohort.broker")


class CompactionJob:
    """One log at a time, like a single cleaner thread."""

    def __init__(self, maintenance: Maintenance, partition: Partition, compaction: Compaction) -> None:
        self.maintenance = maintenance
        self.partition = partition
        self.log = partition.log
        self.compaction = compaction

    def run(self) -> None:
        self.compaction.run()

    def finish(self, error: BaseException | None, now_ms: int) -> None:
        self.maintenance.compacted(self, error, now_ms)


class Maintenance:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._due_ms: dict[str, int] = {}
        self.next_due_ms: int | None = None
        self._running: CompactionJob | None = None
        self._failed: set[Partition] = set()
        """Those that failed since the cleaner last looked: the others come first."""
        self.uncleanable: dict[Partition, str] = {}
        """Those with a batch that cannot be read, and why; nobody tries them again before a restart."""

    def start(self, now_ms: int) -> None:
        for task in _TASKS:
            self._due_ms[task] = now_ms + self._interval_ms(task)
        if self._core.tokens is not None:
            self._due_ms[KEYS] = now_ms + KEYS_CHECK_MS
        self.next_due_ms = min(self._due_ms.values())

    def _interval_ms(self, task: str) -> int:
        config = self._core.config
        if task == RETENTION:
            return config.integer("log.retention.check.interval.ms")
        if task == CLEANING:
            return max(config.integer("log.cleaner.backoff.ms"), 1)
        if task == CHECKPOINT:
            return CHECKPOINT_MS
        if task == KEYS:
            return KEYS_CHECK_MS
        flushing = config["kohort.fsync"] == "interval" or any(self._flushed_logs())
        return FLUSH_CHECK_MS if flushing else FLUSH_CHECK_IDLE_MS

    def on_time(self, now_ms: int) -> None:
        if self.next_due_ms is None or self.next_due_ms > now_ms:
            return
        for task, due_ms in self._due_ms.items():
            if due_ms <= now_ms:
                self._due_ms[task] = now_ms + self._interval_ms(task)
                self._run(task, now_ms)
        self.next_due_ms = min(self._due_ms.values())

    def _run(self, task: str, now_ms: int) -> None:
        try:
            if task == RETENTION:
                self._maintain(now_ms)
            elif task == FLUSHING:
                self._flush()
            elif task == CHECKPOINT:
                self._core.store.checkpoint()
            elif task == KEYS:
                tokens = self._core.tokens
                if tokens is not None and tokens.is_stale(now_ms):
                    from kohort.broker.jwks import KeysRefresh

                    self._core.run_elsewhere(KeysRefresh(tokens))
            elif self._running is None and self._core.config["log.cleaner.enable"]:
                self._failed.clear()
                self._compact_next(now_ms)
        except KafkaError as error:
            logger.error("%s failed: %s", task, error)

    def _flush(self) -> None:
        for log in self._flushed_logs():
            if log.durable_offset < log.end_offset:
                log.flush_async()

    def _flushed_logs(self) -> Iterator[Log]:
        """Those with a `flush.ms`; the others leave it to the operating system."""
        return (log for log in self._core.store.logs.values() if log.config.flush_ms < LONG_MAX)

    def _maintain(self, now_ms: int) -> None:
        topics = self._core.topics.by_name.values()
        watched = [(p, p.log.start_offset) for topic in topics for p in topic.partitions if p.waiters]
        self._core.store.maintain(now_ms)
        self._core.changed([p for p, start in watched if p.log.start_offset != start], now_ms)

    def _compact_next(self, now_ms: int) -> None:
        for topic in self._core.topics.by_name.values():
            if not topic.config.compact:
                continue
            for partition in topic.partitions:
                if not partition.leads or partition in self.uncleanable or partition in self._failed:
                    continue
                compaction = partition.log.start_compaction(now_ms)
                if compaction is not None:
                    self._running = CompactionJob(self, partition, compaction)
                    self._core.run_elsewhere(self._running)
                    return

    def compacted(self, job: CompactionJob, error: BaseException | None, now_ms: int) -> None:
        self._running = None
        if job.partition.deleted:
            self.uncleanable.pop(job.partition, None)
            return
        if error is None:
            try:
                job.partition.log.finish_compaction(job.compaction)
            except KafkaError as failed:
                error = failed
        if error is not None and (not job.partition.leads or job.partition.log is not job.log):
            logger.debug("%s: compaction ended, another broker leads it by now: %s", job.partition, error)
        elif error is not None:
            self._give_up(job.partition, error)
        else:
            logger.info("%s: compacted, %d bytes remain", job.partition, job.partition.log.size_bytes)
        self._compact_next(now_ms)

    def _give_up(self, partition: Partition, error: BaseException) -> None:
        """For now, or for good where it is the data that cannot be read."""
        self._failed.add(partition)
        if isinstance(error.__cause__, RecordsError):
            self.uncleanable[partition] = str(error)
            logger.error("%s: uncleanable until a restart, the others go on: %s", partition, error)
        else:
            logger.error("%s: compaction failed: %s", partition, error)
