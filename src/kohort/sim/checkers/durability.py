"""What was acknowledged is there: records exactly once at their offset, commits until a later one replaces them."""

from __future__ import annotations

from typing import Any

from kohort.client.types import TopicPartition
from kohort.records.batch import read_records
from kohort.sim.broker import SimBroker
from kohort.sim.journal import Removal
from kohort.sim.reading import batches
from kohort.sim.trace import Checker, CommitAttempt


def contents(broker: SimBroker, tp: TopicPartition) -> list[tuple[int, bytes | None]]:
    """Every record of a partition, offset and value, read from the log itself."""
    log = broker.store.logs[tp]
    records = []
    for view, pos, header in batches(log):
        if not header.is_control:
            records += [(record.offset, record.value) for record in read_records(view, pos, header)]
    return records


class RecordDurability(Checker):
    def __init__(self) -> None:
        self._acked: dict[TopicPartition, dict[int, bytes]] = {}

    def produced(self, tp: TopicPartition, offset: int, value: bytes) -> None:
        other = self._acked.setdefault(tp, {}).setdefault(offset, value)
        if other != value:
            self.fail(f"{tp} at {offset} was acknowledged to {other!r} and to {value!r}")

    def broker_started(self, broker: SimBroker) -> None:
        self._check(broker)

    def settled(self, world: Any) -> None:
        self._check(world.broker)

    def _check(self, broker: SimBroker) -> None:
        for tp, acked in self._acked.items():
            found = contents(broker, tp)
            there = dict(found)
            for offset, value in acked.items():
                if there.get(offset) != value:
                    self.fail(f"{value!r} was acknowledged at {tp} {offset}, there is {there.get(offset)!r}")
            values = [bytes(value) for _, value in found if value is not None]
            if len(set(values)) != len(values):
                twice = sorted({value for value in values if values.count(value) > 1})
                self.fail(f"{tp} holds {twice[0]!r} more than once")


class CommitDurability(Checker):
    """After a restart a group's offset is the last acknowledged one, or one that was sent after it."""

    def __init__(self) -> None:
        self._attempts: dict[tuple[str, TopicPartition], list[CommitAttempt]] = {}
        self._last_acked: dict[tuple[str, TopicPartition], CommitAttempt] = {}
        self._removed_ms: dict[tuple[str, TopicPartition], int] = {}

    def offset_removed(self, removal: Removal) -> None:
        self._removed_ms[removal.group_id, removal.tp] = removal.at_ms

    def commit_sent(self, attempt: CommitAttempt) -> None:
        for tp in attempt.offsets:
            self._attempts.setdefault((attempt.group_id, tp), []).append(attempt)

    def commit_acked(self, attempt: CommitAttempt, tp: TopicPartition) -> None:
        last = self._last_acked.get((attempt.group_id, tp))
        if last is None or attempt.number > last.number:
            self._last_acked[attempt.group_id, tp] = attempt

    def settled(self, world: Any) -> None:
        self._check(world)

    def finished(self, world: Any) -> None:
        world.broker.crash(power_loss=world.options.power_loss_share > 0)
        world.broker.start()
        world.scheduler.run(world.scheduler.now_ms + 10_000)
        world.journal.read()
        self._check(world)

    def _check(self, world: Any) -> None:
        coordinator = world.broker.core.coordinator
        for (group_id, tp), acked in self._last_acked.items():
            if not world.is_readable(group_id):
                continue
            group = coordinator.group(group_id)
            stored = group.offsets.get(tp.topic, {}).get(tp.partition) if group is not None else None
            offset = None if stored is None else stored.committed_offset
            allowed = {
                attempt.offsets[tp] for attempt in self._attempts[group_id, tp] if attempt.number >= acked.number
            }
            removed = self._removed_ms.get((group_id, tp), -1) >= acked.sent_ms  # whether rightly so is not asked here
            if offset not in allowed and not (offset is None and removed):
                self.fail(
                    f"{group_id} had {acked.offsets[tp]} acknowledged for {tp} (commit #{acked.number} of "
                    f"{acked.member}), the coordinator has {offset}"
                )
