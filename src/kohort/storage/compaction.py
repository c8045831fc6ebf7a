"""Compaction of record batches, pure: which records and markers stay, and what the batches then look like.

The rules are Kafka 4.3's (Cleaner, KIP-534): the last value of a key stays; a tombstone stays until the delete horizon
that its first cleaning stamps on the batch; offsets never change; a batch that carries the last sequence of a live
producer, or ends the cleaned range, stays even if empty. Segments, files and scheduling are elsewhere.

Records are looked at one by one and never all held: a batch of some kilobytes may inflate to millions of them.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from itertools import compress
from typing import Any, NamedTuple

from kohort.records.batch import BatchHeader, Record, Summary, build_batch, iter_records, read_body, read_records
from kohort.records.compression import Compression
from kohort.records.control import ControlType, control_type
from kohort.storage.log import AbortedTxn, Buffer
from kohort.storage.producers import ProducerStates

DEFAULT_MAX_KEYS = 500_000
_LONG_KEY = 32
Batch = tuple[Buffer, int, BatchHeader]


class LastOfProducer(NamedTuple):
    """What must outlive compaction so that a producer's state can be rebuilt from the log."""

    last_offset: int | None
    epoch: int


def last_of_producers(states: ProducerStates) -> dict[int, LastOfProducer]:
    return {state.producer_id: LastOfProducer(state.last_offset, state.epoch) for state in states}


