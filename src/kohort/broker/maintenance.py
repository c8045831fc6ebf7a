"""Housekeeping on a schedule: retention, compaction, expiry of idle producers. Decides when; the logs know how.

Compaction is planned and swapped in by the owner of the core; only the reading and writing in between runs elsewhere.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kohort.protocol.errors import KafkaError

if TYPE_CHECKING:
    from kohort.broker.core import Core
    from kohort.broker.topics import Partition
    from kohort.storage.log import Compaction

MAINTENANCE_MS = 5000

logger = logging.getLogger("kohort.broker")


class CompactionJob:
    """One log at a time, like a single cleaner thread."""

    def __init__(self, maintenance: Maintenance, partition: Partition, compaction: Compaction) -> None:
        self.maintenance = maintenance
        self.partition = partition
        self.compaction = compaction

    def run(self) -> None:
        self.compaction.run()

    def finish(self, error: BaseException | None, now_ms: int) -> None:
        self.maintenance.compacted(self, error, now_ms)


class Maintenance:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._retention_due_ms: int | None = None
        self._cleaning_due_ms: int | None = None
        self._next_due_ms: int | None = None
        self._running: CompactionJob | None = None

    def start(self, now_ms: int) -> None:
        self._retention_due_ms = now_ms + self._interval_ms()
        if self._core.config["log.cleaner.enable"]:
            self._cleaning_due_ms = now_ms + self._core.config["log.cleaner.backoff.ms"]
        self._plan()

    def _plan(self) -> None:
        due = (self._retention_due_ms, self._cleaning_due_ms)
        self._next_due_ms = min((ms for ms in due if ms is not None), default=None)

    def _interval_ms(self) -> int:
        """Retention could wait longer by default, but `flush.ms` and recovery points cannot."""
        return min(self._core.config["log.retention.check.interval.ms"], MAINTENANCE_MS)

    def next_deadline(self) -> int | None:
        return self._next_due_ms

    def on_time(self, now_ms: int) -> None:
        if self._next_due_ms is None or self._next_due_ms > now_ms:
            return
        if self._retention_due_ms is not None and self._retention_due_ms <= now_ms:
            self._retention_due_ms = now_ms + self._interval_ms()
            self._maintain(now_ms)
        if self._cleaning_due_ms is not None and self._cleaning_due_ms <= now_ms:
            self._cleaning_due_ms = now_ms + max(self._core.config["log.cleaner.backoff.ms"], 1)
            if self._running is None:
                self._compact_next(now_ms)
        self._plan()

    def _maintain(self, now_ms: int) -> None:
        topics = self._core.topics.by_name.values()
        watched = [(p, p.log.start_offset) for topic in topics for p in topic.partitions if p.waiters]
        try:
            self._core.store.maintain(now_ms)
        except KafkaError as error:
            logger.error("housekeeping failed: %s", error)
        self._core.changed([p for p, start in watched if p.log.start_offset != start], now_ms)

    def _compact_next(self, now_ms: int) -> None:
        for topic in self._core.topics.by_name.values():
            if not topic.config.compact:
                continue
            for partition in topic.partitions:
                compaction = partition.log.start_compaction(now_ms)
                if compaction is not None:
                    self._running = CompactionJob(self, partition, compaction)
                    self._core.run_elsewhere(self._running)
                    return

    def compacted(self, job: CompactionJob, error: BaseException | None, now_ms: int) -> None:
        self._running = None
        if job.partition.deleted:
            return
        if error is None:
            try:
                job.partition.log.finish_compaction(job.compaction)
            except KafkaError as failed:
                error = failed
        if error is not None:
            logger.error("%s: compaction failed: %s", job.partition, error)
            return
        logger.info("%s: compacted, %d bytes remain", job.partition, job.partition.log.size_bytes)
        self._compact_next(now_ms)
