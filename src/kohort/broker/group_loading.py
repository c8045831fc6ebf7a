"""Reading `__consumer_offsets` back at start: a slice a turn, so that the broker serves others meanwhile."""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

from kohort.coordinator.scan import key_values
from kohort.protocol.errors import KafkaError
from kohort.records.batch import iter_batches
from kohort.records.errors import CorruptBatch

if TYPE_CHECKING:
    from kohort.broker.topics import Partition
    from kohort.coordinator.coordinator import Coordinator
    from kohort.coordinator.effects import Effects

logger = logging.getLogger("kohort.groups")

RECORDS_PER_SLICE = 2_000
BYTES_PER_SLICE = 128 * 1024
PROGRESS_EVERY_MS = 5_000


class _Load:
    """One partition on its way into the coordinator."""

    __slots__ = ("end_offset", "next_offset", "partition", "started_ms")

    def __init__(self, partition: Partition, now_ms: int) -> None:
        self.partition = partition
        self.next_offset = partition.log.start_offset
        self.end_offset = partition.log.end_offset
        self.started_ms = now_ms


class GroupLoader:
    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._loads: deque[_Load] = deque()
        self._total = 0
        self._records = 0
        self._started_ms = 0
        self._said_ms = 0

    def __bool__(self) -> bool:
        return bool(self._loads)

    def start(self, partitions: list[Partition], now_ms: int, effects: Effects) -> None:
        """Empty partitions answer at once; the others when they have been read."""
        self._started_ms = self._said_ms = now_ms
        for partition in partitions:
            self._coordinator.load_started(partition.index, partition.leader_epoch)
            if partition.log.end_offset > partition.log.start_offset:
                self._loads.append(_Load(partition, now_ms))
            else:
                self._coordinator.load_finished(partition.index, now_ms, effects)
        self._total = len(self._loads)

    def cancel(self) -> None:
        self._loads.clear()

    def step(self, now_ms: int, effects: Effects) -> None:
        """The next slice."""
        load = self._loads[0]
        partition = load.partition
        if load.next_offset < load.end_offset:
            self._read(load, now_ms)
        elif self._coordinator.settle(partition.index, now_ms, RECORDS_PER_SLICE):
            self._loads.popleft()
            self._coordinator.load_finished(partition.index, now_ms, effects)
            self._finished(load, now_ms)
        if now_ms - self._said_ms >= PROGRESS_EVERY_MS and self._loads:
            self._said_ms = now_ms
            logger.info(
                "loading groups: %d of %d partitions, %d records so far",
                self._total - len(self._loads),
                self._total,
                self._records,
            )

    def _read(self, load: _Load, now_ms: int) -> None:
        log = load.partition.log
        count = 0
        start = load.next_offset
        try:
            chunks = log.read(max(start, log.start_offset), BYTES_PER_SLICE, max_offset=load.end_offset)
        except KafkaError as error:
            logger.error("%s cannot be read from offset %d on: %s", load.partition, start, error)
            chunks = []
        for chunk in chunks:
            for pos, header in iter_batches(chunk):
                load.next_offset = header.next_offset
                try:
                    count += self._replay(load, chunk, pos, header, now_ms)
                except CorruptBatch as error:
                    logger.error("%s: skipped the batch at offset %d: %s", load.partition, header.base_offset, error)
        self._records += count
        if load.next_offset <= start:
            load.next_offset = load.end_offset  # nothing more to be had: go on with what there is

    def _replay(self, load: _Load, chunk: memoryview, pos: int, header, now_ms: int) -> int:
        coordinator, index = self._coordinator, load.partition.index
        if header.is_control:
            for _, key, _ in key_values(chunk, pos, header):
                committed = int.from_bytes(key[2:4], "big") == 1
                coordinator.replay_marker(index, header.producer_id, committed, now_ms)
            return 0
        producer_id = header.producer_id if header.is_transactional else -1
        count = 0
        for offset, key, value in key_values(chunk, pos, header):
            coordinator.replay(index, key, value, now_ms, offset, producer_id)
            count += 1
        return count

    def _finished(self, load: _Load, now_ms: int) -> None:
        records, skipped = self._coordinator.load_progress(load.partition.index)
        logger.info("loaded %s: %d records in %d ms", load.partition, records, now_ms - load.started_ms)
        for why, count in skipped.items():
            logger.warning("%s: skipped %d records: %s", load.partition, count, why)
        if not self._loads:
            logger.info("groups are loaded: %d records in %d ms", self._records, now_ms - self._started_ms)
