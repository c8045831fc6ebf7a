"""Records of `__consumer_offsets` and `__kohort_group_events` into the ledger. What cannot be read is counted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kohort.coordinator.event_json import UnknownEvent, from_json
from kohort.coordinator.records import GroupMetadata, OffsetCommit, UnknownRecord, decode
from kohort.history.kinds import CONSUMER, KINDS, modern_row
from kohort.insight.generations import StoredGeneration
from kohort.insight.ledger import Ledger


class Feeder:
    """`names` are topics by id: records of KIP-848 groups know no others."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.names: Mapping[str, str] = {}
        self.skipped = 0

    def event(self, value: bytes | None) -> None:
        event = from_json(value)
        if isinstance(event, UnknownEvent) or not event.group_id:
            self.skipped += 1
            return
        self.ledger.event(event)

    def offsets_record(self, key: bytes | None, value: bytes | None, written_ms: int) -> None:
        if key is None or len(key) < 2:
            self.skipped += 1
        elif key[0] << 8 | key[1] > 2:
            self._modern(key, value, written_ms)
        else:
            self._classic(key, value, written_ms)

    def _classic(self, key: bytes, value: bytes | None, written_ms: int) -> None:
        try:
            change = decode(key, value)
        except UnknownRecord:
            self.skipped += 1
            return
        if isinstance(change, OffsetCommit):
            self._commit(change, written_ms)
        elif isinstance(change, GroupMetadata) and change.value is not None:
            self.ledger.generation(change.group_id, StoredGeneration.of(change.value, written_ms))
        elif change.group_id in self.ledger.groups:
            self.ledger.group(change.group_id).gone(written_ms)

    def _commit(self, change: OffsetCommit, written_ms: int) -> None:
        partition = (change.topic, change.partition)
        if change.value is None:
            if change.group_id in self.ledger.groups:
                self.ledger.group(change.group_id).uncommitted(partition)
            return
        at_ms = change.value.commit_timestamp_ms
        self.ledger.commit(
            change.group_id, partition, change.value.committed_offset, at_ms if at_ms > 0 else written_ms
        )

    def _modern(self, key: bytes, value: bytes | None, written_ms: int) -> None:
        kind = KINDS.get(key[0] << 8 | key[1])
        if kind is None or kind.key is None or kind.family != CONSUMER:
            self.skipped += 1
            return
        row = modern_row(key, value)
        if row.get("problem"):
            self.skipped += 1
            return
        self.modern(row, written_ms)

    def modern(self, row: Mapping[str, Any], at_ms: int) -> None:
        data = None if row.get("data") is None else json.loads(row["data"])
        self.ledger.group(row["group_id"]).modern(at_ms, row["kind"], row.get("member_id"), data, self.names)
