"""Generations and committed offsets of a group never go backwards in `__consumer_offsets`."""

from __future__ import annotations

from typing import Any

from kohort.coordinator.records import OFFSETS_TOPIC, GroupMetadata, OffsetCommit, decode
from kohort.records.batch import read_records
from kohort.sim.reading import batches
from kohort.sim.trace import Checker


class Order(Checker):
    def finished(self, world: Any) -> None:
        for (topic, partition), log in sorted(world.broker.store.logs.items()):
            readable = topic == OFFSETS_TOPIC and partition not in world.broker.damaged
            if readable and log.end_offset > log.start_offset:
                self._check(partition, log)

    def _check(self, partition: int, log: Any) -> None:
        generations: dict[str, int] = {}
        offsets: dict[tuple[str, str, int], int] = {}
        for view, pos, header in batches(log):
            for record in read_records(view, pos, header):
                assert record.key is not None
                self._apply(decode(record.key, record.value), generations, offsets, partition, record.offset)

    def _apply(
        self,
        change: Any,
        generations: dict[str, int],
        offsets: dict[tuple[str, str, int], int],
        partition: int,
        at: int,
    ) -> None:
        where = f"record {at} of {OFFSETS_TOPIC}-{partition}"
        if isinstance(change, GroupMetadata):
            group_id, value = change.group_id, change.value
            if value is None:
                generations.pop(group_id, None)
                return
            if value.generation < generations.get(group_id, 0):
                self.fail(f"{group_id} goes from generation {generations[group_id]} to {value.generation} in {where}")
            generations[group_id] = value.generation
        elif isinstance(change, OffsetCommit):
            key = (change.group_id, change.topic, change.partition)
            if change.value is None:
                offsets.pop(key, None)
                return
            if change.value.committed_offset < offsets.get(key, 0):
                self.fail(
                    f"the offset of {key} goes from {offsets[key]} back to {change.value.committed_offset} in {where}"
                )
            offsets[key] = change.value.committed_offset
