"""Generations, epochs and committed offsets of a group never go backwards in `__consumer_offsets`.

A group that moves between the protocols goes on where it was: its generation becomes its epoch, or the other way.
"""

from __future__ import annotations

from typing import Any

from kohort.coordinator.modern_records import Kind
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
        seen = _Seen()
        for view, pos, header in batches(log):
            seen.ended.clear()
            for record in read_records(view, pos, header):
                assert record.key is not None
                if wrong := seen.apply(decode(record.key, record.value)):
                    self.fail(f"{wrong} in record {record.offset} of {OFFSETS_TOPIC}-{partition}")


class _Seen:
    """What one partition has said so far. `apply` says what goes backwards, or nothing."""

    def __init__(self) -> None:
        self._generations: dict[str, int] = {}
        self._targets: dict[str, int] = {}
        self._members: dict[tuple[str, str], int] = {}
        self._offsets: dict[tuple[str, str, int], int] = {}
        self._occupied: set[str] = set()  # classic groups with members
        self._left: set[str] = set()  # groups that lost members after their last epoch
        self.ended: dict[str, int] = {}  # with members, in this batch: it goes on in the other protocol

    def apply(self, change: Any) -> str:
        if isinstance(change, OffsetCommit):
            return self._offset(change)
        if isinstance(change, GroupMetadata):
            return self._classic(change.group_id, change.value)
        if change.kind is Kind.GROUP:
            return self._epoch(change.group_id, None if change.value is None else change.value.epoch)
        if change.kind is Kind.MEMBER and change.value is None:
            self._left.add(change.group_id)
        if change.kind is Kind.TARGET:
            return self._target(change)
        return self._member(change) if change.kind is Kind.CURRENT_MEMBER else ""

    def _classic(self, group_id: str, value: Any) -> str:
        if value is None:
            return self._end(group_id, group_id in self._occupied)
        (self._occupied.add if value.members else self._occupied.discard)(group_id)
        return self._goes_on(group_id, value.generation, bool(value.members))

    def _epoch(self, group_id: str, epoch: int | None) -> str:
        """An empty group begins anew in the other protocol, as in Kafka; one with members takes them along."""
        had_members = group_id in self._left
        self._left.discard(group_id)
        if epoch is None:
            return self._end(group_id, had_members)
        return self._goes_on(group_id, epoch, True)

    def _end(self, group_id: str, had_members: bool) -> str:
        generation = self._generations.pop(group_id, 0)
        self._targets.pop(group_id, None)
        if had_members:
            self.ended[group_id] = generation
        return ""

    def _goes_on(self, group_id: str, now: int, has_members: bool) -> str:
        before = self._generations.get(group_id, self.ended.get(group_id, 0) if has_members else 0)
        self._generations[group_id] = now
        return f"{group_id} goes from generation {before} to {now}" if now < before else ""

    def _target(self, change: Any) -> str:
        group_id = change.group_id
        if change.value is None:
            self._targets.pop(group_id, None)
            return ""
        before, now = self._targets.get(group_id, 0), change.value.epoch
        self._targets[group_id] = now
        if now > self._generations.get(group_id, now):
            return f"{group_id} has a target for epoch {now} and is in {self._generations[group_id]}"
        return f"the target of {group_id} goes from epoch {before} to {now}" if now < before else ""

    def _member(self, change: Any) -> str:
        key = (change.group_id, change.name)
        if change.value is None:
            self._members.pop(key, None)
            return ""
        before, now = self._members.get(key, 0), change.value.member_epoch
        self._members[key] = max(now, 0)  # who leaves for a while has no epoch
        if now > self._generations.get(change.group_id, now):
            return f"{change.name} is in epoch {now}, {change.group_id} in {self._generations[change.group_id]}"
        return f"{change.name} goes from epoch {before} to {now}" if 0 < now < before else ""

    def _offset(self, change: OffsetCommit) -> str:
        key = (change.group_id, change.topic, change.partition)
        if change.value is None:
            self._offsets.pop(key, None)
            return ""
        before, now = self._offsets.get(key, 0), change.value.committed_offset
        self._offsets[key] = now
        return f"the offset of {key} goes from {before} back to {now}" if now < before else ""