class Transactions:
    """Follows transactions while batches pass by in offset order."""

    def __init__(self) -> None:
        self._coming: list[tuple[int, AbortedTxn]] = []
        self._aborted: dict[
            int, tuple[AbortedTxn, bool]
        ] = {}  # producer -> transaction, whether a batch of it was seen
        self._committed: set[int] = set()
        self.kept_aborted: list[AbortedTxn] = []  # those whose batches are not all gone yet

    def expect(self, aborted: Iterable[AbortedTxn]) -> None:
        for txn in aborted:
            heapq.heappush(self._coming, (txn.first_offset, txn))

    def _advance(self, offset: int) -> None:
        while self._coming and self._coming[0][0] <= offset:
            txn = heapq.heappop(self._coming)[1]
            self._aborted.setdefault(txn.producer_id, (txn, False))

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether a data batch belongs to an aborted transaction."""
        self._advance(header.last_offset)
        if not header.is_transactional:
            return False
        if header.producer_id in self._aborted:
            self._aborted[header.producer_id] = (self._aborted[header.producer_id][0], True)
            return True
        self._committed.add(header.producer_id)
        return False

    def is_marker_idle(self, header: BatchHeader, records: list[Record]) -> bool:
        """Whether a control batch marks the end of a transaction of which nothing is left."""
        self._advance(header.last_offset)
        if not records:
            return True
        kind = control_type(records[0])
        if kind == ControlType.COMMIT:
            idle = header.producer_id not in self._committed
            self._committed.discard(header.producer_id)
            return idle
        if kind == ControlType.ABORT:
            txn, seen = self._aborted.pop(header.producer_id, (None, False))
            if txn is None or not seen:
                return True
            self.kept_aborted.append(txn)
        return False


class LatestOffsets:
    """Key -> offset of its last record in the dirty part; `end_offset` bounds what it has seen."""

    def __init__(self, start_offset: int, max_keys: int = DEFAULT_MAX_KEYS) -> None:
        self.start_offset = start_offset
        self.end_offset = start_offset
        self.max_keys = max_keys
        self._offsets: dict[bytes, int] = {}

    def add(self, batch: Batch, transactions: Transactions) -> bool:
        """Take in a batch; False where it holds more keys than may be remembered (this round then ends before it)."""
        buf, pos, header = batch
        if header.is_control:
            transactions.is_marker_idle(header, read_records(buf, pos, header))
        elif not transactions.is_aborted(header) and header.record_count:
            for record in iter_records(read_body(buf, pos, header), header):
                if record.key is not None and record.offset >= self.start_offset:
                    key = _short(record.key)
                    if len(self._offsets) >= self.max_keys and key not in self._offsets:
                        return False
                    self._offsets[key] = record.offset
        self.end_offset = max(self.end_offset, header.next_offset)
        return True

    def is_latest(self, record: Record) -> bool:
        return record.key is not None and record.offset >= self._offsets.get(_short(record.key), -1)


def _short(key: bytes) -> bytes:
    """The key itself, or what stands for it: longer than any key that stands for itself."""
    return key if len(key) <= _LONG_KEY else blake2b(key, digest_size=_LONG_KEY + 1).digest()


class Cleaner:
    """Rewrites batches for one round; feed it every batch of the round in offset order."""

    def __init__(
        self,
        latest: LatestOffsets,
        *,
        upper_bound: int,
        now_ms: int,
        delete_retention_ms: int,
        producers: Mapping[int, LastOfProducer],
    ) -> None:
        self.latest = latest
        self.upper_bound = upper_bound
        self.now_ms = now_ms
        self.delete_retention_ms = delete_retention_ms
        self.producers = producers
        self.transactions = Transactions()

    def clean(self, batch: Batch) -> Buffer | None:
        """What takes the batch's place; None where nothing does."""
        header = batch[2]
        return self._clean_marker(batch) if header.is_control else self._clean_data(batch)

    def _clean_marker(self, batch: Batch) -> Buffer | None:
        buf, pos, header = batch
        records = read_records(buf, pos, header)
        idle, horizon = self.transactions.is_marker_idle(header, records), header.delete_horizon_ms
        if not records or (idle and horizon is not None and horizon <= self.now_ms):
            return self._nothing_left(header)
        if not idle or horizon is not None:
            return memoryview(buf)[pos : pos + header.size]
        return _rebuilt_batch(header, records, None, self.now_ms + self.delete_retention_ms)

    def _clean_data(self, batch: Batch) -> Buffer | None:
        buf, pos, header = batch
        if self.transactions.is_aborted(header):
            return self._nothing_left(header)
        body = read_body(buf, pos, header)
        is_kept = bytearray()
        has_tombstones, count, first_timestamp, max_timestamp = False, 0, 0, 0
        for record in iter_records(body, header):
            keeps = self._keeps(header, record)
            is_kept.append(keeps)
            if keeps:
                first_timestamp = record.timestamp if not count else first_timestamp
                max_timestamp = max(max_timestamp, record.timestamp) if count else record.timestamp
                has_tombstones = has_tombstones or record.value is None
                count += 1
        if not count:
            return self._nothing_left(header)
        needs_horizon = header.delete_horizon_ms is None and has_tombstones
        if count == len(is_kept) and not needs_horizon:
            return memoryview(buf)[pos : pos + header.size]
        horizon = self.now_ms + self.delete_retention_ms if needs_horizon else header.delete_horizon_ms
        kept, summary = compress(iter_records(body, header), is_kept), Summary(count, first_timestamp, max_timestamp)
        return _rebuilt_batch(header, kept, summary, horizon)

    def _nothing_left(self, header: BatchHeader) -> Buffer | None:
        return _empty_batch(header) if self._must_stay(header) else None

    def _keeps(self, header: BatchHeader, record: Record) -> bool:
        if record.offset >= self.latest.end_offset:
            return True
        if not self.latest.is_latest(record):
            return False
        horizon = header.delete_horizon_ms
        return record.value is not None or horizon is None or self.now_ms < horizon

    def _must_stay(self, header: BatchHeader) -> bool:
        if header.next_offset == self.upper_bound:
            return True
        last = self.producers.get(header.producer_id) if header.has_producer_id else None
        if last is None:
            return False
        if last.last_offset is not None:
            return header.last_offset == last.last_offset
        return header.is_control and header.producer_epoch == last.epoch


def _rebuilt_batch(
    header: BatchHeader, records: Iterable[Record], summary: Summary | None, delete_horizon_ms: int | None
) -> bytes:
    return build_batch(
        records,
        summary=summary,
        compression=Compression(header.compression),
        delete_horizon_ms=delete_horizon_ms,
        max_timestamp=header.max_timestamp if header.timestamp_type else None,
        **_kept(header),
    )


def _empty_batch(header: BatchHeader) -> bytes:
    return build_batch([], max_timestamp=header.max_timestamp, **_kept(header))


def _kept(header: BatchHeader) -> dict[str, Any]:
    """What a batch keeps whatever becomes of its records."""
    return {
        "base_offset": header.base_offset,
        "timestamp_type": header.timestamp_type,
        "partition_leader_epoch": header.partition_leader_epoch,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "last_offset": header.last_offset,
    }
