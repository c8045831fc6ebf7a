"""A transaction is seen whole or not at all, and only when it is committed; who is fenced writes nothing; none hangs.

Transactors and the read_committed reader tell what they did and what they were told. What is in the logs is read from
their bytes, markers included, by rules of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kohort.client.types import TopicPartition
from kohort.protocol.errors import ErrorCode
from kohort.records.batch import read_records
from kohort.sim.reading import batches
from kohort.sim.trace import Checker

_COMMIT = b"\x00\x01"


@dataclass(slots=True, eq=False)
class Txn:
    transactional_id: str
    number: int
    life: str
    values: dict[bytes, TopicPartition] = field(default_factory=dict)
    with_offset: bool = False
    wants_commit: bool | None = None  # what its end was sent as
    told: bool | None = None  # what its end was answered as

    def __repr__(self) -> str:
        return f"transaction {self.number} of {self.life}"


class Transactions(Checker):
    def __init__(self) -> None:
        self._world: Any = None
        self.moment = 0  # counts what happened
        self._txns: list[Txn] = []
        self._of_value: dict[bytes, Txn] = {}
        self._epochs: dict[str, list[tuple[int, int, int]]] = {}  # transactional id -> moment, producer id, epoch
        self._seen: dict[TopicPartition, dict[int, bytes]] = {}

    def begin(self, world: Any) -> None:
        self._world = world

    def _note(self, text: str) -> None:
        self.moment += 1
        self._world.trace.note("transaction", text)

    # What transactors tell.

    def begun(self, transactional_id: str, producer_id: int, epoch: int) -> None:
        self._note(f"{transactional_id} is {producer_id}:{epoch}")
        self._epochs.setdefault(transactional_id, []).append((self.moment, producer_id, epoch))

    def fenced(self, life: str, code: ErrorCode) -> None:
        self._note(f"{life} ends: {code.name}")

    def opened(self, txn: Txn) -> None:
        self._note(f"{txn} begins")
        self._txns.append(txn)
        self._of_value |= dict.fromkeys(txn.values, txn)

    def written(
        self, txn: Txn, tp: TopicPartition, values: list[bytes], offset: int, who: tuple[int, int], sent: int
    ) -> None:
        """Acknowledged. Whoever came after and was told so before this was even sent has fenced it."""
        self._note(f"{txn} wrote {len(values)} to {tp} at {offset}")
        for moment, producer_id, epoch in self._epochs[txn.transactional_id]:
            if moment < sent and (producer_id > who[0] or (producer_id == who[0] and epoch > who[1])):
                self.fail(f"{txn} wrote to {tp} as {who[0]}:{who[1]}, fenced by {producer_id}:{epoch}")

    def ending(self, txn: Txn, commit: bool) -> None:
        self._note(f"{txn} {'commits' if commit else 'aborts'}")
        txn.wants_commit = commit

    def ended(self, txn: Txn, commit: bool) -> None:
        self._note(f"{txn} {'is committed' if commit else 'is aborted'}")
        txn.told = commit

    # What the reader tells.

    def seen(self, tp: TopicPartition, offset: int, value: bytes) -> None:
        self.moment += 1
        txn = self._of_value[value]
        if txn.wants_commit is None:
            self.fail(f"{value!r} of {tp} is seen while {txn} is open")
        if txn.wants_commit is False:
            self.fail(f"{value!r} of {tp} is seen though {txn} is aborted")
        if self._seen.setdefault(tp, {}).setdefault(offset, value) != value:
            self.fail(f"{tp} had {self._seen[tp][offset]!r} at {offset}, and now has {value!r}")

    # When all is quiet.

    def settled(self, world: Any) -> None:
        for transactor in world.transactors:
            if not transactor.idle:
                self.fail(f"{transactor.transactional_id} has not come to rest")
        visible: dict[bytes, TopicPartition] = {}
        for tp in world.transactional_partitions():
            self._audit(world, tp, visible)
        for txn in self._txns:
            there = [value for value in txn.values if value in visible]
            if there and len(there) < len(txn.values):
                missing = next(value for value in txn.values if value not in visible)
                self.fail(f"{txn} is there by half: {there[0]!r} is, {missing!r} is not")
            if txn.told is True and not there:
                self.fail(f"{txn} was committed and is not there")
            if there and txn.wants_commit is not True:
                self.fail(f"{txn} is there, and nobody committed it")
        for transactor in world.transactors:
            self._check_offset(world, transactor, visible)

    def _audit(self, world: Any, tp: TopicPartition, visible: dict[bytes, TopicPartition]) -> None:
        found = committed_values(world.broker.store.logs[tp])
        if found.hanging:
            self.fail(f"{tp}: the transaction of producer {found.hanging[0]} hangs")
        if found.late:
            self.fail(f"{tp}: {found.late}")
        seen = self._seen.get(tp, {})
        for offset, value in found.values.items():
            if value in visible:
                self.fail(f"{value!r} is there twice, the second time at {tp} {offset}")
            visible[value] = tp
            if seen.get(offset) != value:
                self.fail(f"{value!r} at {tp} {offset} is committed and was not read: {seen.get(offset)!r}")
        for offset, value in seen.items():
            if offset not in found.values:
                self.fail(f"{value!r} was read at {tp} {offset} and is not committed")

    def _check_offset(self, world: Any, transactor: Any, visible: dict[bytes, TopicPartition]) -> None:
        """Offsets move with the output."""
        done = [
            txn.number
            for txn in self._txns
            if txn.transactional_id == transactor.transactional_id
            and txn.with_offset
            and all(value in visible for value in txn.values)
        ]
        group = world.broker.core.coordinator.group(transactor.group_id)
        tp = world.transactional_partitions()[0]
        stored = None if group is None else group.offsets.get(tp.topic, {}).get(tp.partition)
        offset = None if stored is None else stored.committed_offset
        if offset != max(done, default=None):
            self.fail(
                f"{transactor.group_id} is at {offset}, its last committed transaction is {max(done, default=None)}"
            )


@dataclass(slots=True)
class _Found:
    values: dict[int, bytes] = field(default_factory=dict)
    hanging: list[int] = field(default_factory=list)
    late: str = ""


def committed_values(log: Any) -> _Found:
    """What the bytes of a log say: offsets and values of committed transactions."""
    found = _Found()
    waiting: dict[int, dict[int, bytes]] = {}
    epochs: dict[int, int] = {}
    for view, pos, header in batches(log):
        if header.producer_epoch < epochs.get(header.producer_id, -1):
            found.late = f"producer {header.producer_id} wrote in its epoch {header.producer_epoch} after a later one"
        epochs[header.producer_id] = max(epochs.get(header.producer_id, -1), header.producer_epoch)
        records = read_records(view, pos, header)
        if not header.is_control:
            rows = {record.offset: bytes(record.value or b"") for record in records}
            waiting.setdefault(header.producer_id, {}).update(rows)
            continue
        ended, key = waiting.pop(header.producer_id, {}), records[0].key
        if key is not None and bytes(key[2:4]) == _COMMIT:
            found.values |= ended
    found.hanging = list(waiting)
    return found
